"""What others wrote runs no code: configs, modules beside them or in the working folder, and words that name code.

Each attack would write the file MARKER. It ends in one paragraph and exit code 1, or is left without effect. What a YAML
file itself may hold is tested in tests/results/test_untrusted.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.warm_command import OPEN, SMALL, command

from vflbench import UserError, train
from vflbench.results.folder import finished_folders

MARKER = "marker"
CALL = {"_target_": "subprocess.run", "args": ["touch", MARKER]}
EVIL = f"open({MARKER!r}, 'w')\n"
MLFLOW = {"_target_": "vflbench.results.loggers.Mlflow", "uri": "http://127.0.0.1:9"}
CALLBACK = "+hydra.callbacks.x={_target_: evil.X}"
BOMB = "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" if i else "a1: &a1 [x]\n" for i in range(9))
SEARCHED = "hydra: {searchpath: ['pkg://evil']}"


def swept(**sweeper):
    return {"hydra": {"mode": "MULTIRUN", "sweeper": sweeper}}


EXPERIMENTS = {
    "a callback": ({"hydra": {"callbacks": {"x": CALL}}}, "hydra.callbacks"),
    "a sweeper": ({"hydra": {"sweeper": CALL, "mode": "MULTIRUN"}}, "hydra.sweeper"),
    "all of Hydra's options by reference": ({"mine": {"callbacks": {"x": CALL}}, "hydra": "${mine}"}, "hydra"),
    "a callback as what is swept": (swept(params=dict([CALLBACK.split("=")])), "hydra.callbacks"),
    "a callback among options that go together": (swept(runs=[[CALLBACK]]), "hydra.callbacks"),
    "a billion runs": (swept(params={"seed": "range(0,1000000000)"}), "at most 10,000 runs"),
    "a secret of the environment": ({"dataset": {"path": "${oc.env:HOME}"}}, "oc.env"),
    "a secret in what is swept, escaped": (swept(params={"name": "$\\{oc.env\\:HOME\\}"}), "oc.env"),
    "results replaced": ({"overwrite": True}, "overwrite=True"),
    "itself": ({"defaults": ["x"]}, "circle"),
    "a file outside": ({"defaults": [{"/dataset": "../../other"}]}, "it leads out of its folder"),
    "another's server": ({"logger": {"mlflow": MLFLOW}}, "logger.mlflow.uri"),
    "a module in the working folder": ({"defense": {"x": {"_target_": "evil.Defense"}}}, "defense.x._target_=evil.Defense"),
    "a module beside the config": ({"attack": {"x": {"_target_": "beside.Attack"}}}, "attack.x._target_=beside.Attack"),
    "a module through ours": ({"defense": {"x": {"_target_": "vflbench.cli.config:os.mkdir"}}}, "defense.x._target_"),
    "a NUL in a name": ({"defense": {"x": {"_target_": "evil\0.X"}}}, "there is no such class"),
}
"""Experiments in a folder given as --config-dir, and what the paragraph says."""
FILES = {
    "a search path": ("x.yaml", f"defaults: [train, _self_]\n{SEARCHED}", "--config-name=x", "hydra.searchpath"),
    "a search path by a merge key": ("x.yaml", f"a: &a {{{SEARCHED}}}\n<<: *a\n", "--config-name=x", "it merges mappings"),
    "one placed among callbacks": ("mine/x.yaml", f"# @package hydra.callbacks\nx: {CALL}\n", "+mine=x", "hydra.callbacks"),
    "a launcher of its own": ("hydra/launcher/mine.yaml", f"{CALL}\n", "hydra/launcher=mine", "under hydra/"),
    "a bomb": ("experiment/x.yaml", BOMB, "experiment=x", "too many aliases"),
    "101 defaults": ("x.yaml", f"defaults: {['/attack@p: norm'] * 101}", "--config-name=x", "more than 100 defaults"),
}
"""Files in such a folder, the word that chooses them, and what the paragraph says."""
WORDS = {
    "a pickle": (["train", "--experimental-rerun=job.pickle"], "--experimental-rerun: there is no such flag"),
    "an import": (["train", "model=torch", "model.bottom=this:that", "model.top=this:that"], "model.bottom=this:that"),
    "a name that leads elsewhere": (["train", f"name=../{MARKER}"], f"name=../{MARKER}: "),
    "a sweep over such names": (["train", "-m", f"name=a,../{MARKER}"], "name="),
    "a config outside": (["train", "--config-dir=shared", "--config-name=../other"], "it leads out of the folder"),
    "a secret": (["train", "name=${oc.env:HOME}"], "oc.env"),
    "an attack on a recording": (["audit", "shared", "+attack.x={_target_: evil.X}"], "evil.X"),
    "a data set": (["prepare", "dataset._target_=evil.X"], "evil.X"),
}
"""Words of a command line, and what the paragraph says."""
CHOSEN = ["train", "--config-dir=shared", *SMALL, "epochs=1"]
HEAD = "# @package _global_\n"
TEXTS = {case: HEAD + yaml.safe_dump(content, allow_unicode=True) for case, (content, _) in EXPERIMENTS.items()}
FILES |= {case: ("experiment/x.yaml", TEXTS[case], "experiment=x", said) for case, (_, said) in EXPERIMENTS.items()}
CASES = {case: (name, text, [*CHOSEN, word], said) for case, (name, text, word, said) in FILES.items()}
CASES |= {case: ("none", "", *attack) for case, attack in WORDS.items()}
QUICK = {"a callback", "a module in the working folder", "a callback as what is swept", "a secret of the environment"}
QUICK |= {"a NUL in a name", "a pickle", "a search path by a merge key", "results replaced", "a bomb"}
"""Each takes most of a second: the others are slow."""


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def hostile(tmp_path):
    """A working folder with modules that would write the marker when they are imported, and a folder `shared` beside."""
    names = ("json", "torch", "yaml", "hydra", "numpy", "threading", "joblib", "sitecustomize", "usercustomize")
    packages = ("evil", "vflbench/attacks", "hydra_plugins/evil_launcher")
    for name in (*names, *(f"{package}/__init__" for package in packages), "hydra_plugins/evil_launcher/launcher"):
        write(tmp_path / f"{name}.py", EVIL)
    for folder in ("shared", "shared/experiment"):
        write(tmp_path / folder / "beside.py", EVIL)
    return tmp_path


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES])
def test_what_others_wrote_is_refused_in_one_paragraph(hostile, case):
    name, text, words, said = CASES[case]
    write(hostile / "shared" / name, text)
    result = command(*words, cwd=hostile)
    assert [*hostile.rglob(MARKER), *hostile.parent.glob(MARKER)] == [], result.stderr
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    (line,) = result.stderr.strip().splitlines()
    assert said in line
    assert len(line) < 1500
    assert line.isprintable()
    assert finished_folders(hostile) == []


def left_alone(*words, cwd, **environment):
    """The runs of a command in a process of its own. As with its script, Python doesn't look for modules in its folder."""
    arguments, environment = [sys.executable, "-P", "-m", "vflbench", *words], {**OPEN, "DISPLAY": "", **environment}
    result = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert list(cwd.rglob(MARKER)) == [], result.stdout
    return finished_folders(cwd)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_workers_take_nothing_from_the_working_folder(hostile, launcher):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
    words = ("-m", f"hydra/launcher={launcher}", "seed=0,1", "attack=norm", *SMALL, "epochs=1")
    assert len(left_alone("train", *words, cwd=hostile)) == 2


@pytest.mark.slow
def test_relative_entries_of_the_python_path_are_left(hostile):
    for file in hostile.glob("*.py"):  # Python itself has imported some of them before vflbench begins
        if file.stem not in ("torch", "hydra", "numpy", "yaml"):
            file.unlink()
    package = str(Path(__file__).resolve().parents[2])
    assert left_alone("list", "attack", cwd=hostile, PYTHONPATH=f"{package}::/nowhere") == []


@pytest.mark.slow
def test_what_is_listed_and_completed_runs_nothing(hostile):
    """Classes are looked up where a run begins, but a file that is none, or has a call in it, is said to be of no use."""
    folder = hostile / "shared" / "attack"
    texts = ("a: {_target_: beside.X}", f"b: {CALL}", f"e: !!python/object/apply:os.system ['touch {MARKER}']", "f: &f [*f]")
    for text in texts:
        write(folder / f"{text[0]}.yaml", text)
    os.mkfifo(folder / "g.yaml")
    listed = command("list", "attack", "--config-dir", "shared", cwd=hostile).stdout
    assert " ".join(listed.split()).count("can't be used: ") == 3
    assert "spectral" in listed
    completed = command("-sc", "query=bash", cwd=hostile, COMP_LINE="vflbench train hydra.searchpath=[pkg://evil] attack=s")
    assert all(word.startswith("attack=s") for word in completed.stdout.split())
    assert list(hostile.rglob(MARKER)) == []


@pytest.mark.slow
def test_the_function_train_has_the_same_boundary(hostile, monkeypatch):
    monkeypatch.chdir(hostile)
    for word in ("+attack.x={_target_: evil.X}", f"name=../{MARKER}"):
        with pytest.raises(UserError, match=word.lstrip("+").split("=")[0]):
            train(word, *SMALL)
    assert list(hostile.rglob(MARKER)) == []


FEW = "defaults: [/dataset/synthetic@_here_, _self_]\nrows: 500\n"
SWEEP = f"""{HEAD}defaults: [override /dataset: mine/few, override /attack: norm, override /hydra/job_logging: disabled]
epochs: 1
log_every: ${{difference:8,${{epochs}}}}
hydra: {{mode: MULTIRUN, sweeper: {{params: {{seed: '0,1'}}}}}}
"""


@pytest.mark.slow
def test_an_experiment_of_others_still_sets_options_and_sweeps(tmp_path):
    """Also one of its own, with choices, references and resolvers; and the folder is named after what was chosen."""
    write(tmp_path / "shared" / "dataset" / "mine" / "few.yaml", FEW)
    write(tmp_path / "shared" / "experiment" / "x.yaml", SWEEP)
    result = command("train", "--config-dir=shared", "experiment=x", *SMALL[1:], cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    names = sorted(folder.name for folder in finished_folders(tmp_path))
    assert [name.rpartition("_")[0] for name in names] == ["mine_few_none_norm_seed0", "mine_few_none_norm_seed1"]
