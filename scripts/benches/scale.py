"""What an epoch of the full Criteo data costs, estimated from smaller files of its shape: prepare, train, memory, disk.

Files of --rows rows are written (scripts/make_criteo.py: distinct values grow with the rows as in the real data), and
removed again. Each is prepared with an empty cache, and prepared again; then one epoch is trained in batches of 8,192, with
26 embeddings and 8 layers of 128 (model wide_deep, lazy_adam), audited as a run is by default. Every command is a fresh
process, --rounds times; its start, measured on 20,000 rows, is part of its costs.

Seconds and disk at 45,840,617 rows are those of a line through all runs, by rows; memory is by distinct values, of which the
full data has 33,762,577. The error beside them is the half-width of the 95 % prediction interval of that line: how far one
run would be off if the line goes on as it begins. How well it does is measured as well: the line through the smaller half of
the sizes, held against the largest one.

It takes 1 KB of disk a row of the largest size, 5 GB at full size, in --folder, and some 15 minutes of two cores.
"""

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.lines import BENCH, Cost, Line, measured, quietest

FULL_ROWS = 45_840_617
FULL_IDS = 33_762_577
TINY_ROWS = 20_000
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % of Student's t, by degrees of freedom from 1 on."""

TRAIN = (
    *("dataset.parties=1", "model=wide_deep", "optimizer=lazy_adam", "attack=norm", "epochs=1", "batch_size=8192"),
    *("overwrite=true", "checkpoint=none"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--rows", type=numbers, metavar="ROWS,...", help="default: 1, 2, 3, 4 and 5 million")
    parser.add_argument("--rounds", type=int, help="default: 2")
    parser.add_argument("--folder", type=Path, help="for files, caches and runs (default: the system's for temporary ones)")


@dataclass(frozen=True)
class Point:
    """One run on one file. disk: bytes of the prepared table."""

    rows: int
    ids: int
    cost: Cost
    disk: float = math.nan


@dataclass(frozen=True)
class Fit:
    """The least-squares line y = a + b x through points, and its 95 % prediction interval at another x."""

    xs: Sequence[float]
    ys: Sequence[float]

    def __call__(self, x: float) -> tuple[float, float]:
        """Estimate and half-width; nan for the latter where two points make the line."""
        slope, intercept = statistics.linear_regression(self.xs, self.ys)
        degrees = len(self.xs) - 2
        if degrees < 1:
            return intercept + slope * x, math.nan
        mean = statistics.fmean(self.xs)
        spread = sum((value - mean) ** 2 for value in self.xs)
        errors = sum((y - intercept - slope * value) ** 2 for value, y in zip(self.xs, self.ys, strict=True))
        t = _T[degrees - 1] if degrees <= len(_T) else 2.0
        return intercept + slope * x, t * math.sqrt(errors / degrees * (1 + 1 / len(self.xs) + (x - mean) ** 2 / spread))


def bench(options: argparse.Namespace) -> Iterator[Line]:
    sizes = options.rows or ([20_000, 30_000, 40_000] if options.quick else [n * 1_000_000 for n in range(1, 6)])
    rounds = options.rounds or (1 if options.quick else 2)
    prepared: list[Point] = []
    again: list[Point] = []
    trained: list[Point] = []
    with tempfile.TemporaryDirectory(prefix="bench_scale_", dir=options.folder) as name:
        folder = Path(name)
        starts = tiny(folder, rounds)
        for rows in sizes:
            runs(folder, rows, rounds, prepared, again, trained)
            for what, points in (("prepare", prepared), ("prepare again", again), ("train, one epoch", trained)):
                here = [point for point in points if point.rows == rows]
                disk = f"; {here[0].disk / 1e6:,.0f} MB on disk" if what == "prepare" else ""
                note = f"{here[0].ids:,} ids{disk}"
                yield Line(f"{what}, {rows:,} rows", quietest([point.cost for point in here]), note=note)
    for what, points in (("prepare", prepared), ("train, one epoch", trained)):
        yield estimate(what, points)
    for command, cost in starts.items():
        yield Line(f"{command}, {TINY_ROWS:,} rows", cost, note="the start, nearly alone")


def tiny(folder: Path, rounds: int) -> dict[str, Cost]:
    """What `prepare` and `train` cost on next to nothing."""
    prepared: list[Point] = []
    trained: list[Point] = []
    runs(folder, TINY_ROWS, rounds, prepared, [], trained)
    return {name: quietest([p.cost for p in points]) for name, points in (("prepare", prepared), ("train", trained))}


def runs(folder: Path, rows: int, rounds: int, prepared: list[Point], again: list[Point], trained: list[Point]) -> None:
    """Add the runs on a file of so many rows."""
    file, cache = folder / "train.txt", folder / "cache"
    ids = ids_of(rows)
    make = BENCH.with_name("make_criteo.py")
    words = [sys.executable, make, "--rows", str(rows), "--ids", str(ids), "--out", file]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    environment = {"VFLBENCH_CACHE": str(cache)}
    data = ["dataset=criteo", f"dataset.path={file}"]
    words = [sys.executable, "-m", "vflbench"]
    for _ in range(rounds):
        subprocess.run(["rm", "-rf", cache], check=True)
        cost = measured([*words, "prepare", *data], folder=folder, environment=environment)
        disk = sum(path.stat().st_size for path in (cache / "prepared").rglob("*") if path.is_file())
        prepared.append(Point(rows, ids, cost, disk))
        again.append(Point(rows, ids, measured([*words, "prepare", *data], folder=folder, environment=environment)))
        trained.append(Point(rows, ids, measured([*words, "train", *data, *TRAIN], folder=folder, environment=environment)))
    subprocess.run(["rm", "-rf", cache, folder / "outputs", file], check=True)


def ids_of(rows: int) -> int:
    """Distinct values in such a file, missing ones apart."""
    sys.path.insert(0, str(BENCH.parent))
    from make_criteo import default_ids

    return min(default_ids(rows), 2 * rows)


def estimate(what: str, points: Sequence[Point]) -> Line:
    """The cost at full size, with its error."""
    values, errors = [], []
    for measure, by, full in (
        ("wall", "rows", FULL_ROWS),
        ("cpu", "rows", FULL_ROWS),
        ("memory", "ids", FULL_IDS),
    ):
        line = Fit([getattr(point, by) for point in points], [getattr(point.cost, measure) for point in points])
        value, error = line(full)
        values.append(value)
        errors.append(error)
    notes = [f"+- {errors[1]:.0f} CPU s, {errors[0]:.0f} s of the clock, {errors[2]:.0f} MB"]
    if not math.isnan(points[0].disk):
        disk, error = Fit([point.rows for point in points], [point.disk for point in points])(FULL_ROWS)
        notes.append(f"{disk / 1e9:.2f} +- {error / 1e9:.2f} GB on disk")
    sizes = sorted({point.rows for point in points})
    smaller = [point for point in points if point.rows <= sizes[len(sizes) // 2]]
    largest = [point.cost.cpu for point in points if point.rows == sizes[-1]]
    if len(sizes) > 2:
        guess = Fit([point.rows for point in smaller], [point.cost.cpu for point in smaller])(sizes[-1])[0]
        off = guess / statistics.fmean(largest) - 1
        notes.append(f"a line up to {smaller[-1].rows:,} rows is {off:+.1%} off at {sizes[-1]:,}")
    return Line(f"{what}, {FULL_ROWS:,} rows, estimated", Cost(*values), note="; ".join(notes))
