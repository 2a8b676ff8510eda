"""What commands load: those that train nothing neither torch nor what draws, and runs nothing heavy."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.warm_command import OPEN

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "pandas", "altair", "sklearn", "pyarrow"}

CODE = """
import json, sys
from vflbench.cli.main import main
loaded = []
for number, words in enumerate(json.loads(sys.argv.pop())):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit:
        pass
    loaded.append(sorted(sys.modules))
print(json.dumps(loaded), file=open("loaded.json", "w"))
"""


def loaded(*commands: list[str], cwd: Path) -> list[set[str]]:
    """The modules that are loaded when each of these commands has ended, one after the other in one process."""
    words = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(words, cwd=cwd, env={**OPEN, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [set(names) for names in json.loads((cwd / "loaded.json").read_text())]


def test_a_list_loads_nothing_that_trains_or_draws(tmp_path):
    assert not loaded(["list"], cwd=tmp_path)[0] & HEAVY


@pytest.mark.slow
def test_help_and_mistakes_load_nothing_that_trains_or_draws(tmp_path):
    words = (["--help"], ["train", "--help"], ["train", "--cfg", "job"], ["train", "attack=nrom"])
    assert not loaded(*words, cwd=tmp_path)[-1] & HEAVY


# What takes long to import, or much memory, and a run of ours does without.
UNUSED = (
    *("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy", "mpmath", "scipy.stats"),
    *("altair", "vl_convert", "pandas", "sklearn", "flint", "pulp", "networkx", "tensorboard", "mlflow"),
)

RUNS = (  # of those that are later, what an attack or a data set needs
    (["dataset.rows=400", "optimizer=sgd", "optimizer.momentum=0.9", "defense=marvell"], ()),
    (["dataset.rows=400"], ()),
    (["dataset.rows=400", "optimizer=lazy_adam", "dataset.parties=2", "optimizer.kernel=torch"], ()),
    (["dataset=digits", "model=cnn", "attack=norm"], ("sklearn", "scipy", "pandas")),  # scikit-learn's digits
)


@pytest.mark.slow
def test_a_run_loads_nothing_heavy(tmp_path):
    words = [["train", "epochs=1", "batch_size=100", f"hydra.run.dir={n}", *RUNS[n][0]] for n in range(len(RUNS))]
    for number, (names, (_, but)) in enumerate(zip(loaded(*words, cwd=tmp_path), RUNS, strict=True)):
        assert "vflbench.run.experiment" in names
        assert not [name for name in UNUSED if name in names and not name.startswith(but or ("-",))], words[number]
        assert (tmp_path / str(number) / "summary.json").exists()
