import pytest
import torch
from attacks.epochs import along, read
from defenses.contexts import drawing
from scipy import stats

from vflbench.attacks.alignment import Alignment
from vflbench.defenses.max_norm import MaxNorm
from vflbench.numerics.auc import auc


def protected(rng, positive, n=20_000):
    """Max-norm gradients of residuals that add up to 0: the rarer class has length 0.8 in units of the longest, the other
    less. Returns them, the labels, and the true log odds.
    """
    y = torch.rand(n, generator=rng) < positive
    rare, common = 0.8, 0.8 * min(positive, 1 - positive) / max(positive, 1 - positive)
    a, b = (rare, common) if positive < 0.5 else (common, rare)
    g = along(rng, torch.where(y, -a, b).float(), other=0.0)
    direction = g[0] / g[0].norm() * (-1 if y[0] else 1)
    g[0] = g[0] / g[0].norm()
    z = (sent := MaxNorm().gradient(g, y.long(), drawing(rng))) @ direction
    odds = stats.norm.logpdf(z, -a, (1 - a**2) ** 0.5) - stats.norm.logpdf(z, b, (1 - b**2) ** 0.5)
    return sent, y, torch.from_numpy(odds)


@pytest.mark.parametrize("positive", [0.1, 0.75])
def test_the_bayes_optimal_detector_of_max_norm_gradients_is_reached(rng, positive):
    g, y, odds = protected(rng, positive)
    for units in (1.0, -1e-9):
        assert auc(read(Alignment(), (units * g).split(1000), positive), y) == pytest.approx(auc(odds, y), abs=0.01)
