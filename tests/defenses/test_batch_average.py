import math

import pytest
import torch
from attacks.views import gradients, scores_of, shares
from defenses.contexts import drawing

from vflbench.attacks.direct import Direct
from vflbench.defenses.batch_average import BatchAverage
from vflbench.numerics.auc import auc


def averaged(g, rng, group=None, ids=None, epoch=0):
    ids = torch.arange(len(g)) if ids is None else ids
    return BatchAverage(group=group).gradient(g, None, drawing(rng, ids, epoch)).values


def members(sent):
    return sent.unique(dim=0, return_inverse=True)[1]


def test_each_row_gets_the_mean_of_its_group(rng):
    for rows, group, groups in ((48, 8, 6), (50, 8, 6), (7, 8, 1), (9, 1, 9)):
        g = torch.randn(rows, 5, generator=rng)
        sent = averaged(g, rng, group)
        member = members(sent)
        sizes = member.bincount()
        assert (len(sizes), int(sizes.min())) == (groups, min(rows, rows // groups)), rows
        assert int(sizes.max()) <= int(sizes.min()) + 1, rows
        for one in range(groups):
            expected = g[member == one].double().mean(dim=0).float()
            assert torch.allclose(sent[member == one], expected.expand(int(sizes[one]), 5), rtol=1e-5, atol=1e-7), rows
        assert torch.allclose(sent.sum(dim=0), g.sum(dim=0), atol=1e-4), rows


def test_groups_are_the_same_for_all_layers_and_others_in_each_epoch(rng):
    ids = torch.randperm(1000, generator=rng)[:60]
    first, second, later = (
        members(averaged(torch.randn(60, d, generator=rng), rng, 4, ids, epoch)) for d, epoch in ((5, 0), (3, 0), (5, 1))
    )

    def together(member):
        return member[:, None] == member

    assert torch.equal(together(first), together(second))
    both = (together(first) & together(later)).sum().item() - 60
    assert both < 0.3 * (together(first).sum().item() - 60)  # 3 of 59 others are in a group by chance


def test_neighbours_in_id_are_scattered(rng):
    """Rows in the order of time have labels that go together; groups don't follow it."""
    ids = torch.arange(4000)
    member = members(averaged(torch.randn(4000, 2, generator=rng), rng, 40, ids))
    late = torch.zeros(100).index_add_(0, member, (ids >= 2000).float())
    assert late.mean().item() == 20
    assert late.var().item() == pytest.approx(40 * 0.25, rel=0.6)


def test_one_message_tells_of_a_row_what_a_count_tells(rng):
    """Groups of two, a share p of positives: AUC = 1 - p (1 - p) / 2 of the better of the two classes' counts; a whole batch
    tells nothing."""
    n, p = 20_000, 0.25
    y = (torch.rand(n, generator=rng) < p).long()
    g = (p - y)[:, None] * torch.nn.functional.normalize(torch.randn(16, generator=rng), dim=0)
    expected = 1 - p * (1 - p) / 2
    read = scores_of(Direct(), gradients(averaged(g, rng, 2)), shares(p))
    assert auc(read.double().round(decimals=5), y) == pytest.approx(expected, abs=0.01)
    whole = scores_of(Direct(), gradients(averaged(g, rng)), shares(p))
    assert math.isclose(auc(whole.double().round(decimals=9), y), 0.5)
