import math

import numpy as np
import pytest
from scipy import integrate, stats

from vflbench.metrics.canary import Guesses
from vflbench.metrics.privacy import (
    Exposure,
    GaussianRelease,
    Ledger,
    Release,
    error_floor,
    gaussian_auc_ceiling,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_error_floor,
    leak_auc_ceiling,
)


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


def test_ceilings_are_those_of_two_normals():
    for mu in (0.01, 0.661, 0.935, 3.0):
        area, _ = integrate.quad(lambda t, mu=mu: stats.norm.sf(t - mu) * stats.norm.pdf(t), -12, 12)
        assert gaussian_auc_ceiling(mu) == pytest.approx(area, abs=1e-9)
        assert gaussian_error_floor(mu) == pytest.approx(stats.norm.sf(mu / 2))
    assert gaussian_auc_ceiling(0.661) == pytest.approx(0.680, abs=5e-4)
    assert gaussian_auc_ceiling(0.935) == pytest.approx(0.746, abs=5e-4)


def test_delta_is_the_largest_excess_of_probability():
    """sup over sets S of P(N(mu, 1) in S) - e^eps P(N(0, 1) in S), by integration of the positive part."""
    for mu, eps in ((0.5, 0.1), (0.661, 3.0), (2.0, 1.0)):
        start = eps / mu + mu / 2  # where the ratio of the densities is e^eps
        excess, _ = integrate.quad(
            lambda t, mu=mu, e=eps: stats.norm.pdf(t - mu) - math.exp(e) * stats.norm.pdf(t), start, 40
        )
        assert gaussian_delta(mu, eps) == pytest.approx(excess, rel=1e-5, abs=1e-13)
        assert gaussian_epsilon(mu, gaussian_delta(mu, eps)) == pytest.approx(eps, rel=1e-6)
    assert gaussian_epsilon(0.1, 0.9) == 0.0
    assert gaussian_delta(1.0, 1e5) == 0.0


def test_mu_is_spread_over_the_planned_epochs_and_no_more_is_spent_afterwards():
    release = GaussianRelease("gaussian", 0.9, 9)
    assert [release.mu_after(Exposure(n, n)) for n in (1, 4, 9, 50)] == pytest.approx([0.3, 0.6, 0.9, 0.9])
    assert GaussianRelease("gaussian", 0.9).mu_after(Exposure(1, 1)) == 0.9


def test_the_ledger_adds_squares_and_has_no_pure_eps():
    ledger, seen = Ledger(), Exposure(2, 2)
    ledger.add("a", GaussianRelease("gaussian", 0.3, 2), seen)
    ledger.add("b", GaussianRelease("gaussian", 0.4), seen)
    assert ledger.mu == pytest.approx(0.5)
    assert ledger.epsilon == math.inf
    assert gaussian_delta(0.5, ledger.epsilon_at(1e-6)) == pytest.approx(1e-6, rel=1e-6)
    alone = ledger.epsilon_at(1e-6)
    ledger.add("c", Release("randomized_response", 1.0), seen)
    assert ledger.mu is None
    assert alone < ledger.epsilon_at(1e-6) <= alone + 1.001  # no more than both eps together


def test_a_few_sure_guesses_about_gaussian_noise_prove_no_mu():
    """Of the 20 surest guesses 20 may be right for a small mu; as guesses about a pure eps they would prove some."""
    few = Guesses(10, 10, 10, 10)
    assert few.epsilon_low(0.01) > 0.1
    assert few.mu_low(0.01, 1000) == 0.0
    assert Guesses(500, 0, 500, 0).mu_low(0.01, 1000) > 3  # all wrong tells as much as all right
