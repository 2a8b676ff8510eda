import math

import numpy as np
import pytest
import torch
from scipy import optimize

from vflbench.defenses.marvell_noise import ClassMoments, equalising_noise, full_moments, positive_root, shared_noise


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
