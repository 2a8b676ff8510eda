import pytest
import torch

from vflbench.attacks.ungroup import rows_of_sums


def grouped(rng, rows, size, epochs):
    """Places of rows and groups: every row once an epoch, in random groups of `size`."""
    groups = torch.cat([torch.randperm(rows, generator=rng) // size + epoch * (rows // size) for epoch in range(epochs)])
    return torch.arange(rows).repeat(epochs), groups


def test_it_is_the_least_squares_of_the_dense_equations(rng):
    rows, groups = grouped(rng, 24, 3, 2)
    sums = torch.randn(16, generator=rng, dtype=torch.float64)
    a = torch.zeros(16, 24, dtype=torch.float64)
    a[groups, rows] = 1.0
    expected = torch.linalg.solve(a.T @ a / 3 + 0.2 * torch.eye(24, dtype=torch.float64), a.T @ sums / 3)
    assert torch.allclose(rows_of_sums(rows, groups, sums, 0.2), expected, atol=1e-7)


def test_as_many_epochs_as_rows_in_a_group_tell_every_row(rng):
    r = torch.randn(400, generator=rng, dtype=torch.float64)
    for size, epochs, is_exact in ((4, 8, True), (4, 2, False)):
        rows, groups = grouped(rng, 400, size, epochs)
        sums = torch.zeros(100 * epochs, dtype=torch.float64).index_add_(0, groups, r[rows])
        error = (rows_of_sums(rows, groups, sums, 1e-9) - r).square().mean().item()
        assert error < 1e-6 if is_exact else error == pytest.approx(1 - epochs / size, abs=0.1)
