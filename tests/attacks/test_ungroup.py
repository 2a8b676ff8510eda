import pytest
import torch
from attacks.epochs import ask, ordered
from attacks.views import gradients, shares, view_of
from defenses.contexts import drawing

from vflbench.attacks.ungroup import Ungroup, rows_of_sums
from vflbench.defenses.batch_average import BatchAverage
from vflbench.messages.facts import LocalModel
from vflbench.numerics.auc import auc

ROWS, D = 2048, 12


def planted(rng, positive=0.25):
    """Labels, and rows' gradients without a defense: (p - y) J_i with J_i around a direction; random embeddings."""
    y = (torch.rand(ROWS, generator=rng) < positive).long()
    j = torch.randn(D, generator=rng) + 0.2 * torch.randn(ROWS, D, generator=rng)
    return y, (positive - y)[:, None] * j, torch.randn(ROWS, D, generator=rng)


def attacked(g, h, rng, group, epochs, positive=0.25):
    """Scores after so many epochs of batches of 256."""
    attack, model = Ungroup(), LocalModel(lambda ids: {"f1": h[ids]})
    for epoch in range(epochs):
        for ids in torch.randperm(ROWS, generator=rng).split(256):
            sent = gradients(BatchAverage(group=group).gradient(g[ids], None, drawing(rng, ids, epoch)).values)
            attack.observe(view_of(attack.threat, sent, model, shares(positive), ids=ids, epoch=epoch))
    return ordered(ask(attack, h, prior=positive))


@pytest.mark.parametrize(("group", "epochs", "low", "high"), [(4, 8, 0.99, 1.0), (8, 2, 0.74, 0.88), (None, 2, 0.4, 0.6)])
def test_it_reads_groups_that_are_met_often_enough(rng, group, epochs, low, high):
    y, g, h = planted(rng)
    assert low <= auc(attacked(g, h, rng, group, epochs), y) <= high


def test_the_rarer_class_says_which_side_is_positive(rng):
    y, g, h = planted(rng, positive=0.75)
    assert auc(attacked(g, h, rng, 2, 3, positive=0.75), y) > 0.99


def test_rows_are_the_least_squares_of_the_dense_equations(rng):
    rows = torch.arange(24).repeat(2)  # once an epoch, in random groups of three
    groups = torch.cat([torch.randperm(24, generator=rng) // 3 + first for first in (0, 8)])
    sums, a = torch.randn(16, generator=rng, dtype=torch.float64), torch.zeros(16, 24, dtype=torch.float64)
    a[groups, rows] = 1.0
    expected = torch.linalg.solve(a.T @ a / 3 + 0.2 * torch.eye(24, dtype=torch.float64), a.T @ sums / 3)
    assert torch.allclose(rows_of_sums(rows, groups, sums, 0.2), expected, atol=1e-7)
