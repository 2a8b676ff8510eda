"""Marvell's solver and noise: how fast, beside a general-purpose optimiser on the same problems, in one run.

    python scripts/bench.py marvell --problems 500 --slsqp 100

Problems: d 1 .. 512, p 0.001 .. 0.999, u / v over 10 orders, |m1 - m0|^2 over 40, sumKL 0.01 .. 3.6; those without any need
of noise are left out. The alternatives:

    one by one    solve_target, solve_power: a problem a call; the median call
    SLSQP         scipy.optimize.minimize on the logarithms of the four variances with analytic gradients, the least power
                  for a sumKL as a constraint, from the variances without noise times 2, in units where g + u + v = 1

SLSQP is counted as failed where it says so, breaks the constraint by more than 1e-6 or needs 1 % more power than the
optimum, which tests/defenses/test_marvell.py proves.

Then one whole gradient() call at 8192 x 128 float32, beside drawing torch.randn(8192, 128) from the same generator.
The quietest of --rounds medians counts.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy.optimize import minimize

from benches.lines import Cost, Line, in_turns, median, quietest, timed
from vflbench.defenses.base import Context
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.marvell import Marvell, solve_power, solve_target, sumkl_without_noise
from vflbench.defenses.max_norm import MaxNorm

Problem = tuple[float, float, int, float, float, float]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", type=int, default=2000, help="solved one by one")
    parser.add_argument("--slsqp", type=int, default=200, help="of these, also by SLSQP")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.problems, options.slsqp, options.rounds = 50, 5, 1
    problems = draw(options.problems, options.seed)
    powers = [solve_target(*problem).power for problem in problems]
    yield from solving(problems, powers, options)
    yield from gradients(options.rounds)


def draw(count: int, seed: int) -> list[Problem]:
    """Problems that need noise."""
    rng = np.random.default_rng(seed)
    problems: list[Problem] = []
    while len(problems) < count:
        g = 10.0 ** rng.uniform(-30, 10)
        u = g * 10.0 ** rng.uniform(-5, 5)
        v = u * 10.0 ** rng.uniform(-5, 5)
        d, p = int(rng.choice([1, 2, 8, 32, 128, 512])), rng.uniform(0.001, 0.999)
        target = 10.0 ** rng.uniform(-2, np.log10(3.6))
        if sumkl_without_noise(u, v, d, g) > target:
            problems.append((u, v, d, g, p, target))
    return problems


def solving(problems: list[Problem], powers: list[float], options: argparse.Namespace) -> Iterator[Line]:
    def one_by_one(solve: Callable, calls: list[Problem]) -> Cost:
        return quietest([median([timed(partial(solve, *problem)) for problem in calls]) for _ in range(options.rounds)])

    by_power = [(*problem[:5], power) for problem, power in zip(problems, powers, strict=True)]
    general, says = by_slsqp(problems[: options.slsqp], powers)
    yield Line("solve_target, one by one", one_by_one(solve_target, problems), "SLSQP", general, note=says)
    yield Line("solve_power, one by one", one_by_one(solve_power, by_power))


def by_slsqp(problems: list[Problem], powers: list[float]) -> tuple[Cost, str]:
    """The median cost, and how often and by how much SLSQP misses the optimum."""
    costs, excess = [], []
    for problem, power in zip(problems, powers, strict=False):
        needed: list[float] = []
        costs.append(timed(lambda: needed.append(slsqp(*problem))))  # noqa: B023
        excess += [needed[0] / power - 1] if needed[0] <= 1.01 * power else []
    more = f", needs up to {max(excess):.1e} more power elsewhere" if excess else ""
    return median(costs), f"SLSQP fails on {len(problems) - len(excess)} of {len(problems)}{more}"


def slsqp(u: float, v: float, d: int, g: float, p: float, target: float) -> float:
    """The power that SLSQP ends with; inf where it fails."""
    unit = g + u + v
    u, v, g = u / unit, v / unit, g / unit
    floor = np.log([max(u, 1e-300), max(u, 1e-300), max(v, 1e-300), max(v, 1e-300)])
    weights = np.array([1 - p, (1 - p) * (d - 1), p, p * (d - 1)])

    def power(x: np.ndarray) -> tuple[float, np.ndarray]:
        variances = np.exp(x)
        return weights @ (variances - np.array([u, u, v, v])), weights * variances

    def left(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, a2, b, b2 = np.exp(x)
        value = 0.5 * ((d - 1) * (a2 / b2 + b2 / a2 - 2) + a / b + b / a - 2 + g / a + g / b)
        along, across = a / b - b / a, (d - 1) * (a2 / b2 - b2 / a2)
        return value, 0.5 * np.array([along - g / a, across, -along - g / b, -across])

    constraint = {
        "type": "ineq",
        "fun": lambda x: np.log(target) - np.log(max(left(x)[0], 1e-300)),
        "jac": lambda x: -left(x)[1] / max(left(x)[0], 1e-300),
    }
    start = np.maximum(floor, np.log(max(u, v) + g)) + np.log(2)
    with np.errstate(all="ignore"):
        result = minimize(
            lambda x: np.log(max(power(x)[0], 1e-300)),
            start,
            jac=lambda x: power(x)[1] / max(power(x)[0], 1e-300),
            bounds=[(low, None) for low in floor],
            constraints=[constraint],
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
    ok = result.success and np.isfinite(result.x).all() and left(result.x)[0] <= target * (1 + 1e-6)
    return float(power(result.x)[0]) * unit if ok else np.inf


def gradients(rounds: int) -> Iterator[Line]:
    n, d = 8192, 128
    rng = torch.Generator().manual_seed(0)
    y = (torch.rand(n, generator=rng) < 0.25).long()
    g = torch.where(y == 1, -0.75, 0.25)[:, None] * torch.randn(d, generator=rng) / n
    g = g + 1e-2 * g.std() * torch.randn(n, d, generator=rng)
    context = Context(torch.arange(n), None, 0, rng)
    defenses = {type(defense).__name__: defense for defense in (Marvell(), MaxNorm(), Gaussian())}
    calls: dict[str, Callable[[], object]] = {"randn": lambda: torch.randn(n, d, generator=rng)}
    calls |= {name: lambda defense=defense: defense.gradient(g, y, context) for name, defense in defenses.items()}
    medians = {name: lambda call=call: median([timed(call) for _ in range(20)]) for name, call in calls.items()}
    costs = in_turns(medians, rounds)
    for name in defenses:
        what = f"{name}.gradient, {n} x {d}, a quarter positive"
        yield Line(what, costs[name], limit=f"torch.randn({n}, {d})", least=costs["randn"])
