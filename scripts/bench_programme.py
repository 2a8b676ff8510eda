"""A batch by an integer programme: the paper's model beside the tight one, by solver, on the sizes of the paper's table.

    python scripts/bench_programme.py
    python scripts/bench_programme.py --cells 11x20 16x20 --formulations tight --solvers highs cpsat
    python scripts/bench_programme.py --cells 8x5 8x10 8x15 --formulations published --solvers highs cbc --time-limit 60

Batches of m rows x d columns with labels, each entry Bernoulli(0.5), drawn from seed s. Each line reports the median and
the largest number of seconds for writing and solving, and how many runs ended with a verified batch. A run that reaches the
time limit counts as the limit, so the median may be a lower bound, marked >. Every batch is verified in integers before it
counts.

The tight formulation searches for X and the labels; the published one for X alone, as in the paper (--labels: both).
CP-SAT runs in a process of its own: some seconds are the start of OR-Tools. One thread by default.
"""

import argparse
import platform
import statistics
from importlib.metadata import version

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.solve import solve
from vflbench.attacks.batch_reconstruction.solutions import Solutions
from vflbench.results.report.solver_times import published_cells

CELLS = ["8x5", "8x10", "8x15", "8x20", "9x20", "10x20", "11x5", "11x10", "11x15", "11x20"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="MxD", help="rows x columns")
    parser.add_argument("--seeds", type=int, default=5, help="batches a cell")
    parser.add_argument("--formulations", nargs="+", default=["tight"], choices=["tight", "published"])
    parser.add_argument("--solvers", nargs="+", default=["highs"], choices=["highs", "cbc", "cpsat"])
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--labels", action="store_true", help="seek the labels in the published formulation, too")
    options = parser.parse_args()
    packages = ", ".join(f"{name} {version(name)}" for name in ("pulp", "highspy"))
    print(f"Python {platform.python_version()}, {packages}, {platform.machine()}, {options.threads} thread(s)")
    print(f"\n{'cell':>6} {'formulation':>12} {'solver':>7} {'median s':>9} {'slowest s':>9} {'found':>7} {'paper s':>8}")
    for rows, columns in (map(int, cell.split("x")) for cell in options.cells):
        for formulation in options.formulations:
            for solver in options.solvers:
                results = [
                    solve(
                        draw(rows, columns, seed, labels=options.labels or formulation == "tight"),
                        formulation=formulation,
                        solver=solver,
                        time_limit=options.time_limit,
                        threads=options.threads,
                    )
                    for seed in range(options.seeds)
                ]
                print(line(rows, columns, formulation, solver, results), flush=True)


def draw(rows: int, columns: int, seed: int, labels: bool) -> Gram:
    """The Gram matrix of a batch of fair coins."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 2, (rows, columns)), 2 * rng.integers(0, 2, rows) - 1
    return Gram.of(x, y if labels else None)


def line(rows: int, columns: int, formulation: str, solver: str, results: list[Solutions]) -> str:
    """One row of the table."""
    by_time = sorted(results, key=lambda solutions: (solutions.status != "found", solutions.seconds))
    middle = by_time[len(by_time) // 2]
    median = statistics.median(solutions.seconds for solutions in results)
    slowest = max(solutions.seconds for solutions in results)
    found = sum(solutions.status == "found" for solutions in results)
    bound = "" if middle.status == "found" else ">"
    published = published_cells().get((rows, columns))
    paper = "" if published is None else published.mark or published.number
    share = f"{found}/{len(results)}"
    name, middle_time = f"{rows}x{columns}", f"{bound}{median:.3f}"
    return f"{name:>6} {formulation:>12} {solver:>7} {middle_time:>9} {slowest:>9.3f} {share:>7} {paper:>8}"


if __name__ == "__main__":
    main()
