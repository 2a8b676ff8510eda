"""Planted: gradients that are alike in both classes, and that the embedding predicts in one of them."""

import pytest
import torch
from attacks.epochs import read, show
from attacks.views import shares, view_of
from torch.distributions import MultivariateNormal

from vflbench.attacks.conditional_mixture import ConditionalMixture, Window, _Split
from vflbench.attacks.mixture import Mixture
from vflbench.numerics.auc import auc

ROWS, D = 6000, 8


def planted(rng, positive, spread=0.3, epochs=1):
    """Labels, embeddings, gradients (epochs, n, d), and the log-likelihood ratio of a reader who knows all.

    Positives: N(m + A h, spread^2 I); negatives: N(0, A A^T + spread^2 I), so that both have one covariance where nothing is
    known of h, and means half a standard deviation apart.
    """
    y = torch.rand(ROWS, generator=rng) < positive
    h, a = torch.randn(ROWS, D, generator=rng), torch.randn(D, D, generator=rng)
    white = spread**2 * torch.eye(D)
    narrow, wide = (MultivariateNormal(torch.zeros(D), of) for of in (white, a @ a.T + white))
    of_positives = h @ a.T + 0.5 * wide.scale_tril[:, 0]
    others, noise = torch.randn(2, epochs, ROWS, D, generator=rng)
    g = torch.where(y[:, None], of_positives, others @ a.T) + spread * noise
    return y, h, g, (narrow.log_prob(g - of_positives) - wide.log_prob(g)).sum(dim=0)


def attacked(attack, h, g, prior=0.25, epoch=0):
    show(attack, g, h, prior=prior, batch=250, epoch=epoch)
    return attack.epoch(view_of(attack.threat, shares(prior), ids=torch.arange(len(h) + 9), step=None, epoch=epoch))


@pytest.mark.parametrize("positive", [0.1, 0.75])
def test_what_is_alike_is_told_apart_given_the_embedding_and_the_right_way_round(rng, positive):
    y, h, (g,), best = planted(rng, positive)
    answer = attacked(ConditionalMixture(), h, g, positive)
    assert answer.ids.tolist() == list(range(ROWS))
    assert auc(answer.layers["f1"], y) > auc(best, y) - 0.01
    assert 0.3 < auc(read(Mixture(), [g], positive), y) < 0.7


def test_epochs_add_up(rng):
    attack = ConditionalMixture()
    y, h, gradients_of, best = planted(rng, 0.25, spread=2.5, epochs=2)
    first, both = (auc(attacked(attack, h, g, epoch=epoch).layers["f1"], y) for epoch, g in enumerate(gradients_of))
    assert auc(best, y) - 0.02 < both
    assert first + 0.02 < both


def test_rows_without_a_gradient_are_not_told_apart(rng):
    y, h, (g,), _ = planted(rng, 0.25)
    g[:3000] = 0
    scores = attacked(ConditionalMixture(), h, g).layers["f1"]
    assert scores[:1000].unique().numel() == 1
    assert auc(scores[4000:], y[4000:]) > 0.99


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_class_that_loses_all_its_weight_ends_no_run(rng, sign):
    """As where each row has the mean of its batch, so that a window has few gradients."""
    _, h, (g,), _ = planted(rng, 0.25)
    window = Window.of(h.double(), g[:10].double().repeat_interleave(ROWS // 10, dim=0), 8)
    ratios = sign * torch.linspace(33, 42, ROWS, dtype=torch.float64)
    assert _Split.of(window, ratios, 0.25).ratio.isfinite().all()
