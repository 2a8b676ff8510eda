import torch
from attacks.views import gradients, shares, view_of
from defenses.contexts import drawing

from vflbench.attacks.recurrence import Recurrence
from vflbench.attacks.remainder import Remainder
from vflbench.defenses.marvell import Marvell, leak_auc_bound
from vflbench.numerics.auc import auc

PRIOR = 0.25


def network_gradients(rng, n=512, d=32, patterns=30, prior=PRIOR):
    """(p - y) J, with one of a few J for each row, which all share a direction."""
    y = (torch.rand(n, generator=rng) < prior).long()
    basis = torch.linalg.qr(torch.randn(d, 9, generator=rng)).Q
    j = torch.cat([torch.ones(patterns, 1), 0.3 * torch.randn(patterns, 8, generator=rng)], dim=1) @ basis.T
    p = (prior + 0.1 * torch.randn(n, generator=rng)).clamp(0.02, 0.98)
    return (p - y)[:, None] * j[torch.randint(patterns, (n,), generator=rng)], y


def read(attack, g, prior=PRIOR):
    return attack.batch(view_of(attack.threat, gradients(g), shares(prior))).layers["f1"]


def mean_leak(noise, rng, make=Recurrence, prior=PRIOR, batches=6):
    defense, attack, found = Marvell(noise=noise), make(), []
    for _ in range(batches):
        g, y = network_gradients(rng, prior=prior)
        found.append(auc(read(attack, defense.gradient(g, y, drawing(rng)), prior), y))
    return sum(found) / batches


def test_it_reads_noise_that_makes_covariances_equal_and_the_remainder_does_not(rng):
    assert mean_leak("full", rng) > 0.9
    assert mean_leak("full", rng, Remainder) < leak_auc_bound(0.16)


def test_it_names_the_class_that_recurs_where_negatives_do(rng):
    """Classes and shares exchanged."""
    defense, attack, found = Marvell(noise="full"), Recurrence(), []
    for _ in range(6):
        g, y = network_gradients(rng)
        found.append(auc(read(attack, defense.gradient(g, y, drawing(rng)), 1 - PRIOR), 1 - y))
    assert sum(found) / 6 > 0.9


def test_it_reads_nothing_where_both_classes_get_the_same_noise(rng):
    assert abs(mean_leak("shared", rng) - 0.5) < 0.08
