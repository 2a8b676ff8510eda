import torch
from attacks.views import gradients, scores_of, shares
from defenses.contexts import drawing

from vflbench.attacks.recurrence import Recurrence
from vflbench.attacks.remainder import Remainder
from vflbench.defenses.marvell import Marvell, leak_auc_bound
from vflbench.numerics.auc import auc

PRIOR = 0.25


def network_gradients(rng, n=512, d=32, patterns=30):
    """(p - y) J, with one of a few J for each row, which all share a direction."""
    y = (torch.rand(n, generator=rng) < PRIOR).long()
    basis = torch.linalg.qr(torch.randn(d, 9, generator=rng)).Q
    j = torch.cat([torch.ones(patterns, 1), 0.3 * torch.randn(patterns, 8, generator=rng)], dim=1) @ basis.T
    p = (PRIOR + 0.1 * torch.randn(n, generator=rng)).clamp(0.02, 0.98)
    return (p - y)[:, None] * j[torch.randint(patterns, (n,), generator=rng)], y


def mean_leak(noise, rng, make=Recurrence, exchanged=False):
    """Of six batches. exchanged: classes and shares."""
    defense, attack, leaks = Marvell(noise=noise), make(), []
    for _ in range(6):
        g, y = network_gradients(rng)
        sent = gradients(defense.gradient(g, y, drawing(rng)))
        leaks.append(auc(scores_of(attack, sent, shares(1 - PRIOR if exchanged else PRIOR)), 1 - y if exchanged else y))
    return sum(leaks) / 6


def test_it_reads_noise_that_makes_covariances_equal_and_the_remainder_does_not(rng):
    assert mean_leak("full", rng) > 0.9
    assert mean_leak("full", rng, Remainder) < leak_auc_bound(0.16)


def test_it_names_the_class_that_recurs_where_negatives_do(rng):
    assert mean_leak("full", rng, exchanged=True) > 0.9


def test_it_reads_nothing_where_both_classes_get_the_same_noise(rng):
    assert abs(mean_leak("shared", rng) - 0.5) < 0.08
