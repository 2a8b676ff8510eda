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


def test_the_bound_is_wrong_in_a_share_alpha_of_trials_at_most_and_is_not_trivial():
    """For guesses as good as eps allows."""
    for eps in (0.3, 1.0, 3.0):
        keep, rng = 1 / (1 + math.exp(-eps)), torch.Generator().manual_seed(0)
        wrong, bounds = 0, []
        for _ in range(1000):
            high, low = (int((torch.rand(4000, generator=rng) < keep).sum()) for _ in range(2))
            bounds.append(Guesses(4000, high, 4000, low).epsilon_low(0.05))
            wrong += bounds[-1] > eps
        assert wrong / 1000 <= 0.05, eps
        assert sum(bounds) / 1000 > 0.6 * eps, eps


@pytest.mark.parametrize(
    ("counts", "proves"),
    [
        ((0, 0, 200, 0), True),
        ((200, 0, 0, 0), True),
        ((200, 200, 0, 0), True),
        ((200, 100, 200, 200), True),
        ((0, 0, 0, 0), False),
        ((50, 25, 50, 25), False),
        ((1, 1, 1, 1), False),
    ],
)
def test_each_of_the_four_shares_can_prove_eps_and_no_guesses_and_poor_ones_cannot(counts, proves):
    low = Guesses(*counts).epsilon_low(0.01)
    assert low > 3 if proves else low == 0


def test_the_threshold_comes_from_the_other_rows():
    """No label of a canary moves it. A reversed score gives the same threshold."""
    positive = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0]).bool()
    canary = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]).bool()
    for sign, expected in ((1, Guesses(1, 1, 1, 1)), (-1, Guesses(1, 0, 1, 0))):
        scores = sign * torch.tensor([1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 7.5, 2.5])
        assert guess(scores, positive, canary) == expected
        other = guess(scores, positive ^ canary, canary)
        assert (other.high, other.low) == (expected.high, expected.low)


def test_one_class_or_no_other_rows_still_give_guesses():
    scores, canary = torch.arange(6.0), torch.tensor([1, 1, 0, 0, 0, 0]).bool()
    assert guess(scores, torch.zeros(6).bool(), canary).total == 2
    assert guess(scores, torch.zeros(6).bool(), torch.ones(6).bool()).total == 6
