"""On Gaussians: the best attacker there can be against what Marvell promises, and what the spectral score rests on."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from vflbench.attacks.spectral import point_to_positives, spectral_projections
from vflbench.defenses.marvell import Marvell, leak_auc_bound, solve_target
from vflbench.metrics.privacy import Exposure
from vflbench.numerics.auc import auc

N, D = 40_000, 16
SETTINGS = [(1.0, 1.0, 4.0), (0.02, 0.05, 1.0), (3.0, 0.01, 0.5), (1e-8, 1e-10, 1e-8)]  # u, v, g


def perturbed(u, v, g, share, target, rng):
    """Messages (N, D) of two Gaussian classes with the noise that was solved for, and what an attacker knows of them."""
    solved = solve_target(u, v, D, g, share, target)
    y = (torch.rand(N, generator=rng) < share).long()
    means = torch.tensor([0.0, math.sqrt(g)])
    along = torch.tensor([u + solved.l10, v + solved.l11])
    across = torch.tensor([u + solved.l20, v + solved.l21])
    x = across.sqrt()[y][:, None] * torch.randn(N, D, generator=rng)
    x[:, 0] = means[y] + along.sqrt()[y] * torch.randn(N, generator=rng)
    return x.double(), y, means.double(), along.double(), across.double()


def log_likelihood_ratio(x, means, along, across):
    def log_density(k):
        quadratic = (x[:, 0] - means[k]).square() / along[k] + x[:, 1:].square().sum(1) / across[k]
        return -0.5 * (quadratic + along[k].log() + (D - 1) * across[k].log())

    return log_density(1) - log_density(0)


def test_the_best_attacker_keeps_to_the_bounds():
    for setting, target, share in itertools.product(SETTINGS, (0.04, 0.16, 0.64), (0.1, 0.5)):
        case = f"u, v, g = {setting}, target={target}, share={share}"
        x, y, *known = perturbed(*setting, share, target, torch.Generator().manual_seed(7))
        ratio = log_likelihood_ratio(x, *known)
        bound = Marvell(sumkl=target).guarantee()
        sampling = 3 * math.sqrt(1 / (12 * N * share * (1 - share)))
        assert auc(ratio, y) <= bound.leak_auc_after(Exposure(messages=1)) + sampling, case
        positive = ratio > 0  # a threshold that is known beforehand: one tuned on these rows would gain from chance
        error = ((~positive & (y == 1)).sum() / (y == 1).sum() + (positive & (y == 0)).sum() / (y == 0).sum()) / 2
        assert error.item() >= bound.error_after(Exposure(messages=1)) - 2 * sampling, case
        assert auc(ratio, y) > 0.5 + sampling, case  # it is an attacker, not a coin


def test_equal_gaussians_leak_the_normal_integral():
    """u = v, p = 1/2: both classes become N(m_y, c I) along e, c = 2 g / (2 sumkl): AUC Phi(sqrt(sumkl / 2))."""
    for target in (0.04, 0.16, 0.64):
        x, y, *known = perturbed(1.0, 1.0, 400.0, 0.5, target, torch.Generator().manual_seed(7))
        expected = stats.norm.cdf(math.sqrt(target / 2))
        assert auc(log_likelihood_ratio(x, *known), y) == pytest.approx(expected, abs=0.01), target


def test_the_published_figure_at_an_error_bound_of_two_fifths(rng):
    x, y, *known = perturbed(2e-4 / D, 5e-4 / D, 1.0, 0.25, 0.16, rng)
    assert auc(log_likelihood_ratio(x, *known), y) == pytest.approx(0.611, abs=0.012)
    assert leak_auc_bound(0.16) == pytest.approx(0.68)


def test_epochs_of_fresh_noise_compose_to_their_sum(rng):
    """The likelihood ratio of all messages about a row is the sum of their ratios; E messages are E sumkl apart."""
    solved = solve_target(1e-9, 1e-9, 1, 1.0, 0.5, 0.16)
    y = (torch.rand(N, generator=rng) < 0.5).long()
    for epochs in (4, 16):
        noise = torch.randn(epochs, N, generator=rng) * torch.tensor([solved.l10, solved.l11]).sqrt()[y]
        measured = auc((y + noise).double().sum(0), y)
        assert measured == pytest.approx(stats.norm.cdf(math.sqrt(epochs * 0.16 / 2)), abs=0.01), epochs
        assert leak_auc_bound(0.16) < measured <= Marvell().guarantee().leak_auc_after(Exposure(messages=epochs)), epochs


def test_skewness_of_two_points_tells_the_smaller_share():
    n = 1000
    for q in (0.05, 0.25, 0.45, 0.6, 0.9):
        s = np.array([1 - q] * round(q * n) + [-q] * round((1 - q) * n))  # centred, upper share q
        assert stats.skew(s) == pytest.approx((1 - 2 * q) / np.sqrt(q * (1 - q)), rel=1e-9), q
        turned = point_to_positives(torch.from_numpy(s), prior=0.25)
        assert (turned > 0).double().mean().item() == pytest.approx(min(q, 1 - q)), q


def test_leak_auc_of_two_gaussians_is_the_normal_integral(rng):
    """N(0, I) against N(gap e, I): the projection on e reaches AUC Phi(gap / sqrt(2)), and no score does better."""
    n, y = 40_000, torch.arange(40_000) < 10_000
    for gap in (2.0, 4.0, 6.0):
        x = torch.randn(n, 5, generator=rng)
        x[:, 2] += gap * y
        measured = auc(point_to_positives(spectral_projections({"f1": x})["f1"], prior=0.25), y)
        assert measured == pytest.approx(stats.norm.cdf(gap / np.sqrt(2)), abs=0.01), gap
