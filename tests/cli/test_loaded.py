"""What commands load: each that trains nothing has a list of packages of others, and answers in tenths of a second."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm_command import OPEN, SMALL, command

COMPOSED = {"hydra", "omegaconf", "antlr4", "yaml", "packaging", "hydra_plugins"}
"""What reads and composes configs; the plug-ins of Hydra that are installed are among it."""
OPTIONAL = {"attr", "attrs", "typing_extensions"}
"""OmegaConf looks for attrs; typing_extensions has types of newer Pythons."""
CHECKED = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}
"""What checks the options of components, loggers and launchers."""
REPORT = {"numpy", "PIL", "jinja2", "markupsafe", "yaml", "scipy"}

_LISTED = """
import json, runpy, sys
sys.argv[0] = "vflbench"
try:
    runpy.run_module("vflbench", run_name="__main__", alter_sys=False)
finally:
    places = {name.partition(".")[0]: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    others = sorted(name for name, place in places.items() if "-packages" in place and name not in sys.stdlib_module_names)
    print("loaded", json.dumps(others), file=sys.__stderr__)
"""


def loaded(*arguments: str, cwd: Path, code: int = 0, **environment: str) -> set[str]:
    """The top-level packages of others that `vflbench ARGUMENTS` has loaded when it ends."""
    environment = {k: v for k, v in OPEN.items() if not k.startswith("COVERAGE_")} | environment  # coverage is a package too
    done = subprocess.run(
        [sys.executable, "-c", _LISTED, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    *_, line = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
    return {name for name in json.loads(line.removeprefix("loaded ")) if not name.startswith(("_", "vflbench"))}


def test_a_list_loads_what_reads_yaml(tmp_path):
    assert loaded("list", cwd=tmp_path) <= {"yaml"}


@pytest.mark.slow
def test_a_mistyped_key_loads_what_composes(tmp_path):
    assert loaded("train", "attack.kmeans.map=ratios", cwd=tmp_path, code=1) <= COMPOSED | OPTIONAL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "packages"),
    [
        (["--help"], 0, set()),
        (["--version"], 0, set()),
        (["trian"], 1, set()),
        (["list", "nothing"], 1, {"yaml"}),
        (["list", "--help"], 0, {"yaml"}),
        (["report", "--help"], 0, {"yaml"}),
        (["parties", "--help"], 0, set()),
        (["reproduce", "--help"], 0, {"yaml"}),
        (["reproduce", "nothing"], 1, {"yaml"}),
        (["reproduce", "asynchronous_range", "--help"], 0, {"yaml"}),
        (["reproduce", "no_defense", "--help"], 0, {"yaml"}),
        (["prepare", "--help"], 0, COMPOSED),
        (["train", "--help"], 0, COMPOSED),
        (["train", "--hydra-help"], 0, COMPOSED),
        (["train", "--cfg", "job"], 0, COMPOSED),
        (["train", "attack=nrom"], 1, COMPOSED),
        (["train", "experiment=wrong"], 1, COMPOSED),
        (["train", "-m", "attack=nrom"], 1, COMPOSED),
        (["train", "+key=3"], 1, COMPOSED | CHECKED),
        (["train", "epochs=abc"], 1, COMPOSED | CHECKED),
        (["audit", "--help"], 0, COMPOSED),
        (["report", "nowhere"], 1, REPORT),
    ],
)
def test_help_and_mistakes_load_nothing_that_trains(words, code, packages, tmp_path):
    assert loaded(*words, cwd=tmp_path, code=code) <= packages | OPTIONAL


@pytest.mark.slow
@pytest.mark.parametrize("line", ["vflbench train ", "vflbench train attack=n", "vflbench audit recording attack="])
def test_completion_loads_what_composes(line, tmp_path):
    assert loaded("-sc", "query=bash", cwd=tmp_path, COMP_LINE=line) <= COMPOSED | OPTIONAL


@pytest.mark.slow
def test_finished_runs_are_shown_and_reported_without_torch(tmp_path):
    sweep = ("train", "-m", *SMALL, "epochs=1", "seed=0,1")
    assert command(*sweep, cwd=tmp_path).returncode == 0
    assert loaded("train", *SMALL, "epochs=1", "seed=1", cwd=tmp_path) <= COMPOSED | OPTIONAL | {"filelock"}
    assert loaded(*sweep, cwd=tmp_path) <= COMPOSED | OPTIONAL | CHECKED | {"filelock", "tqdm"}
    assert loaded("report", "outputs", "--export", "r.jsonl", cwd=tmp_path) <= REPORT | OPTIONAL
    assert not loaded("report", "outputs", cwd=tmp_path) & {"torch", "pydantic", "sklearn", "pyarrow", "hydra"}


@pytest.mark.slow
def test_options_that_change_no_result_are_checked_of_a_finished_run_too(tmp_path):
    words = ("train", *SMALL, "epochs=1")
    first = command(*words, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    again = command(*words, "log_every=7", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "finished before" in again.stdout
    for wrong in ("log_every=0", "checkpoint=never", "logger.csv=3"):
        refused = command(*words, wrong, cwd=tmp_path)
        assert refused.returncode == 1, wrong
        assert wrong.partition("=")[0] in refused.stderr, refused.stderr
