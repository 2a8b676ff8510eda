import math

import pytest
from scipy import integrate, stats

from vflbench.metrics.canary import Guesses
from vflbench.metrics.privacy import (
    Exposure,
    GaussianRelease,
    Ledger,
    Release,
    gaussian_auc_ceiling,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_error_floor,
)


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
