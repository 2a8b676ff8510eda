from itertools import product

import pytest
import torch
from attacks.views import embeddings, gradients, scores_of, shares, view_of

from vflbench.attacks.direct import Direct
from vflbench.attacks.fake_classes import FakeClasses, by_class
from vflbench.attacks.norm import Norm
from vflbench.defenses.fake_labels import FakeLabels
from vflbench.numerics.auc import auc

BATCHES, ROWS, D = 12, 256, 24


def epoch_of(rng, positive, shift=0.8, slow=0.02):
    """Batches of gradients of one length, one direction for each of 2 x 3 fake classes, which turn slowly, and embeddings
    that know a little of the class.
    """
    centres, batches = torch.randn(6, D, generator=rng), []
    for _ in range(BATCHES):
        centres = centres + slow * torch.randn(6, D, generator=rng)
        y = (torch.rand(ROWS, generator=rng) < positive).long()
        fake = y + 2 * torch.randint(3, (ROWS,), generator=rng)
        g = centres[fake] + 0.3 * torch.randn(ROWS, D, generator=rng)
        h = torch.randn(ROWS, D, generator=rng)
        h[:, 0] = 1.5 * h[:, 0] + 1.5 * shift * y
        batches.append((FakeLabels().gradient(g, None, None), h, y))
    return batches


@pytest.mark.parametrize("positive", [0.25, 0.7])
def test_it_reads_the_class_behind_fake_classes_without_a_label_where_others_do_not(rng, positive):
    batches, attack = epoch_of(rng, positive), FakeClasses(count=8)
    y = torch.cat([labels for *_, labels in batches])
    for number, (g, h, _) in enumerate(batches):
        ids = torch.arange(ROWS) + ROWS * number
        attack.observe(view_of(attack.threat, gradients(g), embeddings(h), shares(positive), ids=ids))
    order = torch.randperm(len(y), generator=rng)
    answer = attack.epoch(view_of(attack.threat, shares(positive), ids=order, step=None))
    assert torch.equal(answer.ids, order)
    assert auc(answer.layers["f1"], y[order]) > 0.97
    g, h, labels = batches[0]
    assert abs(auc(scores_of(Norm(), gradients(g)), labels) - 0.5) < 0.1
    assert abs(auc(scores_of(Direct(), gradients(g), shares(positive)), labels) - 0.5) < 0.4
    assert auc(h[:, 0], labels) < 0.8  # of the best direction of the embeddings


def test_the_rarer_side_is_positive_whatever_the_sign():
    """36 clusters of one class and twelve of the other; of each class, all point one way."""
    is_rarer = torch.arange(48) >= 36
    means, centres = torch.zeros(48, 3, dtype=torch.float64), torch.zeros(48, 2)
    means[:, 1] = torch.where(is_rarer, 3.0, -1.0)
    centres[torch.arange(48), is_rarer.long()] = 1.0
    for sign, positive in product((1.0, -1.0), (0.25, 0.75)):
        scores = by_class(torch.arange(48).repeat_interleave(20), sign * means, centres, positive)
        assert (scores[-1] > scores[0]) == (positive < 0.5), (sign, positive)
