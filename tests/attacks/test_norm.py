import pytest
import torch
from attacks.views import gradients, scores_of, shares, view_of

from vflbench.attacks.norm import Norm
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.metrics.leak import class_figures
from vflbench.numerics.auc import auc


def test_scores_are_euclidean_norms(rng):
    g = torch.randn(50, 8, generator=rng)
    view = view_of(Norm().threat, Gradients({"f1": 2 * g, "f2": g}), ids=torch.arange(50) * 3)
    answer = Norm().batch(view)
    assert torch.equal(answer.ids, torch.arange(50) * 3)
    assert list(answer.layers) == ["f1", "f2"]
    assert torch.allclose(answer.layers["f2"], g.double().square().sum(1).sqrt())
    assert torch.allclose(answer.layers["f1"], 2 * answer.layers["f2"])


def test_the_longest_share_is_taken_for_positive(rng):
    """Of 40 rows the 10 longest, 8 of them positive: 8 of 10 positives and 28 of 30 negatives are right."""
    r, y = torch.arange(1.0, 41.0), torch.zeros(40, dtype=torch.long)
    y[[0, 1, *range(32, 40)]] = 1
    g = r[:, None] * torch.nn.functional.normalize(torch.randn(40, 8, generator=rng), dim=1)
    for attack, known in ((Norm(top=0.25), ()), (Norm(top="prior"), (shares(0.25),))):
        labels = scores_of(attack, gradients(g), *known)
        assert labels.argmax(1).nonzero()[:, 0].tolist() == list(range(30, 40))
        assert auc(labels[:, 1] - labels[:, 0], y == 1) == pytest.approx((8 / 10 + 28 / 30) / 2)
        assert class_figures(labels, y)["accuracy"] == pytest.approx(36 / 40)
    assert ClassShares in Norm(top="prior").threat.knows
    assert ClassShares not in Norm(top=0.25).threat.knows


def test_equal_lengths_give_no_label_away():
    """Rows sorted by label, all equally long: the share is drawn, not taken from the front."""
    y = torch.arange(4000) < 1000
    labels = scores_of(Norm(top=0.25), gradients(torch.ones(4000, 3)))
    assert int(labels[:, 1].sum()) == 1000
    assert auc(labels[:, 1], y) == pytest.approx(0.5, abs=0.05)
