"""A sweep of small runs in forks of a warm process, beside Hydra's launchers. By default 24 runs: 12 seeds, 2 defenses.

    python scripts/bench.py sweep --seeds 12 --rows 10000

All are sweeps of this vflbench with one thread for each run: `fork` with as many runs at once as there are cores; `fork`
with one run at a time; and two alternatives. `basic` computes one run after the other in one process. `joblib` is measured
if it is installed; no system call returns the CPU seconds of its workers. The goal is about elapsed time, so it means
something on idle cores only. The limit is training and auditing alone: the `seconds` that a run reports, but measured in
CPU seconds. The last line is the cost of a run above this limit.
"""

import argparse
import importlib
import importlib.util
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benches.lines import Cost, Line, command, in_turns, measured
from vflbench.cli.main import main

SMALL = ("epochs=1", "defense=none,max_norm")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=12, help="each with two defenses")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--worker", metavar="FOLDER", help="train there, with CPU seconds in place of the clock")
    parser.add_argument("overrides", nargs="*", help="of that training")


def bench(options: argparse.Namespace) -> Iterator[Line]:
    words = [*SMALL, f"dataset.rows={options.rows}"]
    if options.quick:
        options.seeds, options.rounds = 1, 1
        words = [*SMALL, "dataset.rows=500", "model.width=8", "audit.batches=1", "audit.probe=false", "attack=norm"]
    words.append(f"seed={','.join(map(str, range(options.seeds)))}")
    runs = 2 * options.seeds
    ways = {
        "fork": ["hydra/launcher=fork"],
        "fork, one at a time": ["hydra/launcher=fork", "hydra.launcher.n_jobs=1"],
        "basic": ["hydra/launcher=basic"],
    }
    if options.quick:
        del ways["fork, one at a time"]
    elif importlib.util.find_spec("hydra_plugins") and importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher"):
        ways["joblib"] = ["hydra/launcher=joblib"]

    def sweep(launcher: list[str]) -> Cost:
        with tempfile.TemporaryDirectory() as folder:
            called = [sys.executable, "-m", "vflbench", "train", "-m", *words, *launcher]
            cost = measured(called, folder=Path(folder), environment={"OMP_NUM_THREADS": "1"})
            if len(list(Path(folder).rglob("summary.json"))) != runs:
                raise RuntimeError(f"{launcher[0]}: not every run has its pictures")
            return cost

    def training() -> Cost:
        with tempfile.TemporaryDirectory() as folder:
            measured(command("sweep", "--worker", folder, *words), environment={"OMP_NUM_THREADS": "1"})
            return Cost(math.nan, seconds_in(Path(folder)))

    calls = {name: partial(sweep, launcher) for name, launcher in ways.items()} | {"training": training}
    costs = in_turns(calls, options.rounds)
    ours, least = costs["fork"], costs["training"]
    limit = {"limit": "training and audits alone", "least": least}
    what = f"{runs} runs, {os.cpu_count()} at once"
    yield Line(what, ours, "one after the other (basic)", costs["basic"], **limit, faster=1.67, by_clock=True)
    if alone := costs.get("fork, one at a time"):
        yield Line(what, ours, "fork, one at a time", alone, **limit, faster=1.67, by_clock=True)
    if "joblib" in costs:
        yield Line(what, ours, "joblib", Cost(costs["joblib"].wall), by_clock=True)
    above = (ours.cpu - least.cpu) / runs
    yield Line("a run, above its training and audits", Cost(math.nan, above), cpu=0.9, note="the sweep's start is in it")


def work(options: argparse.Namespace) -> None:
    """The same runs in this process, with the CPU seconds of its threads in their figures `seconds`."""
    os.chdir(options.worker)
    for module in ("vflbench.run.experiment", "vflbench.run.evaluation"):
        setattr(importlib.import_module(module), "perf_counter", time.process_time)  # noqa: B010
    sys.argv = ["vflbench", "train", "-m", *options.overrides, "hydra/launcher=basic"]
    main()


def seconds_in(folder: Path) -> float:
    """What the runs' figures `seconds` sum up to."""
    lines = [line.split(",") for file in folder.rglob("metrics.csv") for line in file.read_text().splitlines()]
    return sum(float(cells[7]) for cells in lines if cells[6] == "seconds")
