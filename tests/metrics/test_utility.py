import math

import pytest
import torch
from sklearn import metrics

from vflbench.metrics.utility import utility


def test_two_classes_agree_with_scikit_learn(rng):
    logits, y = torch.randn(500, 1, generator=rng), torch.randint(2, (500,), generator=rng)
    probability = logits[:, 0].double().sigmoid()
    ours = utility(logits, y)
    assert ours["auc"] == pytest.approx(metrics.roc_auc_score(y, probability))
    assert ours["log_loss"] == pytest.approx(metrics.log_loss(y, probability))
    assert ours["accuracy"] == metrics.accuracy_score(y, probability > 0.5)


def test_many_classes_agree_with_scikit_learn(rng):
    logits, y = torch.randn(500, 4, generator=rng), torch.randint(4, (500,), generator=rng)
    probability = logits.double().softmax(1)
    ours = utility(logits, y)
    assert ours["log_loss"] == pytest.approx(metrics.log_loss(y, probability))
    assert ours["accuracy"] == metrics.accuracy_score(y, probability.argmax(1))
    one_against_rest = [metrics.roc_auc_score(y == k, probability[:, k]) for k in range(4)]
    assert ours["auc"] == pytest.approx(sum(one_against_rest) / 4)


def test_a_missing_class_leaves_auc_undefined_and_the_rest_defined(rng):
    ours = utility(torch.randn(20, 3, generator=rng), torch.tensor([0, 1] * 10))
    assert math.isnan(ours["auc"])
    assert math.isfinite(ours["log_loss"])
