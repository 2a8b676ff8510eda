import math

import pytest
import torch
from support.builders import session, table

from vflbench.defenses.dcor import Dcor
from vflbench.numerics.distance_correlation import distance_correlation


def batch(rng, n=100, d=6):
    y = (torch.rand(n, generator=rng) < 0.3).long()
    return (torch.randn(n, d, generator=rng) + y[:, None]).requires_grad_(), y


def test_penalty_is_the_weighted_logarithm_one_a_party(rng):
    h, y = batch(rng)
    other = torch.randn(100, 3, generator=rng, requires_grad=True)
    expected = sum(math.log(distance_correlation(x.detach(), y)) for x in (h, other))
    assert Dcor(alpha_d=0.5).penalty([h, other], y).item() == pytest.approx(0.5 * expected)
    root = Dcor(alpha_d=0.5, statistic="root").penalty([h, other], y).item()
    assert root == pytest.approx(0.25 * expected)


def test_where_there_is_nothing_to_correlate_there_is_no_penalty_and_it_is_counted(rng):
    h, y = batch(rng)
    defense = Dcor()
    assert float(defense.penalty([h], torch.zeros_like(y))) == 0
    assert float(defense.penalty([torch.ones(100, 6, requires_grad=True)], y)) == 0
    assert defense.figures() == {"constant_batches": 2}
    defense.penalty([h], y)
    assert defense.figures()["constant_batches"] == 0


def test_weight_rises_over_the_warm_up(rng):
    h, y = batch(rng)
    full = Dcor().penalty([h], y).item()
    defense = Dcor(warmup=4)
    weights = [defense.penalty([h], y).item() / full for _ in range(5)]
    assert weights == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_a_round_trains_on_loss_plus_penalty_at_both_ends_of_the_wire(rng):
    rows = table(rng, parties=("a", "b"), rows=100)
    plain, defended = session(rows), session(rows, defenses=(Dcor(alpha_d=10.0),))
    first = [split.round(rows.ids).training.loss for split in (plain, defended)]
    assert first[0] == first[1]  # the same network, before either has learned
    embeddings = [split.parties[0].predict(rows.ids).tensors["f2"] for split in (plain, defended)]
    assert not torch.equal(*embeddings)
    penalties = [defended.round(rows.ids).training.penalty for _ in range(15)]
    assert penalties[-1] < penalties[0] < 0
