import math

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf
from scipy import optimize

from vflbench.defenses.marvell_noise import (
    ClassMoments,
    Variances,
    equalising_noise,
    full_moments,
    positive_root,
    shared_noise,
    solve_power,
    solve_target,
    sphericity,
    sumkl_without_noise,
)


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


def moments_of(rng, d=5, rank=5, share=0.25, inside=True):
    """Covariances of any rank; the gap inside their range or not."""
    basis = torch.randn(d, rank, generator=rng, dtype=torch.float64)
    factors = [torch.randn(rank, rank, generator=rng, dtype=torch.float64) for _ in range(2)]
    covariances = torch.stack([basis @ f @ f.T @ basis.T for f in factors])
    gap = basis @ torch.randn(rank, generator=rng, dtype=torch.float64)
    if not inside:
        gap = gap + torch.randn(d, generator=rng, dtype=torch.float64)
    return ClassMoments(20 * gap, covariances, share)


def with_noise(moments, noise):
    return moments.covariances + noise.roots @ noise.roots.transpose(1, 2)


def gaussian_sumkl(gap, a, b):
    """KL(0 || 1) + KL(1 || 0) of N(0, a) and N(gap, b); singular matrices on their common range."""
    a_inverse, b_inverse = (torch.linalg.pinv(m, hermitian=True, rtol=1e-9) for m in (a, b))
    mismatch = (a_inverse @ b + b_inverse @ a).trace() - 2 * torch.linalg.matrix_rank(a, hermitian=True, rtol=1e-9)
    return 0.5 * (mismatch + gap @ (a_inverse + b_inverse) @ gap).item()


def test_moments_are_the_population_moments_of_the_classes(rng):
    g, positive = torch.randn(60, 4, generator=rng), torch.arange(60) % 3 == 0
    moments = full_moments(g, positive)
    for k, rows in enumerate((g[~positive], g[positive])):
        assert torch.allclose(moments.covariances[k], torch.from_numpy(np.cov(rows.double().numpy().T, bias=True)))
    assert torch.allclose(moments.gap, (g[positive].double().mean(0) - g[~positive].double().mean(0)))
    assert moments.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(("d", "rank", "inside"), [(5, 5, True), (12, 4, True), (12, 4, False), (1, 1, True)])
def test_full_noise_makes_covariances_equal_and_leaves_the_sumkl(rng, d, rank, inside):
    for target in (0.01, 0.16, 2.0):
        moments = moments_of(rng, d, rank, inside=inside)
        noise = equalising_noise(moments, sumkl=target)
        a, b = with_noise(moments, noise)
        assert torch.allclose(a, b, atol=1e-9 * float(a.trace()))
        assert noise.sumkl == pytest.approx(target)
        assert gaussian_sumkl(moments.gap, a, b) == pytest.approx(target, rel=1e-6)
        spent = [(r @ r.T).trace().item() for r in noise.roots]
        assert noise.power == pytest.approx(0.75 * spent[0] + 0.25 * spent[1])


def test_full_noise_above_equality_is_the_least_that_meets_the_target(rng):
    """Against a numerical search over T = L L^T of two coordinates."""
    moments = moments_of(rng, d=2, rank=2)
    lift = positive_root(moments.covariances[1] - moments.covariances[0], 1.0)
    common = moments.covariances[0] + lift @ lift.T
    gap, s = moments.gap.numpy(), 0.3

    def needed(parts):
        root = np.array([[parts[0], 0], [parts[1], parts[2]]])
        return s - gap @ np.linalg.solve(common.numpy() + root @ root.T, gap)

    starts = [np.array([32.0, 12.0, 20.0]) * sign for sign in (1.0, -0.7, 2.0)]
    found = [
        optimize.minimize(lambda x: x @ x, x0, constraints={"type": "ineq", "fun": needed}, options={"maxiter": 500})
        for x0 in starts
    ]
    best = min(one.fun for one in found if one.success)
    noise = equalising_noise(moments, sumkl=s)
    alike = [
        positive_root(x, 1.0).square().sum().item()
        for x in (moments.covariances.diff(dim=0)[0], -moments.covariances.diff(dim=0)[0])
    ]
    assert noise.power - 0.75 * alike[0] - 0.25 * alike[1] == pytest.approx(best, rel=1e-4)


def test_a_power_is_met_and_is_the_same_solution(rng):
    moments = moments_of(rng, d=8, rank=3)
    for solve in (equalising_noise, shared_noise):
        by_target = solve(moments, sumkl=0.3)
        by_power = solve(moments, power=by_target.power)
        assert by_power.sumkl == pytest.approx(0.3)
        assert by_power.power == pytest.approx(by_target.power)
        assert torch.allclose(with_noise(moments, by_power), with_noise(moments, by_target), atol=1e-6)
    little = equalising_noise(moments, power=1e-6)
    assert little.power == pytest.approx(1e-6)
    assert math.isinf(little.sumkl)


def test_shared_noise_is_the_same_for_both_and_bounds_the_gaussian_sumkl(rng):
    for rank, inside in ((5, True), (3, False)):
        moments = moments_of(rng, 5, rank, inside=inside)
        noise = shared_noise(moments, sumkl=0.16)
        assert torch.equal(*noise.roots)
        apart = moments.covariances.sum(0) + torch.outer(moments.gap, moments.gap)
        n = noise.roots[0] @ noise.roots[0].T
        assert torch.linalg.solve(n, apart).trace().item() == pytest.approx(0.16, rel=1e-5)
        assert gaussian_sumkl(moments.gap, *with_noise(moments, noise)) < 0.16
        assert n.trace().item() == pytest.approx(noise.power)


def test_shared_noise_has_the_least_power_of_all_that_meet_its_bound(rng):
    moments = moments_of(rng)
    apart = moments.covariances.sum(0) + torch.outer(moments.gap, moments.gap)
    least = shared_noise(moments, sumkl=0.16).power
    for _ in range(50):
        root = torch.randn(5, 5, generator=rng, dtype=torch.float64)
        other = shared_noise(moments, sumkl=0.16).roots[0]
        n = other @ other.T + 0.3 * other.square().mean() * root @ root.T
        assert (n * (torch.linalg.solve(n, apart).trace() / 0.16)).trace().item() > least


def test_shared_noise_bounds_the_sumkl_of_classes_that_are_no_gaussians():
    """Few points on a line, and the exact densities of their mixtures with noise, integrated."""
    zero = torch.tensor([-1.0, 0.2, 0.3], dtype=torch.float64)
    one = torch.tensor([-0.5, 4.0, 4.1], dtype=torch.float64)
    g, positive = torch.cat([zero, one])[:, None], torch.arange(6) >= 3
    for target in (0.16, 1.0, 3.0):
        spread = float(shared_noise(full_moments(g, positive), sumkl=target).roots[0][0, 0])
        x = torch.linspace(-60, 65, 200_001, dtype=torch.float64)
        p, q = (
            torch.exp(-0.5 * ((x[:, None] - c) / spread) ** 2).mean(1) / spread / math.sqrt(2 * math.pi) for c in (zero, one)
        )
        sumkl = torch.trapezoid((p - q) * (p.clamp_min(1e-300) / q.clamp_min(1e-300)).log(), x).item()
        assert 0.1 * target < sumkl <= target


@pytest.mark.parametrize("unit", [1e-20, 1e12])
def test_units_do_not_matter(rng, unit):
    moments = moments_of(rng, d=8, rank=3)
    scaled = ClassMoments(unit * moments.gap, unit**2 * moments.covariances, moments.share)
    for solve in (equalising_noise, shared_noise):
        expected = with_noise(moments, solve(moments, sumkl=0.16))
        assert torch.allclose(with_noise(scaled, solve(scaled, sumkl=0.16)) / unit**2, expected, rtol=1e-6, atol=1e-6)


SHAPES = [(8, 4), (40, 128)]


def test_the_statistic_has_mean_0_and_variance_1_on_isotropic_gaussians(rng):
    for n, d in SHAPES:
        values = torch.tensor([sphericity(torch.randn(n, d, generator=rng)).deviation for _ in range(600)])
        assert values.mean().item() == pytest.approx(0, abs=0.15), (n, d)
        assert values.std().item() == pytest.approx(1, abs=0.15), (n, d)
        assert (values > 2.33).double().mean().item() < 0.04, (n, d)


def test_the_mean_and_the_unit_of_the_rows_do_not_matter(rng):
    x = torch.randn(60, 8, generator=rng)
    plain = sphericity(x)
    for other in (x * 1e-30, x * 1e30, x.double() * 1e-200 + 0, x + 5):
        moved = sphericity(other)
        assert moved.deviation == pytest.approx(plain.deviation, abs=1e-3)
        assert moved.dimension == pytest.approx(plain.dimension, rel=1e-3)


def test_low_rank_and_unequal_rows_are_rejected_and_the_dimension_counts_directions(rng):
    for n, d, rank in ((400, 128, 6), (40, 128, 3)):
        low = torch.randn(n, rank, generator=rng) @ torch.linalg.qr(torch.randn(d, rank, generator=rng)).Q.T
        result = sphericity(low + 1e-3 * torch.randn(n, d, generator=rng))
        assert result.deviation > 20, (n, d)
        assert result.dimension == pytest.approx(rank, rel=0.25)
        lengths = torch.randn(n, 1, generator=rng).exp()  # the same directions, rows of unequal length
        assert sphericity(lengths * torch.randn(n, d, generator=rng)).deviation > 3, (n, d)
    assert sphericity(torch.randn(400, 16, generator=rng)).dimension == pytest.approx(16, rel=0.1)
