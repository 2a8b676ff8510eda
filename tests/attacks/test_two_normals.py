import math

import pytest
import torch

from vflbench.attacks.mixture import fit_two_normals


def gain_of(t, upper_share):
    return fit_two_normals(t, upper_share).gain


def test_far_clusters_gain_what_their_variance_and_their_shares_say(rng):
    """Of deviation s each, S together, with shares q and 1 - q: log(S / s) + q log q + (1 - q) log(1 - q)."""
    q, s, n = 0.25, 0.5, 20_000
    is_upper = torch.arange(n) < q * n
    t = torch.where(is_upper, 10.0, 0.0) + s * torch.randn(n, generator=rng, dtype=torch.float64)
    expected = math.log(t.std().item() / s) + q * math.log(q) + (1 - q) * math.log(1 - q)
    assert gain_of(t[None], q)[0].item() == pytest.approx(expected, abs=0.01)


def test_one_normal_gains_nothing(rng):
    t = torch.randn(3, 20_000, generator=rng, dtype=torch.float64)
    assert gain_of(t, 0.25).abs().max() < 0.02


def test_units_do_not_matter_and_equal_numbers_gain_nothing(rng):
    t = torch.randn(1, 100, generator=rng, dtype=torch.float64).exp()
    assert torch.allclose(gain_of(t, 0.3), gain_of(1e9 * t - 3e9, 0.3), atol=1e-5)
    assert gain_of(torch.full((2, 5), 0.1, dtype=torch.float64), 0.3).tolist() == [0.0, 0.0]


def test_log_ratios_are_those_of_the_true_densities(rng):
    """Planted: 3 / 4 N(-1, 1) + 1 / 4 N(2, 0.5^2); the log odds are known."""
    n = 40_000
    is_upper = torch.arange(n) < n // 4
    noise = torch.randn(n, generator=rng, dtype=torch.float64)
    t = torch.where(is_upper, 2 + 0.5 * noise, noise - 1)[None]
    odds = math.log(1 / 3) + math.log(2) - 0.5 * ((t - 2) / 0.5).square() + 0.5 * (t + 1).square()
    fitted = fit_two_normals(t, 0.25, iterations=100)
    assert fitted.means[0].tolist() == pytest.approx([-1, 2], abs=0.03)
    assert fitted.variances[0].tolist() == pytest.approx([1, 0.25], abs=0.03)
    undecided = odds.abs() < 3
    assert (fitted.log_ratio(t) - odds)[undecided].abs().max() < 0.25
    assert fit_two_normals(torch.ones(1, 9, dtype=torch.float64), 0.2).log_ratio(torch.ones(1, 9)).std() == 0
