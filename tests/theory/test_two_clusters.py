"""What the signed spectral score rests on: closed forms for two clusters."""

import numpy as np
import pytest
import torch
from scipy import stats

from vflbench.attacks.spectral import point_to_positives, spectral_projections
from vflbench.numerics.auc import auc


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
