from statistics import NormalDist

import pytest
import torch
from attacks.epochs import ask, show
from defenses.contexts import drawing

from vflbench.attacks.directions import Directions
from vflbench.defenses.max_norm import MaxNorm
from vflbench.numerics.auc import auc

ROWS, WIDTH, PRIOR = 20_000, 32, 0.25


def planted(rng, gap, loud=10.0):
    """Gaussian classes `gap` standard deviations apart, beside a direction without labels of loud^2 times the variance.

    Returns embeddings (n, d), classes, and the direction of the classes, which the Bayes-optimal attacker projects on.
    """
    y = torch.rand(ROWS, generator=rng) < PRIOR
    axes = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=rng, dtype=torch.float64)).Q.float()
    x = torch.randn(ROWS, WIDTH, generator=rng)
    x[:, 0] *= loud
    x[:, 1] += gap * y
    return x @ axes.T + 3.0, y, axes[:, 1], axes[:, 0]


def gradients_of(x, y, gap, axis, rng, noise=0.0):
    """Those of the Bayes-optimal logit by the embeddings."""
    mean = x @ axis - gap * PRIOR
    logit = gap * (mean - mean.mean()) - gap**2 / 2 * (1 - 2 * PRIOR) + torch.log(torch.tensor(PRIOR / (1 - PRIOR)))
    return (logit.sigmoid() - y.float())[:, None] * axis * gap + noise * torch.randn(x.shape, generator=rng)


def run(x, g, prior=PRIOR):
    """What it answers at the end of an epoch with eight audited batches, whose rows are the first ones."""
    attack = Directions()
    show(attack, g[:4096], prior=prior)
    return ask(attack, x, prior=prior)


def oriented_best(candidates, y):
    return max(max(area, 1 - area) for area in (auc(column, y) for column in candidates.T))


@pytest.mark.parametrize("gap", [1.2, 2.0])
def test_the_choice_and_the_best_candidate_reach_the_bayes_optimal_attacker(rng, gap):
    x, y, axis, loud = planted(rng, gap)
    bayes = auc(x @ axis, y)
    assert bayes == pytest.approx(NormalDist().cdf(gap / 2**0.5), abs=0.01)
    g = gradients_of(x, y, gap, axis, rng, noise=0.1)
    g += 0.2 * torch.randn(ROWS, 1, generator=rng) * loud  # what a penalty adds, which pulls along the loud direction
    answer = run(x, g)
    assert auc(answer.layers["f1"], y) > bayes - 0.01
    assert answer.candidates["f1"].shape == (ROWS, 9)
    singular = answer.candidates["f1"][:, 1:]
    assert auc(singular[:, 0], y) == pytest.approx(0.5, abs=0.02)  # the loud one
    assert oriented_best(singular, y) > bayes - 0.01


def test_scaling_the_loud_direction_down_is_what_saves_a_noisy_choice(rng):
    x, y, axis, loud = planted(rng, gap=1.5, loud=30.0)
    g = gradients_of(x, y, 1.5, axis + 0.1 * loud, rng)
    centred = x - x.mean(dim=0)
    assert auc(centred @ (axis + 0.1 * loud), y) < 0.7
    assert auc(run(x, g).layers["f1"], y) > auc(x @ axis, y) - 0.01


def test_where_messages_say_nothing_it_is_a_coin(rng):
    x, y, axis, _ = planted(rng, gap=0.0)
    for g in (gradients_of(x, y, 1.5, axis, rng), torch.randn(x.shape, generator=rng)):
        answer = run(x, g)
        assert auc(answer.layers["f1"], y) == pytest.approx(0.5, abs=0.02)
        assert oriented_best(answer.candidates["f1"], y) < 0.52


def test_more_positives_and_max_norm_turn_the_sign_round(rng):
    """With its noise the third moment of a coefficient c is 3 max^2 c - 2 c^3, and the mean of c is zero."""
    x, y, axis, _ = planted(rng, gap=2.0)
    g = gradients_of(x, y, 2.0, axis, rng)
    assert auc(run(x, g, prior=1 - PRIOR).layers["f1"], ~y) > 0.9  # the logit of the other class falls with p
    assert auc(run(x, MaxNorm().gradient(g, y.long(), drawing(rng))).layers["f1"], ~y) > 0.9
