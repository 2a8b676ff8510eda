import math

import numpy as np
import pytest
import torch
from sklearn import metrics

from vflbench.metrics.utility import model_utility


def calibration_of(hits, probability, bins=15):
    """The ratio, and Guo's expected calibration error with its bins (k / 15, (k + 1) / 15] one after the other."""
    ece = 0.0
    for low in np.arange(bins) / bins:
        inside = (probability > low) & (probability <= low + 1 / bins)
        if inside.any():
            gap = abs(hits[inside].double().mean() - probability[inside].mean())
            ece += float(gap * inside.double().mean())
    return float(probability.sum() / hits.sum()), ece


def test_two_classes_agree_with_scikit_learn(rng):
    logits, y = torch.randn(500, 1, generator=rng), torch.randint(2, (500,), generator=rng)
    probability = logits[:, 0].double().sigmoid()
    ours = model_utility(logits, y)
    assert ours["auc"] == pytest.approx(metrics.roc_auc_score(y, probability))
    assert ours["log_loss"] == pytest.approx(metrics.log_loss(y, probability))
    assert ours["accuracy"] == metrics.accuracy_score(y, probability > 0.5)
    assert (ours["calibration"], ours["ece"]) == pytest.approx(calibration_of(y == 1, probability))


def test_many_classes_agree_with_scikit_learn(rng):
    logits, y = torch.randn(500, 4, generator=rng), torch.randint(4, (500,), generator=rng)
    probability = logits.double().softmax(1)
    ours = model_utility(logits, y)
    assert ours["log_loss"] == pytest.approx(metrics.log_loss(y, probability))
    assert ours["accuracy"] == metrics.accuracy_score(y, probability.argmax(1))
    assert (ours["calibration"], ours["ece"]) == pytest.approx(
        calibration_of(probability.argmax(1) == y, probability.amax(1))
    )
    one_against_rest = [metrics.roc_auc_score(y == k, probability[:, k]) for k in range(4)]
    assert ours["auc"] == pytest.approx(sum(one_against_rest) / 4)


def test_what_a_missing_class_leaves_undefined_and_nothing_else_fails(rng):
    ours = model_utility(torch.randn(20, 3, generator=rng), torch.tensor([0, 1] * 10))
    assert math.isnan(ours["auc"])
    assert math.isfinite(ours["log_loss"])
    without_positives = model_utility(torch.tensor([[40.0], [-40.0]]), torch.tensor([0, 0]))
    assert math.isnan(without_positives["calibration"])
    assert without_positives["ece"] == pytest.approx(0.5)


def test_a_constant_at_the_base_rate_is_calibrated_and_one_at_twice_the_rate_is_not():
    y = torch.tensor([1, 0, 0, 0] * 25)
    right, twice = (model_utility(torch.full((100, 1), rate).logit(), y) for rate in (0.25, 0.5))
    assert (right["calibration"], right["ece"]) == pytest.approx((1, 0), abs=1e-7)
    assert (twice["calibration"], twice["ece"]) == pytest.approx((2, 0.25))
