import math

import numpy as np
import pytest
import torch
from sklearn import metrics

from vflbench.metrics.utility import DependenceTable, model_utility
from vflbench.numerics.distance_correlation import distance_correlation


def calibration_of(hits, probability, bins=15):
    """The ratio, and Guo's expected calibration error with its bins (k / 15, (k + 1) / 15] one after the other."""
    ece = 0.0
    for low in np.arange(bins) / bins:
        inside = (probability > low) & (probability <= low + 1 / bins)
        if inside.any():
            gap = abs(hits[inside].double().mean() - probability[inside].mean())
            ece += float(gap * inside.double().mean())
    return float(probability.sum() / hits.sum()), ece


@pytest.mark.parametrize("classes", [2, 4])
def test_figures_agree_with_scikit_learn(rng, classes):
    logits = torch.randn(500, 1 if classes == 2 else classes, generator=rng)
    y = torch.randint(classes, (500,), generator=rng)
    chances = (torch.cat([torch.zeros_like(logits), logits], 1) if classes == 2 else logits).double().softmax(1)
    ours, answer = model_utility(logits, y), chances.argmax(1)
    sure, hits = (chances[:, 1], y == 1) if classes == 2 else (chances.amax(1), answer == y)
    assert ours["log_loss"] == pytest.approx(metrics.log_loss(y, chances))
    assert ours["accuracy"] == metrics.accuracy_score(y, answer)
    assert (ours["calibration"], ours["ece"]) == pytest.approx(calibration_of(hits, sure))
    one_against_rest = [metrics.roc_auc_score(y == k, chances[:, k]) for k in range(classes)]
    assert ours["auc"] == pytest.approx(sum(one_against_rest) / classes)


def test_what_a_missing_class_leaves_undefined_and_nothing_else_fails(rng):
    ours = model_utility(torch.randn(20, 3, generator=rng), torch.tensor([0, 1] * 10))
    assert math.isnan(ours["auc"])
    assert math.isfinite(ours["log_loss"])
    without_positives = model_utility(torch.tensor([[40.0], [-40.0]]), torch.tensor([0, 0]))
    assert math.isnan(without_positives["calibration"])
    assert without_positives["ece"] == pytest.approx(0.5)


PLACE = ("a", "f5", True)


def test_the_mean_over_batches_of_both_classes_of_their_first_rows(rng):
    table, values = DependenceTable(), []
    for n in (50, 1500):
        x, y = torch.randn(n, 4, generator=rng), torch.randint(2, (n,), generator=rng)
        table.add(PLACE, x, y)
        values.append(distance_correlation(x[:1024], y[:1024]).item())
    table.add(PLACE, x, torch.zeros(1500, dtype=torch.long))  # a batch of one class is left out
    (dependence,) = table.entries()
    assert (dependence.party, dependence.layer, dependence.visible) == PLACE
    assert dependence.dcor.mean == pytest.approx(sum(values) / 2)
