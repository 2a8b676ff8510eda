"""What `vflbench train` costs beside its own training and audit: start-up, data, results, pictures.

    OMP_NUM_THREADS=1 python scripts/bench.py startup

Each run of `vflbench train` is a process of its own. The runs take turns with the limit, `python -c "import torch"`, and
with one step of torch's own Adam, for which torch loads its compiler. The cost of the start-up is the CPU seconds of a run
minus the CPU seconds of its epochs and their audit. Another run counts the latter. It is the same, except that it reads the
CPU clock twice in each epoch. Costs are those of the quietest of several rounds. Caches of bytecode, and of what numba
compiled, are warm.
"""

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches.lines import Cost, Line, command, in_turns, measured

_TORCH = "import torch"
_ADAM = "import torch; p = torch.zeros(9, requires_grad=True); p.sum().backward(); torch.optim.Adam([p]).step()"
_RUNS = {
    "the defaults": (),
    "lazy_adam": ("optimizer=lazy_adam",),
    "defense=marvell": ("defense=marvell",),
    "dataset=digits, attack=kmeans": ("dataset=digits", "attack=kmeans"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=20_000, help="of the synthetic data")
    parser.add_argument("--run", choices=list(_RUNS), action="append", help="this one alone; may be given again")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    runs = {name: _RUNS[name] for name in options.run or _RUNS}
    if options.quick:
        options.rows, options.rounds, runs = 1000, 1, {"the defaults": ()}
    for name, words in runs.items():
        rows = () if any(word.startswith("dataset=") for word in words) else (f"dataset.rows={options.rows}",)
        yield from _lines(name, [*rows, "epochs=1", *words], options.rounds)


def _lines(name: str, words: list[str], rounds: int) -> Iterator[Line]:
    own: list[float] = []

    def train() -> Cost:
        with tempfile.TemporaryDirectory() as folder:
            return measured([sys.executable, "-m", "vflbench", "train", *words], folder=Path(folder))

    def counted() -> Cost:
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder, "seconds.json")
            cost = measured(command("startup", "--worker", str(kept), "--", *words), folder=Path(folder))
            own.append(json.loads(kept.read_text()))
            return cost

    calls = {"train": train, "counted": counted}
    calls |= {
        each: lambda code=code: measured([sys.executable, "-c", code]) for each, code in (("torch", _TORCH), ("adam", _ADAM))
    }
    costs = in_turns(calls, rounds)
    whole, start = costs["train"], costs["train"].cpu - min(own)
    limit = {"limit": 'python -c "import torch"', "least": costs["torch"]}
    beside = {"alternative": "torch's Adam, one step", "theirs": costs["adam"]}
    yield Line(f"start-up, {name}", Cost(math.nan, start, whole.memory), **beside, **limit, within=1.5)
    yield Line(f"whole run, {name}", whole, note=f"training and audit: {min(own):.2f} CPU s")


def work(options: argparse.Namespace) -> None:
    """`vflbench train` in this process, whose epochs and audits are counted."""
    from vflbench.cli import main
    from vflbench.run import experiment

    train_epoch, spent = experiment.train_epoch, []

    def counting(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        result = train_epoch(*arguments, **named)
        spent.append(time.process_time() - began)
        return result

    experiment.train_epoch = counting
    sys.argv = ["vflbench", "train", *options.words]
    try:
        main.main()
    finally:
        options.worker.write_text(json.dumps(sum(spent)))
        shutil.rmtree("outputs", ignore_errors=True)
