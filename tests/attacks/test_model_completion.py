import numpy as np
import pytest
import torch
from attacks.views import view_of

from vflbench.attacks.model_completion import ModelCompletion, _mixed
from vflbench.messages.facts import ClassShares, Known, LocalModel
from vflbench.numerics.auc import auc

WIDTH, ROWS = 8, 1000


def scores(h, y, known, classes=2, **options):
    """Of all rows but the first `known`, whose labels are known. The cut is the last of two layers."""
    attack = ModelCompletion(known=known, **{"steps": 100, **options})
    model = LocalModel(lambda rows: {"f1": torch.zeros(len(rows), 3), "f2": h[rows]})
    facts = Known(torch.arange(known), y[:known]), ClassShares((1 / classes,) * classes), model
    answer = attack.epoch(view_of(attack.threat, *facts, ids=torch.arange(known, len(h)), step=None))
    assert list(answer.layers) == ["f2"]
    return answer.layers["f2"]


@pytest.mark.parametrize(("gap", "least", "most"), [(6.0, 0.99, 1.0), (1.5, 0.6, 0.86), (0.0, 0.42, 0.58)])
def test_twenty_labels_read_what_the_embedding_holds(gap, least, most, rng):
    """Two clusters `gap` deviations from each other: fully, up to the best reader's Phi(gap / sqrt 2), or nothing."""
    y = (torch.rand(ROWS, generator=rng) < 0.4).long()
    h = torch.randn(ROWS, WIDTH, generator=rng) + gap * y[:, None] * torch.eye(WIDTH)[2]
    assert least <= auc(scores(h, y, known=20), y[20:]) <= most


def test_more_classes_have_a_logit_each(rng):
    y = torch.arange(4).repeat(ROWS // 4)
    h = torch.randn(ROWS, WIDTH, generator=rng) + 6 * torch.eye(4, WIDTH)[y]
    assert (scores(h, y, known=40, classes=4).argmax(dim=1) == y[40:]).double().mean() > 0.95


def test_mixing_stays_closer_to_the_row_itself_and_mixes_targets_alike():
    targets = torch.eye(5)
    h, mixed_targets = _mixed(3 * targets, targets, alpha=0.75, rng=np.random.default_rng(0))
    torch.testing.assert_close(h, 3 * mixed_targets)
    torch.testing.assert_close(mixed_targets.sum(dim=1), torch.ones(5))
    assert mixed_targets.diagonal().min() >= 0.5
