"""The statistic's exact moments, its level, and what it must reject."""

import pytest
import torch

from vflbench.defenses.marvell_noise import sphericity

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
