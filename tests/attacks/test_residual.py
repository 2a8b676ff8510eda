import math

import pytest
import torch
from attacks.epochs import ask, show

from vflbench.attacks.residual import Residual
from vflbench.numerics.auc import auc

ROWS, WIDTH, PRIOR = 8192, 16, 0.25


def randomized(rng, gap, flipped):
    """Gaussian classes, and gradients of the best model of labels that are flipped with that probability.

    Returns embeddings (n, d), gradients (n, d), true classes, and the log odds of a true class given row and flipped label.
    """
    y = torch.rand(ROWS, generator=rng) < PRIOR
    x = torch.randn(ROWS, WIDTH, generator=rng)
    x[:, 0] += gap * y
    odds = gap * x[:, 0] - gap**2 / 2 + math.log(PRIOR / (1 - PRIOR))
    noisy = y ^ (torch.rand(ROWS, generator=rng) < flipped)
    p = flipped + (1 - 2 * flipped) * odds.sigmoid()
    axis = torch.zeros(WIDTH).index_fill_(0, torch.tensor([0]), 1.0)
    g = (p - noisy.float())[:, None] * axis + 0.01 * torch.randn(ROWS, WIDTH, generator=rng)
    return x, g, y, odds + math.log((1 - flipped) / flipped) * (2 * noisy.float() - 1)


def run(x, g, asked=None, attack=None):
    attack = attack or Residual()
    show(attack, g)
    return ask(attack, x, rows=asked)


@pytest.mark.parametrize("eps", [1.0, 4.0])
def test_on_randomized_labels_it_is_near_the_bayes_optimal_attacker(rng, eps):
    x, g, y, odds = randomized(rng, gap=1.5, flipped=1 / (1 + math.exp(eps)))
    reached, features, labels = auc(run(x, g).layers["f1"], y), auc(x[:, 0], y), auc(-g[:, 0], y)
    assert reached > auc(odds, y) - 0.03
    assert reached > max(features, labels) + 0.01


def test_an_undefended_gradient_is_the_label(rng):
    x, g, y, _ = randomized(rng, gap=1.0, flipped=1e-9)
    assert auc(run(x, g).layers["f1"], y) > 0.99


def test_it_answers_about_audited_rows_in_any_order(rng):
    x, g, _, _ = randomized(rng, gap=1.5, flipped=0.2)
    everyone = run(x, g[:2048])
    assert torch.equal(everyone.ids, torch.arange(2048))
    order = torch.randperm(ROWS, generator=rng)
    mixed = run(x, g[:2048], order)
    assert torch.equal(mixed.ids, order[order < 2048])
    assert torch.allclose(mixed.layers["f1"], everyone.layers["f1"][mixed.ids], atol=1e-6)
    assert run(x, g[:0]) is None
    again = Residual()
    assert [len(run(x, g[:rows], attack=again).ids) for rows in (2048, 1024)] == [2048, 1024]  # each epoch begins anew
