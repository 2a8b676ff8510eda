import pytest
import torch

from vflbench.numerics.row_blocks import row_cosines, row_lengths


@pytest.mark.parametrize("shape", [(5000, 128), (3, 1), (1, 300000), (0, 4), (700, 0)])
def test_they_are_the_figures_of_all_rows_at_once_in_float64(rng, shape):
    x, v = torch.randn(shape, generator=rng) * 1e-20, torch.randn(shape[1], generator=rng, dtype=torch.float64)
    wide = x.double()
    lengths = wide.square().sum(dim=1).sqrt()
    assert torch.allclose(row_lengths(x), lengths, rtol=1e-13, atol=0)
    cosines = torch.where(lengths > 0, wide @ v / lengths.clamp_min(1e-300), 0.0)
    assert torch.allclose(row_cosines(x, v), cosines, rtol=1e-12, atol=1e-12)
    assert row_lengths(x).dtype == row_cosines(x, v).dtype == torch.float64


def test_a_row_of_zeros_has_cosine_zero(rng):
    x = torch.randn(6, 3, generator=rng)
    x[2] = 0
    assert row_cosines(x, torch.ones(3, dtype=torch.float64))[2] == 0
