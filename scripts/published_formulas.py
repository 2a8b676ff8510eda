"""What `scripts/published.py` computes and times without any run: formulas by the code of the runs, and seconds."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from programme_size import counted, published_count

from vflbench.defenses.base import Context
from vflbench.defenses.label_dp import LabelDP
from vflbench.defenses.marvell import Marvell
from vflbench.metrics.exposure import Exposure
from vflbench.numerics.binomial import theorem_condition, theorem_epsilon
from vflbench.numerics.dcor import distance_correlation
from vflbench.numerics.randomized_response import chances
from vflbench.numerics.sumkl import Noise, solve_power, solve_target, sumkl_without_noise
from vflbench.report.documents import Part
from vflbench.report.published_page import Results
from vflbench.report.published_tables import table
from vflbench.report.solver_times import published_cells

ONE_MESSAGE = Exposure(1, 1)


def error_bounds() -> str:
    """By the defense: the sumKL that it may leave for an error bound, and the error that its guarantee promises."""
    allowed = [(bound, Marvell(error_bound=bound).target) for bound in (0.4, 0.3)]
    texts = [f"L = {bound}: sumKL <= {s:.4g}, error >= {error_at_least(s):.4g}" for bound, s in allowed]
    return f"{'; '.join(texts)}, by the code of `defense=marvell`"


def error_bounds_view(part: Part, _: Results) -> str:
    rows = []
    for bound, sumkl in part.said["rows"]:
        ours = Marvell(error_bound=bound).target
        difference = ours - sumkl if abs(ours - sumkl) > 1e-12 else 0.0  # rounding
        rows.append([f"{bound}", f"{sumkl}", f"{ours:.4g}", f"{difference:.2g}", f"{error_at_least(sumkl):.4g}"])
    columns = ("error at least", "sumKL at most, published", "here", "here - published", "error that sumKL promises here")
    return f"{table(columns, rows)}\n\nComputed by `defense=marvell`: its `error_bound`, and its guarantee."


def error_at_least(sumkl: float) -> float:
    guarantee = Marvell(sumkl=sumkl).guarantee()
    assert guarantee is not None
    return guarantee.error_after(ONE_MESSAGE)


def error_list() -> str:
    bounds = (0.4, 0.3, 0.2, 0.1)
    return "sumKL " + ", ".join(f"{Marvell(error_bound=bound).target:.4g} for {bound}" for bound in bounds)


def problems(count: int) -> list[tuple[float, float, int, float, float]]:
    """u, v, d, g, p of batches that need noise at sumKL 0.04."""
    rng = np.random.default_rng(0)
    made = []
    while len(made) < count:
        g = 1.0
        u, v = 10.0 ** rng.uniform(-3, 1, 2)
        problem = (float(u), float(v), int(rng.choice([8, 32, 128])), g, float(rng.uniform(0.05, 0.5)))
        if sumkl_without_noise(*problem[:4]) > 0.04:
            made.append(problem)
    return made


def power_search(factor: float = 1.5) -> str:
    """The published search with our optimum at each power, from P = c, beside `solve_target`."""
    steps, excess = [], []
    for problem in problems(200):
        power, count = problem[3], 1
        while solve_power(*problem, power).sumkl > 0.04:
            power, count = power * factor, count + 1
        steps.append(count)
        excess.append(solve_power(*problem, power).power / solve_target(*problem, 0.04).power)
    return (
        f"the search with factor {factor} takes {min(steps)} to {max(steps)} powers (median {statistics.median(steps):g}) "
        f"and ends at {min(excess):.2f} to {max(excess):.2f} times the least power (median {statistics.median(excess):.2f}) "
        "on 200 random problems at sumKL 0.04; `solve_target` solves for the least power itself"
    )


def unknowns() -> str:
    names = [name for name in Noise._fields if name not in ("sumkl", "power")]
    return f"{len(names)} as well: {', '.join(names)}"


def seconds_a_call(call: Callable[[], object], repeat: int) -> float:
    took = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def solver_seconds() -> float:
    several = itertools.cycle(problems(200))
    return seconds_a_call(lambda: solve_target(*next(several), 0.04), 400)


def gradient_seconds() -> float:
    """Of a whole call of the defense at 8192 x 128."""
    rng = torch.Generator().manual_seed(0)
    y = (torch.rand(8192, generator=rng) < 0.25).long()
    g = torch.where(y == 1, -0.75, 0.25)[:, None] * torch.randn(128, generator=rng) / 8192
    g = g + 1e-2 * g.std() * torch.randn(8192, 128, generator=rng)
    defense, context = Marvell(sumkl=0.04), Context(torch.arange(8192), None, 0, rng)
    return seconds_a_call(lambda: defense.gradient(g, y, context), 15)


def solver_time() -> str:
    ours = solver_seconds()
    return (
        f"{1e6 * ours:.0f} microseconds (median of 400 problems at sumKL 0.04), without the moments and the drawing of "
        f"noise; 70 ms are {0.07 / ours:,.0f} times that"
    )


def timing_view(part: Part, _: Results) -> str:
    here = {
        "PyFunc": f"{1e3 * gradient_seconds():.3g} ms for a whole gradient call at 8192 x 128; the solver alone: last claim"
    }
    names = [column["name"] for column in part.said["columns"]]
    rows = [[*map(str, row), here.get(row[0], "TensorFlow's input: no counterpart")] for row in part.said["rows"]]
    return table((*names, "here"), rows)


def constraints() -> str:
    cells = sorted(published_cells())
    equal = sum(counted(*cell).constraints == published_count(*cell) for cell in cells)
    labelled = ", ".join(
        f"{counted(*cell, labels=True).constraints:,} at {cell[0]} x {cell[1]}" for cell in (cells[0], cells[-1])
    )
    return f"counted from the programme that is solved: equal in {equal} of {len(cells)} cells; with labels, {labelled}"


def pairs() -> str:
    """The rank of the equations 4 g = alpha theta - 2 beta for one row of alpha and its entry of beta."""
    rng, d = np.random.default_rng(0), 10
    ranks = [int(np.linalg.matrix_rank(np.hstack([rng.standard_normal((n, d)), np.ones((n, 1))]))) for n in (d, d + 1)]
    return (
        f"d + 1: for d = {d} there are {d + 1} unknowns a row, and d pairs give rank {ranks[0]}, d + 1 pairs {ranks[1]}. "
        "Where a model is theta = 0, and for binary rows, fewer do (`recovery=lattice`)"
    )


def asynchronous_alpha() -> str:
    d = 10
    return "; ".join(f"n = {n}, d = {d}: {n * d * (d + 1) // 2} unknowns, {d * d} equations" for n in (2, 3, 4))


def asynchronous_beta() -> str:
    d = 10
    return "; ".join(f"n = {n}, d = {d}: {n * d} unknowns, {d} equations" for n in (2, 3, 4))


def binomial() -> str:
    """The least number of throws for which the code gives a guarantee, and the condition just below it."""
    width, p, delta, largest = 64, 0.5, 1e-6, 15.0
    n = next(n for n in range(1, 2**24) if theorem_epsilon(width, n, p, delta, 1.0, 1.0, largest) is not None)
    have, need = theorem_condition(width, n, p, delta, largest)
    below, _ = theorem_condition(width, n - 1, p, delta, largest)
    return (
        f"the same condition: at d = {width}, p = {p}, delta = {delta:g}, Delta_inf = {largest:g} a guarantee needs "
        f"N p (1 - p) >= {need:.1f}, so N >= {n} ({have:.2f}; N = {n - 1} has {below:.2f} and gets none)"
    )


def dcor_cost() -> str:
    """The exponent between batches of 4096 and 16384."""
    rng = torch.Generator().manual_seed(0)

    def took(n: int) -> float:
        x, y = torch.randn(n, 128, generator=rng), (torch.rand(n, generator=rng) < 0.25).long()
        return seconds_a_call(lambda: distance_correlation(x, y), 2)

    took(2048)  # the first call takes longer
    small, large = took(4096), took(16384)
    return (
        f"exponent {math.log(large / small) / math.log(4):.2f} between 4096 ({small * 1e3:.0f} ms) and 16384 rows "
        f"({large * 1e3:.0f} ms) of 128 numbers, one thread"
    )


def response(eps: float, classes: int) -> tuple[float, float]:
    keep, other = chances(classes, eps)
    return float(keep), float(other)


def flip() -> str:
    texts = [f"{response(eps, 2)[1]:.6f} at eps {eps:g} (formula {1 / (1 + math.exp(eps)):.6f})" for eps in (0.0, 1.0, 5.0)]
    return f"the code's: {', '.join(texts)}"


def keep_share() -> str:
    value = response(1.0, 3)[0]
    return f"the code's: {value:.6f} at eps 1, n 3 (formula {math.e / (2 + math.e):.6f})"


def other_share() -> str:
    value = response(1.0, 3)[1]
    return f"the code's: {value:.6f} at eps 1, n 3 (formula {1 / (2 + math.e):.6f})"


def class_call() -> str:
    """The class of the document's example, called as there."""
    mechanism = LabelDP(0.0, seed=0)
    binary, one_hot = mechanism(np.zeros((5, 1))), mechanism(np.eye(3)[[0, 1, 2, 1, 0]])
    return f"called as there: {binary.shape} and {one_hot.shape} come back, of the same kind"


def class_eps() -> str:
    changed = float(LabelDP(0.0, seed=0)(np.zeros((100_000, 1))).mean())
    return f"accepted: {changed:.4f} of 100,000 zeros become ones, a fair coin"


def numbers(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"


FORMULAS: Mapping[str, Callable[[], str]] = {
    "error_bounds": error_bounds,
    "error_list": error_list,
    "power_search": power_search,
    "unknowns": unknowns,
    "time": solver_time,
    "constraints": constraints,
    "pairs": pairs,
    "asynchronous_alpha": asynchronous_alpha,
    "asynchronous_beta": asynchronous_beta,
    "binomial": binomial,
    "dcor_cost": dcor_cost,
    "class_eps": class_eps,
    "class_call": class_call,
    "flip": flip,
    "keep": keep_share,
    "other": other_share,
}
"""To claims and of settings, by the names of docs/experiments/published/*.json."""
