"""Whole batches from their Gram matrices: time, number of matching batches and method, by batch size and columns.

    python scripts/bench.py reconstruction --cells 8x5,11x10 --seeds 200

Data: Bernoulli(--density) batches and random labels. The exact search beside the integer programme by HiGHS, which stops at
one solution. One line for each cell: the median over the seeds beside that of the programme; the worst; the share of
ambiguous batches (more than one matches, labels aside); the median and largest number of matching batches; how many results
are proved. Every result is verified in integers; a proved one without the true batch ends the run.
"""

import argparse
from collections.abc import Iterator
from statistics import median as median_of

import numpy as np

from benches.lines import Cost, Line, median, seconds, timed
from vflbench.attacks.batch_reconstruction.enumeration import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram, Solutions, sort_rows
from vflbench.attacks.batch_reconstruction.integer_programme import solve

TABLE = "8x5,8x10,8x15,8x20,9x5,9x10,9x15,9x20,11x5,11x10,11x15,11x20"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", default=TABLE, help=f"rows x columns ({TABLE})")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a batch")
    parser.add_argument("--most", type=int, default=1000, help="matching batches that are enumerated")


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.cells, options.seeds = "3x12", 2
    for cell in options.cells.split(","):
        rows, columns = map(int, cell.split("x"))
        solutions: list[Solutions] = []
        exact, programme = [], []
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            x = (rng.random((rows, columns)) < options.density).astype(np.uint8)
            gram = Gram.of(x, None)
            exact.append(timed(lambda: solutions.append(search(gram, options))))  # noqa: B023
            verify(gram, x, solutions[-1])
            programme.append(timed(lambda: solve(gram, formulation="tight", solver="highs", time_limit=options.limit)))  # noqa: B023
        yield Line(cell, median(exact), "tight programme, HiGHS", median(programme), note=note(solutions, exact))


def search(gram: Gram, options: argparse.Namespace) -> Solutions:
    return enumerate_batches(gram, time_limit=options.limit, max_batches=options.most)


def verify(gram: Gram, x: np.ndarray, solutions: Solutions) -> None:
    """Each batch has the Gram matrix, and the true one is among them if they are complete."""
    assert all(gram.matches(batch) for batch in solutions.batches)
    if solutions.complete:
        assert any(np.array_equal(batch, sort_rows(x)) for batch in solutions.batches), solutions.note


def note(results: list[Solutions], costs: list[Cost]) -> str:
    """What the results say of the batches."""
    counts = [len(solutions.batches) for solutions in results]
    known = [len(solutions.batches) > 1 for solutions in results if solutions.complete or len(solutions.batches) > 1]
    ambiguous = f"{sum(known) / len(known):.1%}" if known else "-"
    most = f"{'' if all(solutions.complete for solutions in results) else '>='}{max(counts)}"
    proved = f"{sum(solutions.status == 'proved' for solutions in results)}/{len(results)}"
    worst = seconds(max(cost.wall for cost in costs))
    return f"worst {worst}; ambiguous {ambiguous}; count {median_of(counts):g}, most {most}; proved {proved}"
