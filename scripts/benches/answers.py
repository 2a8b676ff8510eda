"""Commands that train nothing: CPU seconds from the first to the last line, beside the import of torch alone.

    python scripts/bench.py answers --rounds 7
    python scripts/bench.py answers --beside ../older     # the same commands in another checkout

Each command runs in a process of its own in a folder with one finished run of 2,000 rows, its recording of 112 batches, and
the scores of two attacks on 12 layers. There is one thread, and modules are already compiled (.pyc). The limit is
`python -c pass`. The commands take turns for --rounds rounds, and the quietest round counts.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benches.lines import BENCH, Cost, Line, in_turns, measured

ROOT = BENCH.parents[1]
SMALL = ("dataset.rows=2000", "batch_size=32", "attack=[norm,cosine]", "audit.batches=5")
PREPARED = ("dataset=csv", "dataset.path=clicks.csv", "dataset.label=click")

COMMANDS: Mapping[str, tuple[Sequence[str], int, float]] = {
    "--help": (("--help",), 0, 0.5),
    "list": (("list",), 0, 0.5),
    "list attack": (("list", "attack"), 0, 0.5),
    "train --help": (("train", "--help"), 0, 0.5),
    "a mistyped key": (("train", "optimizer.lrr=0.1"), 1, 0.5),
    "a mistyped choice": (("train", "defense=marvel"), 1, 0.5),
    "audit --describe": (("audit", "run/recording", "--describe"), 0, 0.5),
    "audit attack=norm --describe": (("audit", "run/recording", "attack=norm", "--describe"), 0, 0.5),
    "grade": (("grade", "scores", "labels.parquet", "--out", "graded", "--overwrite"), 0, 0.5),
    "report": (("report", "run"), 0, 0.5),
    "train of a finished run": (("train", *SMALL, "epochs=1", "record=messages", "hydra.run.dir=run"), 0, 0.5),
    "prepare of prepared data": (("prepare", *PREPARED), 0, 0.4),
}
"""What is asked -> words, exit code, and the goal in CPU seconds."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout, whose answers are measured in the same turns")
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS), help="these commands")


def bench(options: argparse.Namespace) -> Iterator[Line]:
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as place:
        places = {ROOT: Path(place) / "ours"} | ({options.beside: Path(place) / "other"} if options.beside else {})
        for checkout, folder in places.items():
            prepare(checkout, folder)
        calls = {"pass": partial(measured, [sys.executable, "-c", "pass"])}
        calls["torch"] = partial(measured, [sys.executable, "-c", "import torch"], environment={"OMP_NUM_THREADS": "1"})
        for number, (checkout, folder) in enumerate(places.items()):
            for what in options.only:
                words, code, _ = COMMANDS[what]
                calls[f"{number} {what}"] = partial(vflbench, checkout, folder, words, code)
        costs = in_turns(calls, rounds)
    least = {"limit": "python -c pass", "least": costs["pass"]}
    for what in options.only:
        name = f"the other checkout: {what}" if options.beside else "import torch"
        theirs = costs.get(f"1 {what}", costs["torch"])
        yield Line(what, costs[f"0 {what}"], name, theirs, **least, cpu=COMMANDS[what][2])


def vflbench(checkout: Path, folder: Path, words: Sequence[str], code: int = 0) -> Cost:
    """A command of the checkout, in that folder."""
    environment = {"PYTHONPATH": os.fspath(checkout.resolve()), "OMP_NUM_THREADS": "1", "VFLBENCH_CACHE": str(folder / "c")}
    return measured([sys.executable, "-P", "-m", "vflbench", *words], folder=folder, environment=environment, code=code)


def prepare(checkout: Path, folder: Path) -> None:
    """A finished run with its recording, scores of it, labels, and a prepared table."""
    folder.mkdir()
    rows = "".join(f"{i % 2},{i % 7 / 7},{'abc'[i % 3]}\n" for i in range(400))
    (folder / "clicks.csv").write_text(f"click,price,shop\n{rows}")
    for words in (
        COMMANDS["train of a finished run"][0],
        ("audit", "run/recording", "attack=[norm,spectral]", "--scores-only", "scores"),
        ("prepare", *PREPARED),
    ):
        vflbench(checkout, folder, words)
    (folder / "labels.parquet").write_bytes((folder / "run" / "recording" / "labels.parquet").read_bytes())
