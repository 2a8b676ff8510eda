"""Whole batches from their Gram matrices: time, number of matching batches and method, by batch size and columns.

    python scripts/bench.py reconstruction --cells 8x5,11x10 --seeds 200 --methods auto
    python scripts/bench.py reconstruction --file mushroom/agaricus.txt.gz --cells 8x20 --seeds 100

Data: Bernoulli(--density) batches, or random rows and columns of a file's binary columns (LIBSVM or CSV, gzipped or not),
and random labels. The methods are those of `enumerate_batches`, with all batches up to --most. If the integer programme can
be imported, it solves the same batches, one solution each: --programmes names formulation:solver pairs.

One line for each cell and method: the median over the seeds beside that of the first programme; the worst; the share of
ambiguous batches (more than one matches, labels aside); the median and largest number of matching batches; how many results
are proved; and the method that `auto` used most. Every result is verified in integers; a proved one without the true batch
ends the run.
"""

import argparse
import csv
import gzip
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median as median_of

import numpy as np

from benches.lines import Cost, Line, median, seconds, timed
from vflbench.attacks.batch_reconstruction.enumeration.exact import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.solutions import Solutions, sort_rows

TABLE = "8x5,8x10,8x15,8x20,9x5,9x10,9x15,9x20,11x5,11x10,11x15,11x20"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", default=TABLE, help=f"rows x columns ({TABLE})")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--file", type=Path, help="binary data instead of Bernoulli batches")
    parser.add_argument("--methods", default="auto,columns,candidates,lattice")
    parser.add_argument("--programmes", default="tight:highs", help="formulation:solver pairs, or an empty string")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a batch")
    parser.add_argument("--most", type=int, default=1000, help="matching batches that are enumerated")
    parser.add_argument("--labels", action="store_true", help="beta is known as well, and restricts the batches")


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.cells, options.seeds = "3x12", 2
    table = None if options.file is None else read(options.file)
    for cell in options.cells.split(","):
        rows, columns = map(int, cell.split("x"))
        searches = solvers(options)
        results: dict[str, list[Solutions]] = {name: [] for name in searches}
        costs: dict[str, list[Cost]] = {name: [] for name in searches}
        for seed in range(options.seeds):
            x, y = draw(rows, columns, seed, options.density, table)
            gram = Gram.of(x, y if options.labels else None)
            for name, search in searches.items():
                costs[name].append(timed(lambda: results[name].append(search(gram))))  # noqa: B023
                verify(gram, x, results[name][-1], every=":" not in name)
        programme = next((name for name in searches if ":" in name), "")
        for name, of_method in results.items():
            other = programme if name != programme else ""
            yield Line(
                f"{cell}, {name}",
                median(costs[name]),
                other,
                median(costs[other]) if other else None,
                note=note(name, of_method, costs[name]),
            )


def solvers(options: argparse.Namespace) -> dict[str, Callable[[Gram], Solutions]]:
    """By name, Gram -> Solutions: the exact methods, and the integer programme if it can be imported."""

    def exact(method: str) -> Callable[[Gram], Solutions]:
        return lambda gram: enumerate_batches(gram, method=method, time_limit=options.limit, max_batches=options.most)

    searches = {method: exact(method) for method in options.methods.split(",") if method}
    try:
        from vflbench.attacks.batch_reconstruction.integer_programme import solve as programme
    except ImportError:
        return searches

    def integer(formulation: str, solver: str) -> Callable[[Gram], Solutions]:
        return lambda gram: programme.solve(gram, formulation=formulation, solver=solver, time_limit=options.limit)

    pairs = [pair for pair in options.programmes.split(",") if pair]
    return searches | {pair: integer(*pair.split(":")) for pair in pairs}


def verify(gram: Gram, x: np.ndarray, solutions: Solutions, every: bool) -> None:
    """Each batch has the Gram matrix, and the true one is among them if they are complete."""
    assert all(gram.matches(batch) for batch in solutions.batches)
    if every and solutions.complete:
        assert any(np.array_equal(batch, sort_rows(x)) for batch in solutions.batches), solutions.note


def note(name: str, results: list[Solutions], costs: list[Cost]) -> str:
    """What the results say of the batches."""
    counts = [solutions.count for solutions in results]
    known = [solutions.count > 1 for solutions in results if solutions.complete or solutions.count > 1]
    ambiguous = f"{sum(known) / len(known):.1%}" if known and ":" not in name and name != "lattice" else "-"
    most = f"{'' if all(solutions.complete for solutions in results) else '>='}{max(counts)}"
    proved = f"{sum(solutions.status == 'proved' for solutions in results)}/{len(results)}"
    by = Counter(solutions.method for solutions in results).most_common(1)[0][0]
    worst = seconds(max(cost.wall for cost in costs))
    return f"worst {worst}; ambiguous {ambiguous}; count {median_of(counts):g}, most {most}; proved {proved}; by {by}"


def draw(rows: int, columns: int, seed: int, density: float, table: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """One batch and its labels. From a table: rows and columns without replacement."""
    rng = np.random.default_rng(seed)
    if table is None:
        x = (rng.random((rows, columns)) < density).astype(np.uint8)
    else:
        chosen = rng.choice(len(table), rows, replace=False), rng.choice(table.shape[1], columns, replace=False)
        x = table[np.ix_(*chosen)]
    return x, rng.choice([-1, 1], rows)


def read(file: Path) -> np.ndarray:
    """The binary columns of a file: LIBSVM (label index:1 ...) or CSV with a header. Returns (n, k) uint8."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as text:
        lines = text.read().splitlines()
    if ":" in lines[0]:
        entries = [[int(pair.split(":")[0]) for pair in row.split()[1:]] for row in lines if row.strip()]
        table = np.zeros((len(entries), max(map(max, entries)) + 1), dtype=np.uint8)
        for row, ones in zip(table, entries, strict=True):
            row[ones] = 1
        return table[:, 1:]
    rows = np.array(list(csv.reader(lines))[1:])
    return rows[:, np.isin(rows, ("0", "1")).all(0)].astype(np.uint8)
