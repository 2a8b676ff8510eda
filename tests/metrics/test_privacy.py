import math

import numpy as np
import pytest
from scipy import stats

from vflbench.metrics.privacy import Exposure, Ledger, Release, error_floor, leak_auc_ceiling


def test_one_release_has_the_closed_forms():
    for eps in (0.01, 0.5, 1.0, 4.0, 30.0):
        assert leak_auc_ceiling(eps) == pytest.approx(math.exp(eps) / (1 + math.exp(eps))), eps
        assert error_floor(eps) == pytest.approx(1 / (1 + math.exp(eps))), eps


def test_many_releases_are_distinguished_by_their_counts():
    keep = math.e / (1 + math.e)
    for n in (2, 3, 10, 400):
        ones, zeros = stats.binom(n, keep).pmf(np.arange(n + 1)), stats.binom(n, 1 - keep).pmf(np.arange(n + 1))
        above = np.tril(np.outer(ones, zeros), -1).sum() + 0.5 * (ones * zeros).sum()
        assert leak_auc_ceiling(1.0, n) == pytest.approx(above), n
        assert error_floor(1.0, n) == pytest.approx(0.5 * np.minimum(ones, zeros).sum()), n
        assert leak_auc_ceiling(1.0, n) <= 1 / (1 + math.exp(-n)) + 1e-12, n
    assert leak_auc_ceiling(1.0, 10) == pytest.approx(0.985, abs=5e-4)


def least_epsilon(n, eps, delta):
    """(eps', delta) of n binary randomized responses from their binomial counts, by bisection."""
    k = np.arange(n + 1)
    loss = (2 * k - n) * eps
    chance = stats.binom(n, math.exp(eps) / (1 + math.exp(eps))).pmf(k)
    low, high = 0.0, n * eps
    for _ in range(60):
        middle = (low + high) / 2
        divergence = (chance * np.clip(1 - np.exp(middle - loss), 0, None)).sum()
        low, high = (low, middle) if divergence <= delta else (middle, high)
    return high


@pytest.mark.slow
def test_the_ledger_composes_epochs_as_the_binomial_does():
    for n, eps in ((2, 1.0), (10, 1.0), (50, 0.2)):
        ledger = Ledger()
        ledger.add("label_dp", Release("randomized_response", eps, fresh=True), Exposure(epochs=n, messages=3 * n))
        assert ledger.epsilon == pytest.approx(n * eps)
        for delta in (1e-6, 1e-3):
            exact, case = least_epsilon(n, eps, delta), f"n={n} eps={eps} delta={delta}"
            assert exact * (1 - 1e-6) <= ledger.epsilon_at(delta) <= exact + 0.02, case
            assert ledger.epsilon_at(delta) <= ledger.epsilon, case


def test_the_ledger_composes_several_defenses_and_counts_a_kept_release_once():
    ledger, seen = Ledger(), Exposure(epochs=5, messages=10)
    ledger.add("first", Release("randomized_response", 0.5), seen)
    ledger.add("second", Release("lp_2st", 2.0, fresh=True), seen)
    assert [(name, count) for name, _, count in ledger.entries] == [("first", 1), ("second", 5)]
    assert ledger.epsilon == pytest.approx(10.5)
    assert 8 < ledger.epsilon_at(1e-3) < 10.5


def test_a_single_release_is_pure():
    ledger = Ledger()
    assert ledger.epsilon == ledger.epsilon_at(1e-6) == 0.0
    ledger.add("label_dp", Release("randomized_response", 1.0), Exposure(epochs=7, messages=7))
    assert ledger.epsilon == ledger.epsilon_at(1e-6) == 1.0
