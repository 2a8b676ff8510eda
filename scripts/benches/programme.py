"""A batch by an integer programme: the paper's model beside the tight one, by solver, on the sizes of the paper's table.

    python scripts/bench.py programme --cells 11x20 16x20 --formulations tight --solvers highs cpsat
    python scripts/bench.py programme --cells 8x5 8x10 8x15 --formulations published --solvers highs cbc --time-limit 60

Batches of m rows x d columns with labels, each entry Bernoulli(0.5), drawn from seed s. Each line reports the median of
the seconds for writing and solving, the largest, and how many runs ended with a verified batch. A run that reaches the time
limit counts as the limit, so the median may be a lower bound. Every batch is verified in integers before it
counts.

The tight formulation searches for X and the labels; the published one for X alone, as in the paper (--labels: both).
CP-SAT runs in a process of its own: some seconds are the start of OR-Tools. One thread by default.
"""

import argparse
import itertools
from collections.abc import Iterator

import numpy as np

from benches.lines import Cost, Line, median, timed
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.solve import solve
from vflbench.attacks.batch_reconstruction.solutions import Solutions
from vflbench.report.solver_times import published_cells

CELLS = ["8x5", "8x10", "8x15", "8x20", "9x20", "10x20", "11x5", "11x10", "11x15", "11x20"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="MxD", help="rows x columns")
    parser.add_argument("--seeds", type=int, default=5, help="batches a cell")
    parser.add_argument("--formulations", nargs="+", default=["tight"], choices=["tight", "published"])
    parser.add_argument("--solvers", nargs="+", default=["highs"], choices=["highs", "cbc", "cpsat"])
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--labels", action="store_true", help="seek the labels in the published formulation, too")


def bench(options: argparse.Namespace) -> Iterator[Line]:
    cells, seeds = (["3x4"], 1) if options.quick else (options.cells, options.seeds)
    for rows, columns in (map(int, cell.split("x")) for cell in cells):
        published = published_cells().get((rows, columns))
        printed = None if published is None or published.number is None else Cost(published.number)
        for formulation, solver in itertools.product(options.formulations, options.solvers):
            labels = options.labels or formulation == "tight"
            results, costs = [], []
            for seed in range(seeds):
                gram = draw(rows, columns, seed, labels=labels)
                call = lambda: solve(  # noqa: E731
                    gram,  # noqa: B023
                    formulation=formulation,  # noqa: B023
                    solver=solver,  # noqa: B023
                    time_limit=options.time_limit,
                    threads=options.threads,
                )
                costs.append(timed(lambda: results.append(call())))  # noqa: B023
            yield Line(
                f"{rows}x{columns}, {formulation}, {solver}",
                median(costs),
                "as published, solver not named" if printed else "",
                printed,
                note=note(results),
            )


def note(results: list[Solutions]) -> str:
    """How many runs ended with a verified batch, and the slowest."""
    found = sum(solutions.status == "found" for solutions in results)
    slowest = max(solutions.seconds for solutions in results)
    return f"{found}/{len(results)} found; slowest {slowest:.3g} s"


def draw(rows: int, columns: int, seed: int, labels: bool) -> Gram:
    """The Gram matrix of a batch of fair coins."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 2, (rows, columns)), 2 * rng.integers(0, 2, rows) - 1
    return Gram.of(x, y if labels else None)
