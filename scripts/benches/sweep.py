"""A sweep of small runs beside as many commands, one after the other, and beside Hydra's joblib launcher.

    python scripts/bench.py sweep --seeds 4 --rows 4000

By default 8 runs: 4 seeds, each with two defenses, one thread a run. The sweep computes as many at once as there are cores.
The goal is about elapsed time, so it means something on idle cores only. joblib's workers don't say what CPU they used.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benches.lines import Cost, Line, in_turns, measured

DEFENSES = ("none", "max_norm")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=4, help="each with two defenses")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=1)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.seeds, options.rows, options.rounds = 1, 500, 1
    seeds = [str(seed) for seed in range(options.seeds)]
    small = ["epochs=1", f"dataset.rows={options.rows}"]
    whole = [["-m", *small, f"seed={','.join(seeds)}", f"defense={','.join(DEFENSES)}"]]
    single = [[*small, f"seed={seed}", f"defense={defense}"] for seed in seeds for defense in DEFENSES]
    calls = {"sweep": partial(trained, whole, len(single)), "commands": partial(trained, single, len(single))}
    if not options.quick:
        calls["joblib"] = partial(trained, [[*whole[0], "hydra/launcher=joblib"]], len(single))
    costs = in_turns(calls, options.rounds)
    what = f"{len(single)} runs"
    yield Line(what, costs["sweep"], f"{what}, a command each", costs["commands"], faster=1 / 0.55, by_clock=True)
    if "joblib" in costs:
        yield Line(what, costs["sweep"], "joblib", Cost(costs["joblib"].wall), by_clock=True)


def trained(commands: list[list[str]], runs: int) -> Cost:
    """All the commands, in an empty folder. Raises RuntimeError if a run isn't there afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        costs = [
            measured(
                [sys.executable, "-m", "vflbench", "train", *words],
                folder=Path(folder),
                environment={"OMP_NUM_THREADS": "1"},
            )
            for words in commands
        ]
        if len(list(Path(folder).rglob("summary.json"))) != runs:
            raise RuntimeError("not every run is finished")
    return Cost(sum(cost.wall for cost in costs), sum(cost.cpu for cost in costs), max(cost.memory for cost in costs))
