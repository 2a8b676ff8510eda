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
        heavy = [name for name in HEAVY if name in loaded and not name.startswith(but or ("-",))]
        assert not heavy, f"{words}: {heavy}"
        assert (tmp_path / str(number) / "summary.json").exists()
