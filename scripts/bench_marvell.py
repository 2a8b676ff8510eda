"""Marvell's solver and noise: how exact, how fast, beside a general-purpose optimiser on the same problems, in one run.

    python scripts/bench_marvell.py
    python scripts/bench_marvell.py --problems 500 --slsqp 100 --digits 20

Problems: d 1 .. 512, p 0.001 .. 0.999, u / v over 10 orders, |m1 - m0|^2 over 40, sumKL 0.01 .. 3.6; those without any need
of noise are left out. The alternatives:

    one by one    solve_target, solve_power: a problem a call, with a sum over 2,000 numbers between calls, so that caches
                  and branch predictors don't have the problem to themselves; the median call
    batched       the same functions on arrays of 1,000 and 20,000 problems, compiled by numba; per problem
    SLSQP         scipy.optimize.minimize on the logarithms of the four variances with analytic gradients, the least power
                  for a sumKL as a constraint, from the variances without noise times 2, in units where g + u + v = 1

Exact: against 50 digits (mpmath, tests/numerics/sumkl_reference.py), largest relative error of the power. SLSQP is counted
as failed where it says so, breaks the constraint by more than 1e-6 or needs 1 % more power than the optimum.

Then one whole gradient() call at 8192 x 128 float32, beside drawing torch.randn(8192, 128) from the same generator.
Quiet figures need a quiet machine: the fastest of --rounds medians is printed.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from numerics.sumkl_reference import reference

from vflbench.defenses.base import Context
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.max_norm import MaxNorm
from vflbench.numerics.sumkl import solve_power, solve_target, sumkl_without_noise

Problem = tuple[float, float, int, float, float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000, help="solved one by one")
    parser.add_argument("--slsqp", type=int, default=200, help="of these, also by SLSQP")
    parser.add_argument("--digits", type=int, default=20, help="of these, also to 50 digits; 1 to 10 seconds each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, {platform.machine()}\n")
    problems = draw(20_000, options.seed)
    ours = [solve_target(*problem) for problem in problems[: options.problems]]
    print_times(problems, [noise.power for noise in ours], options)
    print_slsqp(problems[: options.slsqp], [noise.power for noise in ours])
    print_digits(problems[: options.digits], [noise.power for noise in ours])
    print_gradient(options.rounds)


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


def print_times(problems: list[Problem], powers: list[float], options: argparse.Namespace) -> None:
    single = problems[: options.problems]
    between = list(range(2000))

    def median_call(solve: Callable, calls: list[Problem]) -> float:
        took = []
        for call in calls:
            sum(between)
            start = time.perf_counter()
            solve(*call)
            took.append(time.perf_counter() - start)
        return statistics.median(took)

    by_power = [(*problem[:5], power) for problem, power in zip(single, powers, strict=True)]
    rows = [
        ("solve_target, one by one", min(median_call(solve_target, single) for _ in range(options.rounds))),
        ("solve_power, one by one", min(median_call(solve_power, by_power) for _ in range(options.rounds))),
    ]
    for count in (1000, 20_000):
        columns = np.array(problems[:count]).T
        given = solve_target(*columns).power  # compiles
        for name, solve, goal in (("solve_target", solve_target, columns[5]), ("solve_power", solve_power, given)):
            solve(*columns[:5], goal)
            took = [timed(lambda: solve(*columns[:5], goal)) for _ in range(options.rounds)]  # noqa: B023
            rows.append((f"{name}, batched, {count:,}", min(took) / count))
    print(f"{'':<32}{'us a problem':>14}")
    for name, seconds in rows:
        print(f"{name:<32}{1e6 * seconds:>14.2f}")


def print_slsqp(problems: list[Problem], powers: list[float]) -> None:
    took, excess, failed = [], [], 0
    for problem, power in zip(problems, powers, strict=False):
        start = time.perf_counter()
        result = slsqp(*problem)
        took.append(time.perf_counter() - start)
        if result is None or result > 1.01 * power:
            failed += 1
        else:
            excess.append(result / power - 1)
    worst = max(excess, default=float("nan"))
    print(f"{'SLSQP, one by one':<32}{1e6 * statistics.median(took):>14.2f}")
    print(
        f"\nSLSQP fails on {failed} of {len(problems)}; where it does not, it needs up to {worst:.1e} more power "
        f"than the optimum (median {statistics.median(excess) if excess else float('nan'):.1e})"
    )


def slsqp(u: float, v: float, d: int, g: float, p: float, target: float) -> float | None:
    """The power that SLSQP ends with, None where it fails."""
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
    return float(power(result.x)[0]) * unit if ok else None


def print_digits(problems: list[Problem], powers: list[float]) -> None:
    errors = []
    for problem, power in zip(problems, powers, strict=False):
        exact = float(reference(*problem[:5], target=problem[5])[5])
        errors.append(abs(power / exact - 1))
    if errors:
        print(
            f"solve_target against 50 digits, {len(errors)} problems: largest relative error of the power {max(errors):.1e}"
        )


def print_gradient(rounds: int) -> None:
    n, d = 8192, 128
    rng = torch.Generator().manual_seed(0)
    y = (torch.rand(n, generator=rng) < 0.25).long()
    g = torch.where(y == 1, -0.75, 0.25)[:, None] * torch.randn(d, generator=rng) / n
    g = g + 1e-2 * g.std() * torch.randn(n, d, generator=rng)
    context = Context(torch.arange(n), None, 0, rng)
    calls: dict[str, Callable[[], object]] = {"torch.randn(8192, 128)": lambda: torch.randn(n, d, generator=rng)}
    for defense in (Marvell(), MaxNorm(), Gaussian()):
        calls[f"{type(defense).__name__}.gradient"] = lambda defense=defense: defense.gradient(g, y, context)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(statistics.median(timed(call) for _ in range(20)))
    first = min(times["torch.randn(8192, 128)"])
    print(f"\n{'8192 x 128, a quarter positive':<32}{'ms':>8}{'beside randn':>14}")
    for name, took in times.items():
        print(f"{name:<32}{1e3 * min(took):>8.2f}{min(took) / first:>14.2f}")


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
