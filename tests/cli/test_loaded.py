"""Commands that train nothing answer in tenths of a second, as they load neither torch nor what draws."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm_command import OPEN, SMALL, command

HEAVY = {"torch", "pandas", "altair", "sklearn", "pyarrow"}

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


def test_a_list_loads_nothing_that_trains_or_draws(tmp_path):
    assert not loaded("list", cwd=tmp_path) & HEAVY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["train", "--cfg", "job"], 0),
        (["train", "attack=nrom"], 1),
    ],
)
def test_help_and_mistakes_load_nothing_that_trains_or_draws(words, code, tmp_path):
    assert not loaded(*words, cwd=tmp_path, code=code) & HEAVY


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
