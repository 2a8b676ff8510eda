import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from vflbench.numerics.auc import auc


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60))
def test_equals_the_share_of_won_pairs_with_ties_counted_half(rows):
    scores, truth = torch.tensor([float(s) for s, _ in rows]), torch.tensor([y for _, y in rows])
    pairs = [(p > n) + (p == n) / 2 for p in scores[truth] for n in scores[~truth]]
    value = auc(scores, truth)
    assert math.isnan(value) if not pairs else value == pytest.approx(float(sum(pairs)) / len(pairs), abs=1e-12)


def test_agrees_with_scikit_learn(rng):
    truth = torch.rand(20_000, generator=rng) < 0.2
    for dtype in (torch.float32, torch.float64):
        scores = torch.randn(20_000, generator=rng, dtype=dtype).mul(50).round()
        assert auc(scores, truth) == pytest.approx(roc_auc_score(truth.numpy(), scores.numpy()), abs=1e-12), dtype


def test_the_auc_is_nan_without_both_classes_or_with_a_nan():
    assert math.isnan(auc(torch.arange(4.0), torch.ones(4)))
    assert math.isnan(auc(torch.tensor([0.0, math.nan]), torch.tensor([0, 1])))
