import math

import pytest
import torch
from attacks.epochs import ask, ordered, show

from vflbench.attacks.posterior import Posterior
from vflbench.numerics.auc import auc

ROWS, WIDTH, PRIOR = 4096, 16, 0.25
AXIS = torch.zeros(WIDTH).index_fill_(0, torch.tensor([0]), 1.0)


def planted(rng, gap, flipped=0.0):
    """Gaussian classes. Returns embeddings (n, d), true and released classes, odds of a true one and p of a released one."""
    y = torch.rand(ROWS, generator=rng) < PRIOR
    x = torch.randn(ROWS, WIDTH, generator=rng)
    x[:, 0] += gap * y
    odds = gap * x[:, 0] - gap**2 / 2 + math.log(PRIOR / (1 - PRIOR))
    released = y ^ (torch.rand(ROWS, generator=rng) < flipped)
    return x, y, released, odds, flipped + (1 - 2 * flipped) * odds.sigmoid()


def along(a, rng):
    """What max-norm alignment makes of residuals a (n,), in units of the longest."""
    a = a / a.abs().max()
    return (a + (1 - a.square()).sqrt() * torch.randn(ROWS, generator=rng))[:, None] * AXIS


def of_along(z, a):
    v = (1 - a.square()).clamp_min(0.02)  # of the other label it can be the longest
    return -0.5 * (z - a).square() / v - 0.5 * v.log()


def reached(x, epochs, y):
    """AUC of the answer after these epochs, gradients (n, d) each, in rounds of 64 rows."""
    attack = Posterior()
    for epoch, g in enumerate(epochs):
        show(attack, g, batch=64, epoch=epoch)
    return auc(ordered(ask(attack, x)), y)


@pytest.mark.slow
def test_under_noise_along_gradients_it_is_near_the_bayes_optimal_attacker_and_knows_the_sign(rng):
    x, y, released, odds, p = planted(rng, gap=1.0)
    a, unit = p - released.float(), (p - released.float()).abs().max()
    epochs = [along(a, rng) for _ in range(3)]
    best = odds + sum(of_along(g[:, 0], (p - 1) / unit) - of_along(g[:, 0], p / unit) for g in epochs)
    assert reached(x, epochs, y) > auc(best, y) - 0.02


@pytest.mark.slow
def test_under_isotropic_noise_it_is_near_the_bayes_optimal_attacker(rng):
    x, y, released, odds, p = planted(rng, gap=1.0)
    a = p - released.float()
    epochs = [a[:, None] * AXIS + 0.5 * torch.randn(ROWS, WIDTH, generator=rng) for _ in range(2)]
    best = odds + sum(p - 0.5 - g[:, 0] for g in epochs) / 0.25
    area = reached(x, epochs, y)
    assert area > auc(best, y) - 0.01
    assert area > reached(x, epochs[:1], y) + 0.02  # noise that is drawn afresh averages out


@pytest.mark.slow
def test_on_randomized_labels_it_is_near_the_bayes_optimal_attacker(rng):
    x, y, released, odds, p = planted(rng, gap=1.5, flipped=1 / (1 + math.exp(1.0)))
    g = (p - released.float())[:, None] * AXIS + 0.01 * torch.randn(ROWS, WIDTH, generator=rng)
    best = odds + 2 * released.float() - 1
    assert reached(x, [g], y) > auc(best, y) - 0.015


def test_an_undefended_gradient_is_the_label(rng):
    x, y, released, _, p = planted(rng, gap=1.0)
    assert reached(x, [(p - released.float())[:, None] * AXIS], y) > 0.999
