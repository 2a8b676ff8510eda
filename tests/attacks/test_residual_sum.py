import math

import pytest
import torch
from attacks.views import shares, view_of
from scipy import stats

from vflbench.attacks.residual_sum import ResidualSum
from vflbench.defenses.label_gdp import gaussian_likelihood
from vflbench.defenses.label_noise import posterior
from vflbench.messages.facts import Embeddings, Gradients, LocalModel
from vflbench.messages.threat import View
from vflbench.numerics.auc import auc
from vflbench.numerics.hashing import normals

ROWS, D, MU = 20_000, 6, 0.661


def planted(rng):
    """Labels, logits that tell of them, and embeddings along which logits rise."""
    logits = torch.randn(ROWS, generator=rng, dtype=torch.float64) - 1.2
    y = (torch.rand(ROWS, generator=rng, dtype=torch.float64) < logits.sigmoid()).long()
    along = torch.nn.functional.normalize(torch.randn(D, generator=rng), dim=0)
    return y, logits, logits[:, None].float() * along + 0.05 * torch.randn(ROWS, D, generator=rng), along


def attacked(rng, logits, h, along, y, *, target, epochs=4, attack=None):
    """Scores, and the log odds of a reader who knows all: of logits and noise alike. The gradient of the logit has a length
    that grows with it.
    """
    attack = attack or ResidualSum()
    mu, p = MU / math.sqrt(epochs), logits.sigmoid()
    length = (0.3 * logits).exp()
    best = logits.clone()
    for epoch in range(epochs):
        x = y + normals(torch.arange(ROWS), 5, epoch, 1)[:, 0] / mu
        likelihood = gaussian_likelihood(x[:, None], mu)
        best += likelihood[:, 0]
        told = x if target == "estimate" else posterior(logits[:, None], likelihood)[:, 0]
        g = ((p - told) * length)[:, None].float() * along
        for ids in torch.randperm(ROWS, generator=rng).split(1000):
            facts = (Gradients({"f1": g[ids]}), Embeddings({"f1": h[ids]}), LocalModel(lambda ids: {"f1": h[ids]}))
            attack.observe(view_of(attack.threat, *facts, shares(0.25), ids=ids, epoch=epoch))
    asked = torch.arange(ROWS)
    known = {LocalModel: LocalModel(lambda ids: {"f1": h[ids]}), type(shares(0.25)): shares(0.25)}
    answer = attack.epoch(View("a", epochs, None, asked, rng, attack.threat, known))
    assert torch.equal(answer.ids, asked)
    return answer.layers["f1"], best


@pytest.mark.parametrize("target", ["estimate", "posterior"])
def test_it_reads_what_one_reads_who_knows_all(rng, target):
    y, logits, h, along = planted(rng)
    scores, best = attacked(rng, logits, h, along, y, target=target)
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
