import math

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from torch.nn import functional as F

from vflbench.defenses.label_dp import class_losses
from vflbench.defenses.tpsl import Tpsl
from vflbench.metrics.privacy import Exposure, leak_auc_ceiling
from vflbench.numerics.auc import auc


def network(rng, classes, n=30, d=6):
    """Embeddings, and a top with a hidden layer that gives their logits."""
    h = torch.randn(n, d, generator=rng, dtype=torch.float64).requires_grad_()
    first = torch.randn(d, 8, generator=rng, dtype=torch.float64)
    last = torch.randn(8, 1 if classes == 2 else classes, generator=rng, dtype=torch.float64)
    return h, (h @ first).tanh() @ last


def gradient_were_it(h, logits, y):
    """(n, d): the gradient of each row, times n, had it class y (n,)."""
    losses = class_losses(logits).gather(1, y[:, None])
    return torch.autograd.grad(losses.sum(), h, retain_graph=True)[0]


def test_the_gradient_of_two_classes_moves_by_u_along_the_difference_that_the_label_makes(rng):
    for noise in ("laplace", "bernoulli"):
        h, logits = network(rng, 2)
        y = torch.randint(2, (30,), generator=rng)
        defense = Tpsl(noise=noise)
        loss = defense.loss(logits, defense.labels(y, logits.detach(), drawing(rng)))
        (sent,) = torch.autograd.grad(loss, h, retain_graph=True)
        u = (1 - 2 * y) * (defense._targets[:, 1] - y)  # t = y + (1 - 2 y) u
        g, other = gradient_were_it(h, logits, y), gradient_were_it(h, logits, 1 - y)
        assert torch.allclose(30 * sent, g + u[:, None] * (other - g)), noise
        assert u.abs().max() > 0.5, noise


def test_the_gradient_of_k_classes_gets_a_multiple_of_that_of_each_class(rng):
    h, logits = network(rng, 4)
    y = torch.randint(4, (30,), generator=rng)
    defense = Tpsl()
    loss = defense.loss(logits, defense.labels(y, logits.detach(), drawing(rng)))
    (sent,) = torch.autograd.grad(loss, h, retain_graph=True)
    u = defense._targets - F.one_hot(y, 4)
    expected = gradient_were_it(h, logits, y)
    for c in range(4):
        expected = expected + u[:, c, None] * gradient_were_it(h, logits, torch.full((30,), c))
    assert torch.allclose(30 * sent, expected)


def test_noise_is_laplace_of_scale_1_over_eps_or_2_over_eps_and_new_at_each_call(rng):
    n, eps = 50_000, 0.5
    for classes, scale in ((2, 1 / eps), (3, 2 / eps)):
        y = torch.randint(classes, (n,), generator=rng)
        defense, draws = Tpsl(eps=eps), []
        for _ in range(2):
            defense.labels(y, torch.zeros(n, 1 if classes == 2 else classes), drawing(rng, torch.arange(n)))
            noise = defense._targets - F.one_hot(y, classes)
            draws.append(noise)
            for column in noise.T:
                assert stats.kstest(column.numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-4, classes
        if classes == 2:  # one number, in both columns
            assert torch.allclose(noise[:, 0], -noise[:, 1], atol=1e-12)
        else:
            assert torch.corrcoef(noise.T).triu(1).abs().max() < 5 / math.sqrt(n)
        assert abs(np.corrcoef(draws[0][:, 0], draws[1][:, 0])[0, 1]) < 5 / math.sqrt(n), classes


@pytest.mark.parametrize("noise", ["laplace", "bernoulli"])
def test_the_best_reader_joins_epochs_and_stays_below_the_composed_ceiling(rng, noise):
    """Laplace's log-likelihood ratio of a residual with noise is eps (|t| - |t - 1|); that of a flipped label +-eps."""
    n, eps, epochs = 60_000, 0.5, 6
    y = (torch.rand(n, generator=rng) < 0.25).long()
    defense, told, after = Tpsl(eps=eps, noise=noise), torch.zeros(n, dtype=torch.float64), []
    for _ in range(epochs):
        defense.labels(y, torch.zeros(n, 1), drawing(rng, torch.arange(n)))
        t = defense._targets[:, 1]
        told += eps * (t.abs() - (t - 1).abs())
        after.append(auc(told, y))
    ceilings = [Tpsl(eps=eps).guarantee().leak_auc_after(Exposure(epochs=k)) for k in range(1, epochs + 1)]
    assert ceilings == [leak_auc_ceiling(eps, k) for k in range(1, epochs + 1)]
    assert after[-1] > after[0] + 0.1
    if noise == "bernoulli":
        assert after == pytest.approx(ceilings, abs=0.01)
    else:
        assert after[0] == pytest.approx(1 - math.exp(-eps) * (2 + eps) / 4, abs=0.01)  # two Laplace numbers, 1 apart
        assert all(reading < ceiling for reading, ceiling in zip(after, ceilings, strict=True))
