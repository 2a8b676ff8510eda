import math

import pytest
import torch
from scipy import stats

from vflbench.metrics.canary import Guesses, guess
from vflbench.numerics.interval import least_probability


def test_clopper_pearson_is_the_inverse_of_the_binomial_tail():
    for right, n, alpha in ((1, 1, 0.05), (30, 40, 0.01), (40, 40, 1e-4), (999, 1000, 0.001)):
        p = least_probability(right, n, alpha)
        assert stats.binom.sf(right - 1, n, p) == pytest.approx(alpha)
    assert least_probability(0, 10, 0.05) == 0
    assert least_probability(0, 0, 0.05) == 0


@pytest.mark.parametrize("eps", [0.3, 1.0, 3.0])
def test_the_bound_holds_as_often_as_it_says_and_is_not_idle(eps):
    """Guesses as good as eps allows: the bound is above eps in a share alpha of trials at most."""
    keep, rng = 1 / (1 + math.exp(-eps)), torch.Generator().manual_seed(0)
    wrong, bounds = 0, []
    for _ in range(2000):
        high, low = (int((torch.rand(4000, generator=rng) < keep).sum()) for _ in range(2))
        bounds.append(Guesses(4000, high, 4000, low).epsilon_low(0.05))
        wrong += bounds[-1] > eps
    assert wrong / 2000 <= 0.05
    assert sum(bounds) / 2000 > 0.6 * eps


@pytest.mark.parametrize(
    "turned", [Guesses(0, 0, 200, 0), Guesses(200, 0, 0, 0), Guesses(200, 200, 0, 0), Guesses(200, 100, 200, 200)], ids=str
)
def test_any_of_the_four_ways_to_guess_well_counts(turned):
    assert turned.epsilon_low(0.01) > 3


def test_no_guesses_and_poor_ones_prove_nothing():
    assert Guesses().epsilon_low(0.01) == 0
    assert Guesses(50, 25, 50, 25).epsilon_low(0.01) == 0
    assert Guesses(1, 1, 1, 1).epsilon_low(0.01) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_threshold_comes_from_the_other_rows(sign):
    """No canary's label moves it; a score that is turned round finds it as well."""
    positive = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0]).bool()
    scores = sign * torch.tensor([1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 7.5, 2.5])
    canary = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]).bool()
    found = guess(scores, positive, canary)
    assert found == (Guesses(1, 1, 1, 1) if sign == 1 else Guesses(1, 0, 1, 0))
    other = guess(scores, positive ^ canary, canary)
    assert (other.high, other.low) == (found.high, found.low)


def test_one_class_or_no_other_rows_still_give_guesses():
    scores, canary = torch.arange(6.0), torch.tensor([1, 1, 0, 0, 0, 0]).bool()
    assert guess(scores, torch.zeros(6).bool(), canary).total == 2
    assert guess(scores, torch.zeros(6).bool(), torch.ones(6).bool()).total == 6
