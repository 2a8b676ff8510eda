"""What a small run costs in all, beside `import torch`; the default run outside its rounds; and the strongest attacks on it.

    OMP_NUM_THREADS=1 python scripts/bench.py startup

Each run is a process of its own, of one epoch of 400 rows with one attack and no probe, so that next to nothing but the
start is left of it: imports, composing the config, reading the data, writing the results. What the default run costs
outside its rounds (audits, evaluation and writing, too) is beside 1.5 times `import torch` and a quarter of its rounds;
what all attacks of `attack=strongest` cost, beside its training.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benches.lines import Cost, Line, in_turns, measured, quietest

RUNS = {"the defaults": [], "lazy_adam": ["optimizer=lazy_adam"], "defense=marvell": ["defense=marvell"]}
SMALLEST = ["dataset.rows=400", "epochs=1", "attack=norm", "audit.probe=false"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    runs = {"the defaults": RUNS["the defaults"]} if options.quick else RUNS
    calls = {name: lambda words=words: train(words) for name, words in runs.items()}
    default, strongest = (defaultdict[str, list[Cost]](list) for _ in range(2))  # phase -> of each round
    if not options.quick:
        calls["whole"] = lambda: outside_its_rounds(default)
        calls["strongest"] = lambda: outside_its_rounds(strongest, "attack=strongest")
    calls["torch"] = lambda: measured([sys.executable, "-c", "import torch"])
    costs = in_turns(calls, 1 if options.quick else options.rounds)
    for name in runs:
        limit = {"limit": 'python -c "import torch"', "least": costs["torch"]}
        yield Line(f"the smallest run, {name}", costs[name], **limit, within=2.0 if name == "the defaults" else None)
    if "whole" in costs:
        least = Cost(costs["torch"].wall, 1.5 * costs["torch"].cpu + quietest(default["train"]).cpu / 4)
        limit = {"limit": "1.5 import torch + 1/4 rounds", "least": least}
        yield Line("the default run, outside its rounds", costs["whole"], **limit, within=1.0)
        limit = {"limit": "training", "least": quietest(strongest["train"])}
        yield Line("attack=strongest, all attacks", quietest(strongest["attacks"]), **limit, within=1.0)


def train(words: list[str]) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        return measured([sys.executable, "-m", "vflbench", "train", *SMALLEST, *words], folder=Path(folder))


def outside_its_rounds(phases: dict[str, list[Cost]], *words: str) -> Cost:
    """Of a default run with these options. phases: gets what its rounds and its attacks cost."""
    with tempfile.TemporaryDirectory() as folder:
        whole = measured([sys.executable, "-m", "vflbench", "train", "hydra.run.dir=run", *words], folder=Path(folder))
        spent = json.loads((Path(folder) / "run" / "summary.json").read_text())["cpu_seconds"]
    attacks = sum(seconds for phase, seconds in spent.items() if phase.startswith("audit/"))
    for name, seconds in {"train": spent["train"], "attacks": attacks}.items():
        phases[name].append(Cost(seconds, seconds))
    return Cost(whole.wall - spent["train"], whole.cpu - spent["train"], whole.memory)
