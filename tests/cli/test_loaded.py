"""What commands load: those that train nothing neither torch nor what draws, and runs nothing heavy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.warm_command import OPEN, SMALL, command

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


ROOT = Path(__file__).resolve().parents[2]
# What takes long to import, or much memory, and a run of ours does without.
UNUSED = (
    *("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy", "mpmath", "scipy.stats"),
    *("altair", "vl_convert", "pandas", "sklearn", "flint", "pulp", "ortools", "networkx", "tensorboard", "mlflow"),
)

RUNS = (  # of those that are later, what an attack or a data set needs
    (["optimizer=sgd", "optimizer.momentum=0.9", "defense=marvell"], ()),
    ([], ()),
    (["optimizer=lazy_adam", "dataset.parties=2", "optimizer.kernel=torch"], ()),
    (["dataset=digits", "model=cnn", "attack=norm"], ("sklearn", "scipy", "pandas")),  # scikit-learn's digits
)
CODE = """
import json, sys
from vflbench.cli.main import main
loaded = []
for number, words in enumerate(json.loads(sys.argv.pop())):
    sys.argv[1:] = ["train", "epochs=1", "batch_size=100", f"hydra.run.dir={number}", *words]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, words
    loaded.append(sorted(sys.modules))
print(json.dumps(loaded), file=open("loaded.json", "w"))
"""


@pytest.mark.slow
def test_a_run_loads_nothing_heavy(tmp_path):
    runs = [[*([] if "dataset=digits" in words else ["dataset.rows=400"]), *words] for words, _ in RUNS]
    command = [sys.executable, "-c", CODE, json.dumps(runs)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for number, (loaded, (words, but)) in enumerate(
        zip(json.loads((tmp_path / "loaded.json").read_text()), RUNS, strict=True)
    ):
        assert {"torch", "vflbench.run.experiment"} <= set(loaded)
        heavy = [name for name in UNUSED if name in loaded and not name.startswith(but or ("-",))]
        assert not heavy, f"{words}: {heavy}"
        assert (tmp_path / str(number) / "summary.json").exists()
