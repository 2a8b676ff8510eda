"""What a small run costs in all, beside `import torch`.

    OMP_NUM_THREADS=1 python scripts/bench.py startup

Each run is a process of its own, of one epoch of 400 rows with one attack and no probe, so that next to nothing but the
start is left of it: imports, composing the config, reading the data, writing the results.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.lines import Cost, Line, in_turns, measured

RUNS = {"the defaults": [], "lazy_adam": ["optimizer=lazy_adam"], "defense=marvell": ["defense=marvell"]}
SMALLEST = ["dataset.rows=400", "epochs=1", "attack=norm", "audit.probe=false"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    runs = {"the defaults": RUNS["the defaults"]} if options.quick else RUNS
    calls = {name: lambda words=words: train(words) for name, words in runs.items()}
    calls["torch"] = lambda: measured([sys.executable, "-c", "import torch"])
    costs = in_turns(calls, 1 if options.quick else options.rounds)
    for name in runs:
        limit = {"limit": 'python -c "import torch"', "least": costs["torch"]}
        yield Line(f"the smallest run, {name}", costs[name], **limit, within=2.0 if name == "the defaults" else None)


def train(words: list[str]) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        return measured([sys.executable, "-m", "vflbench", "train", *SMALLEST, *words], folder=Path(folder))
