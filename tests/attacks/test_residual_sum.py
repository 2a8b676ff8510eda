import math

import pytest
import torch
from attacks.epochs import ask, ordered, show
from scipy import stats

from vflbench.attacks.residual_sum import ResidualSum
from vflbench.defenses.label_gdp import gaussian_likelihood
from vflbench.defenses.label_noise import posterior
from vflbench.numerics.auc import auc
from vflbench.numerics.hashing import normals

ROWS, D, EPOCHS, MU = 20_000, 6, 4, 0.661


def planted(rng):
    """Labels, logits that tell of them, and embeddings along which logits rise."""
    logits = torch.randn(ROWS, generator=rng, dtype=torch.float64) - 1.2
    y = (torch.rand(ROWS, generator=rng, dtype=torch.float64) < logits.sigmoid()).long()
    along = torch.nn.functional.normalize(torch.randn(D, generator=rng), dim=0)
    return y, logits, logits[:, None].float() * along + 0.05 * torch.randn(ROWS, D, generator=rng), along


def attacked(rng, logits, h, along, y, *, target, attack):
    """Scores, and the log odds of a reader who knows all: of logits and noise alike. The gradient of the logit has a length
    that grows with it.
    """
    mu, best, length = MU / math.sqrt(EPOCHS), logits.clone(), (0.3 * logits).exp()
    for epoch in range(EPOCHS):
        x = y + normals(torch.arange(ROWS), 5, epoch, 1)[:, 0] / mu
        likelihood = gaussian_likelihood(x[:, None], mu)
        best += likelihood[:, 0]
        sent = x if target == "estimate" else posterior(logits[:, None], likelihood)[:, 0]
        g = ((logits.sigmoid() - sent) * length)[:, None].float() * along
        show(attack, g, h, batch=1000, epoch=epoch, rng=rng)
    return ordered(ask(attack, h)), best


@pytest.mark.parametrize("target", ["estimate", "posterior"])
def test_it_reads_what_one_reads_who_knows_all(rng, target):
    y, logits, h, along = planted(rng)
    scores, best = attacked(rng, logits, h, along, y, target=target, attack=ResidualSum())
    folded = max(auc(scores, y), 1 - auc(scores, y))
    assert auc(best, y) > auc(logits, y) + 0.03
    assert folded > auc(best, y) - 0.008
    assert folded < auc(best, y) + 0.002


def test_without_features_it_reads_the_ceiling(rng):
    y, logits, h, along = planted(rng)
    y = y[torch.randperm(ROWS, generator=rng)]
    scores, _ = attacked(rng, logits, h, along, y, target="posterior", attack=ResidualSum(weight=0))
    folded = max(auc(scores, y), 1 - auc(scores, y))
    assert folded == pytest.approx(stats.norm.cdf(MU / math.sqrt(2)), abs=0.015)
