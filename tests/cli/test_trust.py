"""What others wrote runs no code: configs, modules beside them or in the working folder, and words that name code.

Each attack would write the file MARKER. It ends in one paragraph and exit code 1, or is left without effect.
"""

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.warm_command import OPEN, SMALL, command

from vflbench.results.folder import finished_folders

MARKER = "marker"
CALL = {"_target_": "subprocess.run", "args": ["touch", MARKER]}
EVIL = f"open({MARKER!r}, 'w')\n"
LOGGED = {"version": 1, "formatters": {"x": {"()": "evil.Formatter"}}}
MLFLOW = {"_target_": "vflbench.results.loggers.Mlflow", "uri": "http://127.0.0.1:9"}


def swept(**params):
    return {"hydra": {"mode": "MULTIRUN", "sweeper": {"params": params}}}


EXPERIMENTS = {
    "a callback": ({"hydra": {"callbacks": {"x": CALL}}}, "hydra.callbacks"),
    "a launcher": ({"hydra": {"launcher": CALL}}, "hydra.launcher"),
    "a sweeper": ({"hydra": {"sweeper": CALL, "mode": "MULTIRUN"}}, "hydra.sweeper"),
    "a factory of logs": ({"hydra": {"job_logging": LOGGED}}, "hydra.job_logging"),
    "the environment": ({"hydra": {"job": {"env_set": {"LD_PRELOAD": "evil.so"}}}}, "hydra.job"),
    "another folder for results": ({"hydra": {"run": {"dir": MARKER}}}, "hydra.run"),
    "all of Hydra's options by reference": ({"mine": {"callbacks": {"x": CALL}}, "hydra": "${mine}"}, "hydra"),
    "a callback as what is swept": (swept(**{"+hydra.callbacks.x": "{_target_: evil.X}"}), "hydra.callbacks"),
    "a callback among options that go together": (
        {"hydra": {"mode": "MULTIRUN", "sweeper": {"runs": [["+hydra.callbacks.x={_target_: evil.X}"]]}}},
        "hydra.callbacks",
    ),
    "a billion runs": (swept(seed="range(0,1000000000)"), "at most 10,000 runs"),
    "a secret of the environment": ({"dataset": {"path": "${oc.env:HOME}"}}, "oc.env"),
    "a secret in what is swept, escaped": (swept(name="$\\{oc.env\\:HOME\\}"), "oc.env"),
    "results replaced": ({"overwrite": True}, "overwrite=True"),
    "itself": ({"defaults": ["x"]}, "circle"),
    "a file outside": ({"defaults": [{"/dataset": "../../other"}]}, "it leads out of its folder"),
    "another's server": ({"logger": {"mlflow": MLFLOW}}, "logger.mlflow.uri"),
    "a module in the working folder": ({"defense": {"x": {"_target_": "evil.Defense"}}}, "defense.x._target_=evil.Defense"),
    "a module beside the config": ({"attack": {"x": {"_target_": "beside.Attack"}}}, "attack.x._target_=beside.Attack"),
    "a function of the standard library": ({"dataset": CALL}, "dataset._target_=subprocess.run"),
    "a module through one of ours": (
        {"defense": {"x": {"_target_": "vflbench.cli.config:importlib.util.find_spec"}}},
        "defense.x._target_",
    ),
    "a NUL in a name": ({"defense": {"x": {"_target_": "evil\0.X"}}}, "there is no such class"),
}
"""Experiments in a folder given as --config-dir, and what the paragraph says."""

WORDS = {
    "a pickle": (["--experimental-rerun=job.pickle"], "--experimental-rerun: there is no such flag"),
    "an import that prints": (["model=torch", "model.bottom=this:that", "model.top=this:that"], "model.bottom=this:that"),
    "a name that leads elsewhere": ([f"name=../{MARKER}"], f"name=../{MARKER}: "),
    "a sweep over such names": (["-m", f"name=a,../{MARKER}"], "name="),
    "a config outside its folder": (["--config-dir=shared", "--config-name=../other"], "it leads out of the folder"),
    "a secret": (["name=${oc.env:HOME}"], "oc.env"),
}
"""Words of a command line, and what the paragraph says."""


QUICK = {
    "a callback",
    "a module in the working folder",
    "a callback as what is swept",
    "a secret of the environment",
    "a NUL in a name",
    "a pickle",
    "a search path by a merge key",
    "results replaced",
    "a bomb",
}


def cases(of):
    """Each takes most of a second: all but some are slow."""
    return [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in of]


class Pickled:
    def __reduce__(self):
        return open, (MARKER, "w")


@pytest.fixture
def hostile(tmp_path):
    """A working folder with modules that would write the marker when they are imported, and a folder `shared` beside."""
    names = ("evil", "json", "torch", "yaml", "hydra", "numpy", "threading", "joblib", "sitecustomize", "usercustomize")
    for name in names:
        (tmp_path / f"{name}.py").write_text(EVIL)
    for package in ("vflbench/attacks", "hydra_plugins/evil_launcher"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text(EVIL)
    (tmp_path / "hydra_plugins" / "evil_launcher" / "launcher.py").write_text(EVIL)
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text(EVIL)
    for folder in ("shared", "shared/experiment"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside.py").write_text(EVIL)
    (tmp_path / "other.yaml").write_text("{defaults: [train, _self_]}\n")
    (tmp_path / "job.pickle").write_bytes(pickle.dumps(Pickled()))
    (tmp_path / ".env").write_text("LD_PRELOAD=evil.so\n")
    return tmp_path


def refused(result, cwd, expected, case):
    """One paragraph, exit code 1, and nothing done."""
    assert [*cwd.rglob(MARKER), *cwd.parent.glob(MARKER)] == [], f"{case}: it was done\n{result.stderr}"
    assert result.returncode == 1, f"{case}: {result.stdout}{result.stderr}"
    assert result.stdout == "", case
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, f"{case}: {result.stderr[:3000]}"
    assert len(lines[0]) < 1500, case
    assert lines[0].isprintable(), case
    assert expected in lines[0], f"{case}: {lines[0]}"
    assert not finished_folders(cwd) if (cwd / "outputs").exists() else True, case


@pytest.mark.parametrize("case", cases(EXPERIMENTS))
def test_an_experiment_of_others_runs_nothing(hostile, case):
    config, expected = EXPERIMENTS[case]
    text = "# @package _global_\n" + yaml.safe_dump(config, allow_unicode=True)
    (hostile / "shared" / "experiment" / "x.yaml").write_text(text)
    result = command("train", "--config-dir=shared", "experiment=x", *SMALL, "epochs=1", cwd=hostile)
    refused(result, hostile, expected, case)


@pytest.mark.parametrize("case", cases(WORDS))
def test_words_that_name_code_are_refused(hostile, case):
    words, expected = WORDS[case]
    refused(command("train", *words, "epochs=1", cwd=hostile), hostile, expected, case)


FILES = {
    "a callback in the config of a run": (
        "config.yaml",
        f"defaults: [train, _self_]\nhydra: {{callbacks: {{x: {CALL}}}}}\n",
        "--config-name=config",
        "hydra.callbacks",
    ),
    "a search path": (
        "config.yaml",
        "defaults: [train, _self_]\nhydra: {searchpath: ['pkg://evil']}\n",
        "--config-name=config",
        "hydra.searchpath",
    ),
    "a config that is placed among callbacks": (
        "mine/x.yaml",
        f"# @package hydra.callbacks\nx: {CALL}\n",
        "+mine=x",
        "hydra.callbacks",
    ),
    "a launcher of its own": ("hydra/launcher/mine.yaml", f"{CALL}\n", "hydra/launcher=mine", "under hydra/"),
    "a call in YAML": (
        "experiment/x.yaml",
        f"a: !!python/object/apply:os.system ['touch {MARKER}']\n",
        "experiment=x",
        "python/object",
    ),
    "a bomb": (
        "experiment/x.yaml",
        "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" if i else "a1: &a1 [x]\n" for i in range(9)),
        "experiment=x",
        "too many aliases",
    ),
    "what contains itself": ("experiment/x.yaml", "a: &a [*a]\n", "experiment=x", "Circular"),
    "depth": ("experiment/x.yaml", f"a: {'[' * 40_000}\n", "experiment=x", "nested too deeply"),
    "thousands of defaults": (
        "experiment/x.yaml",
        f"# @package _global_\ndefaults: [{', '.join(f'/attack@p{i}: norm' for i in range(1100))}]\n",
        "experiment=x",
        "more than 100 defaults",
    ),
    "size": ("experiment/x.yaml", f"a: {'x' * 100_000}\n", "experiment=x", "at most 100,000 are read"),
    "a search path by a merge key": (
        "x.yaml",
        "a: &a {hydra: {searchpath: ['pkg://evil']}}\n<<: *a\n",
        "--config-name=x",
        "it merges mappings",
    ),
    "no text": ("experiment/x.yaml", "a: \x01\x02\n", "experiment=x", "unacceptable character"),
}


@pytest.mark.parametrize("case", cases(FILES))
def test_a_file_of_others_is_read_with_bounds(hostile, case):
    name, text, word, expected = FILES[case]
    (hostile / "shared" / name).parent.mkdir(parents=True, exist_ok=True)
    (hostile / "shared" / name).write_text(text)
    refused(command("train", "--config-dir=shared", word, "epochs=1", cwd=hostile), hostile, expected, case)


def started(*words, cwd, **environment):
    """The command in a process of its own. As with its script, Python doesn't look for modules in the working folder."""
    arguments = [sys.executable, "-P", "-m", "vflbench", *words]
    environment = {**OPEN, "DISPLAY": "", **environment}
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def left_alone(result, cwd):
    assert result.returncode == 0, result.stderr
    assert list(cwd.rglob(MARKER)) == [], result.stdout
    return finished_folders(cwd)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_workers_take_nothing_from_the_working_folder(hostile, launcher):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
    words = ("-m", f"hydra/launcher={launcher}", "seed=0,1", "attack=norm", *SMALL, "epochs=1")
    assert len(left_alone(started("train", *words, cwd=hostile), hostile)) == 2


@pytest.mark.slow
def test_relative_entries_of_the_python_path_are_left(hostile):
    for file in hostile.glob("*.py"):  # Python itself has imported some of them before vflbench begins
        if file.stem not in ("torch", "hydra", "numpy", "yaml"):
            file.unlink()
    package = str(Path(__file__).resolve().parents[2])
    result = started("list", "attack", cwd=hostile, PYTHONPATH=f"{package}::/nowhere")
    assert left_alone(result, hostile) == []


@pytest.mark.slow
def test_what_is_listed_and_completed_runs_nothing(hostile):
    folder = hostile / "shared" / "attack"
    folder.mkdir()
    for name, node in {"a": {"_target_": "beside.X"}, "b": CALL, "c": CALL, "d": {"_target_": "this.that"}}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({name: node}))
    (folder / "e.yaml").write_text(f"e: !!python/object/apply:os.system ['touch {MARKER}']\n")
    (folder / "f.yaml").write_text("f: &f [*f]\n")
    os.mkfifo(folder / "g.yaml")
    listed = command("list", "attack", "--config-dir", "shared", cwd=hostile)
    assert left_alone(listed, hostile) == []
    assert (
        " ".join(listed.stdout.split()).count("can't be used: ") == 3
    )  # e, f and g; classes are looked up where a run begins
    assert "spectral" in listed.stdout
    line = "vflbench train hydra.searchpath=[pkg://evil] attack=s"
    choices = ["simulator", "spectral", "spectral_clustering", "strongest"]
    completed = command("-sc", "query=bash", cwd=hostile, COMP_LINE=line)
    assert completed.stdout.split() in ([], [f"attack={name}" for name in choices])
    assert list(hostile.rglob(MARKER)) == []
    for words in (["audit", "shared", "+attack.x={_target_: evil.X}"], ["prepare", "dataset._target_=evil.X"]):
        result = command(*words, cwd=hostile)
        assert result.returncode == 1
        assert len(result.stderr.strip().splitlines()) == 1
        assert list(hostile.rglob(MARKER)) == []


@pytest.mark.slow
def test_the_function_train_has_the_same_boundary(hostile, monkeypatch):
    from vflbench import UserError, train

    monkeypatch.chdir(hostile)
    for word in ("+attack.x={_target_: evil.X}", f"name=../{MARKER}"):
        with pytest.raises(UserError, match=word.lstrip("+").split("=")[0]):
            train(word, *SMALL)
    assert list(hostile.rglob(MARKER)) == []


@pytest.mark.slow
def test_an_experiment_of_others_still_sets_options_and_sweeps(tmp_path):
    """Also one of its own, with choices, references and resolvers; and the folder is named after what was chosen."""
    (tmp_path / "shared" / "experiment").mkdir(parents=True)
    (tmp_path / "shared" / "dataset" / "mine").mkdir(parents=True)
    (tmp_path / "shared" / "dataset" / "mine" / "few.yaml").write_text(
        "defaults: [/dataset/synthetic@_here_, _self_]\nrows: 500\n"
    )
    config = {
        "defaults": [
            {"override /dataset": "mine/few"},
            {"override /attack": "norm"},
            {"override /hydra/job_logging": "disabled"},
        ],
        "epochs": 1,
        "log_every": "${difference:8,${epochs}}",
        "hydra": {"mode": "MULTIRUN", "sweeper": {"params": {"seed": "0,1"}}},
    }
    (tmp_path / "shared" / "experiment" / "x.yaml").write_text("# @package _global_\n" + yaml.safe_dump(config))
    result = command("train", "--config-dir=shared", "experiment=x", *SMALL[1:], cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    names = sorted(folder.name for folder in finished_folders(tmp_path))
    assert [name.rpartition("_")[0] for name in names] == ["mine_few_none_norm_seed0", "mine_few_none_norm_seed1"]


def test_a_plug_in_is_listed_and_may_import_what_is_installed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "nets.py").write_text("from torch.nn import Identity as Bottom\n")
    (mine / "bent.py").write_text("from vflbench.defenses.max_norm import MaxNorm\n\n\nclass Bent(MaxNorm):\n    pass\n")
    (mine / "link").symlink_to("/etc/hostname")
    words = ("--plugins=mine", "+defense.bent={_target_: bent.Bent}", "attack=norm", *SMALL, "epochs=1")
    result = command("train", *words, cwd=tmp_path)
    (folder,) = left_alone(result, tmp_path)
    (listed,) = json.loads((folder / "manifest.json").read_text())["plugins"]
    assert listed["folder"] == str(mine)
    assert set(listed["files"]) == {"bent.py", "nets.py", "link"}
    assert listed["files"]["link"] == hashlib.sha256(Path("/etc/hostname").read_bytes()).hexdigest()
    assert listed["files"]["nets.py"] == hashlib.sha256((mine / "nets.py").read_bytes()).hexdigest()
