import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What takes long to import, or much memory, and a run of ours does without.
HEAVY = (
    *("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy", "mpmath"),
    *(
        "scipy.stats",
        "altair",
        "vl_convert",
        "pandas",
        "sklearn",
        "flint",
        "pulp",
        "ortools",
        "networkx",
        "tensorboard",
        "mlflow",
    ),
)

RUNS = {
    "the defaults": ([], ()),
    "pictures": (["dataset=digits", "model=cnn", "attack=norm"], ("sklearn", "scipy", "pandas")),  # scikit-learn's digits
    "lazy_adam, two parties": (["optimizer=lazy_adam", "dataset.parties=2", "optimizer.kernel=torch"], ()),
    "sgd with a defense": (["optimizer=sgd", "optimizer.momentum=0.9", "defense=marvell"], ()),
    "networks of an attack and a defense": (["attack=exploit", "defense=mid"], ()),
    "clusters": (["dataset=digits"], ("sklearn", "scipy", "pandas", "pyarrow", "numpy")),
}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "but"), RUNS.values(), ids=RUNS)
def test_a_run_loads_nothing_heavy(words, but, tmp_path):
    """but: what an attack needs."""
    code = (
        "import atexit, json, sys\n"
        "from vflbench.cli.main import main\n"
        "atexit.register(lambda: open('loaded.json', 'w').write(json.dumps(sorted(sys.modules))))\n"
        "main()\n"
    )
    data = [] if any(word.startswith("dataset=") for word in words) else ["dataset.rows=400"]
    command = [sys.executable, "-c", code, "train", *data, "epochs=1", "batch_size=100", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = json.loads((tmp_path / "loaded.json").read_text())
    assert {"torch", "vflbench.run.experiment"} <= set(loaded)
    heavy = [name for name in HEAVY if name in loaded and not name.startswith(but or ("-",))]
    assert not heavy, f"{words}: {heavy}"
    assert [*tmp_path.rglob("summary.json")]
