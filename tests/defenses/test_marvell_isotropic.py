import math

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from vflbench.defenses.marvell_noise import Variances, solve_power, solve_target, sumkl_without_noise


def box(count, seed=0):
    """Problems over the whole range of arguments: u, v, d, g, p, sumkl; only those that need noise."""
    rng = np.random.default_rng(seed)
    g = 10.0 ** rng.uniform(-30, 10, count)
    u = g * 10.0 ** rng.uniform(-5, 5, count)
    v = u * 10.0 ** (rng.uniform(-10, 10, count) * rng.choice([0, 0.05, 1], count))
    d = rng.choice([1, 2, 3, 8, 32, 128, 512], count)
    p = rng.choice([0.001, 0.25, 0.5, 0.999, *rng.uniform(0.001, 0.999, 20)], count)
    target = 10.0 ** rng.uniform(-2, math.log10(3.6), count)
    needs = np.array([sumkl_without_noise(*x) for x in zip(u, v, d, g, strict=True)]) > target
    return tuple(x[needs] for x in (u, v, d, g, p, target))


def each(solve, *columns):
    """The solutions of many problems, as columns."""
    problems = np.stack(np.broadcast_arrays(*columns), axis=-1)
    return Variances(*np.array([solve(*problem) for problem in problems.tolist()]).T)


def multipliers(u, v, d, g, p, solved):
    """-d sumKL / d power by each variance (u + l10, u + l20, v + l11, v + l21); None where there is none."""
    u, v, d, g, p = map(mpf, (u, v, d, g, p))
    a, a2, b, b2 = (x + mpf(noise) for x, noise in zip((u, u, v, v), solved, strict=False))
    slopes = (a / b - b / a - g / a, (d - 1) * (a2 / b2 - b2 / a2), b / a - a / b - g / b, (d - 1) * (b2 / a2 - a2 / b2))
    powers = (2 * (1 - p) * a, 2 * (1 - p) * (d - 1) * a2, 2 * p * b, 2 * p * (d - 1) * b2)
    return [-slope / power if power else None for slope, power in zip(slopes, powers, strict=True)]


def test_no_noise_of_less_power_leaves_as_little():
    """In the logarithms of the variances the problem is convex: a point is the least where all noise has one multiplier, and
    where what has no noise would have no larger one (Karush, Kuhn and Tucker). In 40 digits.
    """
    with mpmath.workdps(40):
        for problem in zip(*(x[:100].tolist() for x in box(300)), strict=True):
            *arguments, target = problem
            solved = solve_target(*arguments, target)
            pairs = [(m, noise) for m, noise in zip(multipliers(*arguments, solved), solved, strict=False) if m is not None]
            free = [m for m, noise in pairs if noise > 1e-7 * solved.power]
            assert max(free) == pytest.approx(min(free), rel=1e-6), problem
            assert max(m for m, _ in pairs) <= max(free) * (1 + 1e-6), problem


def test_nothing_fails_anywhere_in_the_box():
    problem = box(1000)
    solved = each(solve_target, *problem)
    assert all(np.isfinite(x).all() and (x >= 0).all() for x in solved)
    assert np.allclose(solved.sumkl, problem[5], rtol=1e-12)
    assert (solved.l10 >= solved.l20).all()
    assert (solved.l11 >= solved.l21).all()
    assert ((solved.l20 == 0) | (solved.l21 == 0)).all()
    again = each(solve_power, *problem[:5], solved.power)
    assert np.allclose(again.sumkl, problem[5], rtol=1e-10)
    assert np.allclose(again.power, solved.power, rtol=1e-12)


def test_classes_can_change_places():
    ours, other = solve_target(0.1, 2.0, 16, 3.0, 0.2, 0.5), solve_target(2.0, 0.1, 16, 3.0, 0.8, 0.5)
    assert (ours.l10, ours.l20, ours.l11, ours.l21) == pytest.approx((other.l11, other.l21, other.l10, other.l20), rel=1e-12)


def test_where_nothing_is_needed_nothing_is_added():
    before = sumkl_without_noise(1.0, 1.1, 8, 0.01)
    for solved in (
        solve_target(1.0, 1.1, 8, 0.01, 0.25, 2 * before),
        solve_target(1.0, 1.1, 8, 0.01, 0.25, math.inf),
        solve_power(1.0, 1.1, 8, 0.01, 0.25, 0),
    ):
        assert tuple(solved) == (0, 0, 0, 0, before, 0)
    assert tuple(solve_target(0.0, 0.0, 8, 0.0, 0.25, 0.16)) == (0, 0, 0, 0, 0, 0)


def test_equal_means_take_isotropic_noise_on_the_tighter_class():
    solved = solve_target(4.0, 1.0, 10, 0.0, 0.25, 0.16)
    assert solved.l11 == solved.l21 > 0
    assert solved.l10 == solved.l20 == 0
    assert solved.sumkl == pytest.approx(0.16, rel=1e-12)
    assert solved.power == pytest.approx(0.25 * 10 * solved.l11)
    nearly = solve_target(4.0, 1.0, 10, 1e-12, 0.25, 0.16)
    assert (nearly.l11, nearly.l21) == pytest.approx((solved.l11, solved.l21), rel=1e-6)
    assert solve_power(4.0, 1.0, 10, 0.0, 0.25, 1e6).sumkl < 1e-30  # more than it takes to make them alike
    assert solve_power(4.0, 1.0, 10, 0.0, 0.25, solved.power).sumkl == pytest.approx(0.16, rel=1e-12)


def test_points_get_noise_along_their_difference_only():
    """u = v = 0: one free variance a class; for p = 1/2 both are D, and sumKL = g / D."""
    solved = solve_target(0.0, 0.0, 100, 8.0, 0.5, 0.16)
    assert (solved.l10, solved.l11) == pytest.approx((50.0, 50.0), rel=1e-12)
    assert solved.l20 == solved.l21 == 0
