"""What it costs that parties live in processes of their own: seconds of a training step, engine=nvflare beside local.

    python scripts/bench.py engine --rows 8192 --parties 1

Whole runs of two epochs with the default network, attack=norm and no probe, in turns; a step costs the seconds of training
of the quicker epoch, as metrics.csv has them, divided by its steps. The limit: all parties in one process.
"""

import argparse
import csv
import itertools
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benches.lines import Cost, Line, in_turns, measured

STEPS = 8


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 8192], help="of a batch")
    parser.add_argument("--parties", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)


def bench(given: argparse.Namespace) -> Iterator[Line]:
    if given.quick:
        given.rows, given.parties, given.rounds = [64], [1], 1
    for rows, parties in itertools.product(given.rows, given.parties):
        costs = in_turns({engine: partial(step, engine, rows, parties) for engine in ("local", "nvflare")}, given.rounds)
        what = f"a step of {rows:,} rows, {parties} parties"
        yield Line(what, costs["nvflare"], limit="engine=local", least=costs["local"], by_clock=True)


def step(engine: str, rows: int, parties: int) -> Cost:
    """Of a run with this engine."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"engine={engine}", f"dataset.rows={rows * STEPS * 5 // 4}", f"batch_size={rows}", "epochs=2"]
        words += [f"dataset.parties={parties}", "attack=norm", "audit.probe=false", "audit.batches=1"]
        words.append(f"hydra.run.dir={folder}/run")
        measured([sys.executable, "-m", "vflbench", "train", *words])
        with (Path(folder) / "run" / "metrics.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if (row["metric"], row["split"]) == ("seconds", "train")]
    return Cost(min(float(row["value"]) for row in rows) / STEPS)
