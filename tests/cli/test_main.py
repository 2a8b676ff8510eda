"""The command line from outside, as a user meets it: everything but training."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.warm_command import OPEN, command

import vflbench
from vflbench.cli.config import GROUPS
from vflbench.cli.main import COMMANDS
from vflbench.files import config_folder
from vflbench.results.folder import finished_folders

MISTAKES = [
    ("train epoch=3", ["epoch: there is no such option", "did you mean epochs?"]),
    ("train attack=[norm,spectrl]", ["attack=spectrl", "did you mean spectral?"]),
    ("train attack=spread", ["attack=spread: there is no such choice; there are alignment, ", "--plugins DIR"]),
    ("train dataset.path=x", ["dataset.path", "it goes with dataset=adult, dataset=avazu, "]),
    ("train model.width=1000000 dataset.rows=500", ["model: the weights", "GB of memory"]),
    ("train dataset=csv dataset.path=a dataset.label=y hydra.run.dir=run", ["dataset.path=a", "no such file"]),
    ("train seed=-1", ["seed=-1", "it must be a whole number from 0 to 9,223"]),
    ("train model._target_=os.system +model.command=id", ["model._target_=os.system", "os is not imported"]),
    ("train attack=[norm, spectral]", ["put quotes around the whole: 'attack=[norm, spectral]'"]),
    ("train defense=none,marvell", ["defense=none,marvell: several values are a sweep", "add -m"]),
    ("audit .", ["there is no manifest.json in this folder (see: the documentation, The format of"]),
    ("train --plugins=nowhere epochs=1", ["--plugins=nowhere: there is no such folder"]),
    ("list nothing", ["nothing", "dataset"]),
    ("prepare dataset=criteo dataset.path=none_*", ["dataset.path=none_*: no file matches this pattern"]),
    ("trian", ["trian", "train"]),
    ("report nothing_here", ["vflbench report nothing_here: there is no such folder"]),
]


def test_a_mistake_ends_in_one_paragraph_and_exit_code_1(tmp_path):
    (tmp_path / "mine.py").write_text("raise AssertionError('the current folder is no place for modules')\n")
    for typed, expected in MISTAKES:
        result = command(*typed.split(), cwd=tmp_path)
        assert (result.returncode, result.stdout) == (1, ""), typed
        (line,) = result.stderr.strip().splitlines()
        assert "hydra.cc" not in line
        assert [words for words in expected if words not in line] == [], line
    outputs = tmp_path / "outputs"
    assert list(outputs.iterdir()) == []  # none leaves a run's folder behind
    assert sorted(tmp_path.iterdir()) == [tmp_path / "mine.py", outputs]


def test_the_traceback_is_there_for_those_who_ask(tmp_path):
    assert "Traceback" in command("train", "seed=-1", cwd=tmp_path, HYDRA_FULL_ERROR="1").stderr


def test_help_version_and_the_shown_config(tmp_path):
    for words in ([], *([name] for name in COMMANDS)):
        shown = command(*words, "--help", cwd=tmp_path).stdout
        assert f"vflbench {' '.join(words)}" in shown
        assert [line for line in shown.splitlines() if len(line) > 80] == [], words
        assert words != ["train"] or "batch_size=auto" in shown
    assert command("--version", cwd=tmp_path).stdout.split() == ["vflbench", vflbench.__version__]
    job = command("train", "defense=max_norm", "--cfg", "job", cwd=tmp_path).stdout
    assert yaml.safe_load(job)["defense"] == {"max_norm": {"_target_": "vflbench.defenses.max_norm.MaxNorm"}}
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_printed_names_a_file_that_a_wheel_lacks():
    package = Path(vflbench.__file__).parent
    for file in (file for room in ("cli", "messages", "run", "engines", "data") for file in (package / room).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text()))) if "docs/" in file.read_text() else []
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
        assert [text for text in texts if isinstance(text, str) and re.search(r"\bdocs/\w", text)] == [], file


def test_tab_completion_knows_commands_groups_and_options(tmp_path):
    def complete(line):
        return command("-sc", "query=bash", cwd=tmp_path, COMP_LINE=line).stdout.split()

    assert complete("vflbench tr") == ["train", "audit", "grade", "prepare", "parties", "report", "reproduce", "list"]
    beginning_with_s = [f"attack={name}" for name in ("simulator", "spectral", "spectral_clustering", "strongest")]
    for program in ("vflbench", "/opt/train/bin/vflbench"):
        assert complete(f"{program} train attack=s") == beginning_with_s
    assert {"dataset", "attack"} <= set(complete("vflbench list "))
    assert "dataset.rows=" in complete("vflbench train dataset.")
    for name in ("d_good.csv", "d$(touch${IFS}evil).csv", "d`touch evil`.csv", "d;touch evil.csv"):
        (tmp_path / name).touch()
    there = f"vflbench train dataset=csv dataset.path={tmp_path}/d"
    assert complete(there) == [f"dataset.path={tmp_path}/d_good.csv"]  # the shell would execute the others
    assert "complete -o nospace" in command("-sc", "install=bash", cwd=tmp_path).stdout


def test_the_list_has_an_entry_for_every_choice_with_threat_model_and_source(tmp_path):
    text = command("list", cwd=tmp_path).stdout
    entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=  ?\S|\n)", text)]
    names = [entry.split()[0] for entry in entries if entry]
    assert {file.stem for group in GROUPS for file in (config_folder() / group).glob("*.yaml")} <= set(names)
    (spectral,) = (entry for entry in entries if entry.startswith("spectral "))
    assert "[messages only; non-label party; knows class shares, embeddings]" in spectral
    assert "Sun et al." in spectral
    assert max(map(len, text.splitlines())) <= 80
    assert command("list", "adversaries", cwd=tmp_path).stdout == command("list", "adversary", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_data_set_is_prepared_once_and_train_uses_it(tmp_path):
    lines = "".join(f"{i % 2}\t{i}\t" + "\t".join(["7"] * 12 + [f"{i % 9:08x}"] * 26) + "\n" for i in range(600))
    (tmp_path / "day_1").write_text(lines)
    (tmp_path / "day_2").write_text(lines + "bad\n")
    data = ["dataset=criteo", "dataset.path=day_*", "dataset.bad_rows=skip"]
    cache = {"VFLBENCH_CACHE": str(tmp_path / "cache")}
    first, second = (command("prepare", *data, cwd=tmp_path, **cache) for _ in range(2))
    assert first.stdout.startswith("prepared: 1,200 rows, 39 columns, 234 ids, bad rows left out: 1; ")
    assert second.stdout == f"already {first.stdout}"
    (prepared,) = (tmp_path / "cache" / "prepared").iterdir()
    before = prepared.stat().st_mtime_ns
    run = command("train", *data, "epochs=1", "model.width=8", "batch_size=100", cwd=tmp_path, **cache)
    assert run.returncode == 0, run.stderr
    assert "bad rows left out: 1 (row 601: Expected 40 columns, got 1" in run.stdout
    assert [(file, file.stat().st_mtime_ns) for file in prepared.parent.iterdir()] == [(prepared, before)]
    (folder,) = finished_folders(tmp_path)
    data = yaml.safe_load((folder / "manifest.json").read_text())["data"]
    assert data["bad_rows"]["count"] == 1
    assert data["path"] == [str(tmp_path / "day_1"), str(tmp_path / "day_2")]


def test_numba_counts_as_absent_where_the_working_folder_has_settings_for_it(tmp_path):
    """They choose a cache, and numba unpickles what it finds there."""
    (tmp_path / ".numba_config.yaml").write_text("CACHE_DIR: evil\n")
    code = "from vflbench.cli.main import prepare_process; prepare_process(); import numba"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, env=OPEN, capture_output=True, text=True)
    assert "import of numba halted" in done.stderr
