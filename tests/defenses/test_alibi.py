import math

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from torch.nn import functional as F

from vflbench.defenses.alibi import Alibi, row_noise
from vflbench.metrics.privacy import Exposure, leak_auc_ceiling
from vflbench.numerics.auc import auc
from vflbench.numerics.hashing import derived


def test_the_noise_of_a_row_is_laplace_in_each_coordinate_and_independent():
    n, classes, scale = 50_000, 5, 2.0
    noise = row_noise(torch.arange(n), classes, scale, key=12345)
    for column in noise.T:
        assert stats.kstest(column.numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-4
    neighbours = torch.corrcoef(torch.cat([noise[1:], noise[:-1]], dim=1).T)
    assert (neighbours - torch.eye(2 * classes)).abs().max() < 5 / math.sqrt(n)


@pytest.mark.parametrize("prior", ["uniform", "prediction"])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_loss_is_the_cross_entropy_to_the_posterior_by_bayes_rule(rng, classes, prior):
    n, eps = 40, 0.8
    y = torch.randint(classes, (n,), generator=rng)
    logits = torch.randn(n, 1 if classes == 2 else classes, generator=rng, dtype=torch.float64)
    defense = Alibi(eps=eps, prior=prior)
    seen = defense.labels(y, logits, drawing(rng, torch.arange(n)))
    wide = torch.cat([torch.zeros_like(logits), logits], 1) if classes == 2 else logits
    x = F.one_hot(y, classes) + row_noise(torch.arange(n), classes, 2 / eps, derived(defense._key, eps))
    density = stats.laplace(scale=2 / eps).pdf((x[:, None] - torch.eye(classes, dtype=torch.float64)).numpy())
    weighted = torch.from_numpy(density).prod(dim=2) * (wide.softmax(1) if prior == "prediction" else 1)
    assert torch.allclose(defense.loss(logits, seen), F.cross_entropy(wide, weighted / weighted.sum(1, keepdim=True)))
    assert torch.equal(seen, x.argmax(1))


def best_reading(eps):
    """AUC of the likelihood ratio of x, from the distribution of clip(2 x_j - 1, -1, 1) on a grid."""
    scale, edges = 2 / eps, np.linspace(-1, 1, 2001)
    mass = [np.diff(np.r_[0, stats.laplace(loc=place, scale=scale).cdf((edges[:-1] + 1) / 2), 1]) for place in (0, 1)]
    other = np.convolve(mass[0], mass[1][::-1])  # class 0: x_1 - x_0
    own = other[::-1]
    return float((own * (np.cumsum(other) - other / 2)).sum())


@pytest.mark.parametrize("eps", [0.5, 3.0])
def test_the_best_reader_of_all_epochs_stays_below_the_ceiling_and_reads_what_theory_says(rng, eps):
    """The soft labels of all epochs, each less the prediction that the reader knows, tell what one of them does."""
    n = 100_000
    y = (torch.rand(n, generator=rng) < 0.25).long()
    defense, told = Alibi(eps=eps), torch.zeros(n, dtype=torch.float64)
    for _ in range(5):
        logits = torch.randn(n, 1, generator=rng)
        defense.labels(y, logits, drawing(rng, torch.arange(n)))
        told += torch.logit(defense._targets[:, 1]) - logits[:, 0].double()
    reading = auc(told, y)
    assert reading == pytest.approx(best_reading(eps), abs=0.008)
    assert best_reading(eps) < leak_auc_ceiling(eps)
    assert defense.guarantee().leak_auc_after(Exposure(epochs=5, messages=10)) == leak_auc_ceiling(eps) > reading
