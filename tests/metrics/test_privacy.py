import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from vflbench.metrics.canary import Guesses
from vflbench.metrics.privacy import (
    Exposure,
    GaussianRelease,
    Ledger,
    Release,
    Sensitivity,
    binomial_release,
    composed_epsilon,
    error_floor,
    exact_binomial_epsilon,
    gaussian_auc_ceiling,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_error_floor,
    gaussian_release,
    gaussian_sigma,
    hockey_stick,
    laplace_release,
    leak_auc_ceiling,
    theorem_condition,
    theorem_epsilon,
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


def epsilon_of_losses(losses, chances, delta):
    """eps at delta of a privacy loss with these finite chances, by bisection; the remaining probability is part of delta."""
    low, high = 0.0, 200.0
    for _ in range(80):
        middle = (low + high) / 2
        divergence = 1 - chances.sum() + (chances * np.clip(-np.expm1(middle - losses), 0, None)).sum()
        low, high = (low, middle) if divergence <= delta else (middle, high)
    return high


@pytest.mark.slow
def test_the_ledger_composes_epochs_as_the_binomial_does():
    for n, eps in ((2, 1.0), (10, 1.0), (50, 0.2)):
        ledger = Ledger()
        ledger.add("label_dp", Release("randomized_response", eps, fresh=True), Exposure(epochs=n, messages=3 * n))
        assert ledger.epsilon == pytest.approx(n * eps)
        for delta in (1e-6, 1e-3):
            case, k = f"n={n} eps={eps} delta={delta}", np.arange(n + 1)
            chances = stats.binom(n, math.exp(eps) / (1 + math.exp(eps))).pmf(k)
            exact = epsilon_of_losses((2 * k - n) * eps, chances, delta)
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


def direct(n, p, shift, count, delta):
    """The same from all combinations of outcomes of up to two numbers, in both directions each."""
    k = np.arange(n + shift + 1)
    one, other = stats.binom.pmf(k, n, p), stats.binom.pmf(k - shift, n, p)
    pairs = [(one, other), (other, one)]
    largest = 0.0
    for directions in itertools.product(pairs, repeat=count):
        losses, chances = np.zeros(1), np.ones(1)
        for a, b in directions:
            both = (a > 0) & (b > 0)
            losses = np.add.outer(losses, np.log(a[both] / b[both])).ravel()
            chances = np.multiply.outer(chances, a[both]).ravel()
        largest = max(largest, epsilon_of_losses(losses, chances, delta))
    return largest


def test_exact_accounting_agrees_with_all_outcomes_and_is_never_below():
    for n, p, shift, count in ((60, 0.5, 1, 1), (60, 0.5, 2, 2), (80, 0.3, 1, 2), (400, 0.5, 5, 1)):
        for delta in (1e-3, 1e-5):
            truth, eps = direct(n, p, shift, count, delta), exact_binomial_epsilon(n, p, shift, count, delta)
            case = f"n={n} p={p} shift={shift} count={count} delta={delta}"
            assert truth * (1 - 1e-9) <= eps <= 1.02 * truth + 1e-3, case


@pytest.mark.slow
def test_a_claim_is_never_below_the_exact_eps():
    cases = [
        (1, 2, 2000, 0.5),
        (16, 16, 40_000, 0.9),
        (64, 16, 2500, 0.5),
    ]
    for width, levels, n, p in cases:
        for delta in (1e-6, 1e-3):
            release = binomial_release(Sensitivity.of_grid(width, levels, 1.0), "", n, p, delta)
            for messages in (1, 4):
                total, case = release.delta_after(messages), f"{width} x {levels}, n={n} p={p} delta={delta}, {messages}"
                assert release.after(messages, total) >= release.exact_after(messages, total), case


def test_the_exact_eps_is_claimed_where_the_theorem_is_below_it():
    """25.4 by the theorem, 30.2 by exact accounting, and the same by a sum of normal losses."""
    sensitivity = Sensitivity.of_grid(64, 16, 1.0)
    release = binomial_release(sensitivity, "", 2000, 0.5, 1e-3)
    assert release.epsilon == pytest.approx(gaussian_epsilon(8 * 15 / math.sqrt(500), 1e-3), rel=0.02)
    assert "the theorem's eps = 25.44" in release.reason


def test_a_missing_claim_has_a_reason():
    coarse = binomial_release(Sensitivity.of_grid(1, 10_001, 1.0), "", 80_000, 0.5, 1e-6)
    assert coarse.epsilon is None
    assert "exact accounting gives no finite eps" in coarse.reason
    release = binomial_release(Sensitivity.of_grid(16, 16, 0.1), "", 512, 0.5, 1e-6)
    assert release.epsilon is None
    assert "n p (1 - p) = 128 is below max(23 log(10 d / delta), 2 Delta_inf) = 434.5" in release.reason
    enough = int(release.reason.rsplit("n = ")[-1].split()[0])
    assert binomial_release(Sensitivity.of_grid(16, 16, 0.1), "", enough, 0.5, 1e-6).epsilon is not None
    assert binomial_release(None, "no range", 10**6, 0.5, 1e-6).reason == "no range"


def test_no_two_quantized_rows_are_further_apart_than_the_sensitivity(rng):
    width, levels, step = 6, 9, 0.25
    for norm in (None, 0.4, 1.5):
        bound = Sensitivity.of_grid(width, levels, step, norm)
        if norm is None:
            assert (bound.l1, bound.l2, bound.largest) == (pytest.approx(48), pytest.approx(8 * math.sqrt(6)), 8)
        rows = torch.randn(2, 20_000, width, generator=rng) * torch.rand(2, 20_000, 1, generator=rng) * 3
        rows[:, ::3] = rows[:, ::3].sign()  # corners
        rows[1, 1::3] = -rows[0, 1::3]  # opposite
        if norm is not None:
            rows = rows * (norm / rows.norm(dim=-1, keepdim=True).clamp_min(norm))
        codes = ((rows.clamp(-1, 1) + 1) / step).round()
        distance = (codes[0] - codes[1]).abs()
        assert distance.sum(1).max() <= bound.l1 + 1e-9, norm
        assert distance.norm(dim=1).max() <= bound.l2 + 1e-6, norm
        assert distance.max() <= bound.largest, norm
        assert norm == 0.4 or distance.max() == bound.largest, norm


def test_gaussian_noise_is_the_least_that_is_enough():
    for eps, delta in ((0.1, 1e-6), (1.0, 1e-6), (8.0, 1e-3)):
        sigma = gaussian_sigma(2.0, eps, delta)
        grid = np.linspace(-40 * sigma, 40 * sigma, 400_001)
        one, other = stats.norm.pdf(grid, 0, sigma), stats.norm.pdf(grid, 2, sigma)
        divergence = np.clip(one - math.exp(eps) * other, 0, None).sum() * (grid[1] - grid[0])
        assert divergence == pytest.approx(delta, rel=1e-3), eps
        assert gaussian_delta(2 / sigma, eps) <= delta, eps
        assert gaussian_release(2.0, sigma, delta).epsilon == pytest.approx(eps, rel=1e-6), eps


def test_messages_compose():
    gaussian = gaussian_release(1.0, 10.0, 1e-6)
    assert gaussian.after(25, 1e-5) == pytest.approx(gaussian_epsilon(0.5, 1e-5))
    assert laplace_release(0.3).after(10, 0.0) == pytest.approx(3.0)
    composed = composed_epsilon(0.1, 1e-8, 100, 2e-6)
    advanced = 0.1 * math.sqrt(2 * 100 * math.log(1e6)) + 100 * 0.1 * math.expm1(0.1)  # a looser composition
    assert gaussian_epsilon(0.1, 1e-6) < composed < min(10.0, advanced)
    assert composed_epsilon(30.0, 1e-8, 4, 1e-7) == 120.0
    assert composed_epsilon(1.0, 1e-3, 10, 1e-5) == composed_epsilon(1.0, 1e-3, 1, 1e-4) == math.inf
    assert (gaussian.delta_after(1), gaussian.delta_after(10)) == (1e-6, pytest.approx(2e-5))


def test_the_theorem_as_written_out_by_hand():
    """d = 16, N = 40000, p = 1/2: V = 10000, b = 1/3, c = 7 sqrt(2) / 4, d' = 2/3."""
    delta, v = 1e-6, 10_000
    first = 4 * math.sqrt(2 * math.log(1.25e6)) / 100
    second = (4 * math.sqrt(2) * 1.75 * math.sqrt(math.log(1e7)) + 16 / 3) / (v * (1 - 1e-7))
    third = (2 / 3 * math.log(1.25e6) + 2 / 3 * math.log(3.2e8) * math.log(1e7)) / v
    assert theorem_epsilon(16, 40_000, 0.5, delta, 16, 4, 1) == pytest.approx(first + second + third, rel=1e-12)


def test_without_its_condition_the_theorem_gives_nothing():
    least = 23 * math.log(10 * 16 / 1e-6)
    assert theorem_condition(16, 512, 0.5, 1e-6, 15) == (128, pytest.approx(least))
    assert theorem_epsilon(16, 512, 0.5, 1e-6, 240, 60, 15) is None
    enough = math.ceil(4 * least)
    assert theorem_epsilon(16, enough - 1, 0.5, 1e-6, 16, 4, 1) is None
    assert theorem_epsilon(16, enough, 0.5, 1e-6, 16, 4, 1) is not None
    assert theorem_condition(1, 512, 0.5, 0.01, 10_000)[1] == 20_000


def test_heads_and_tails_are_the_same_noise():
    """Bin(N, p) mirrored is Bin(N, 1 - p), but the formula as printed gives p > 1/2 a smaller eps."""
    assert theorem_epsilon(4, 9000, 0.9, 1e-5, 4, 2, 1) == pytest.approx(theorem_epsilon(4, 9000, 0.1, 1e-5, 4, 2, 1))


def test_the_divergence_is_that_of_the_best_set_of_outcomes():
    for n, p, shift in ((20, 0.5, 1), (20, 0.3, 3), (7, 0.8, 7)):
        outcomes = np.arange(n + shift + 1)
        one, other = stats.binom.pmf(outcomes, n, p), stats.binom.pmf(outcomes - shift, n, p)
        for epsilon in (-1.0, 0.0, 0.3, 2.0):
            brute = max(np.clip(a - math.exp(epsilon) * b, 0, None).sum() for a, b in ((one, other), (other, one)))
            divergence = hockey_stick(n, p, shift, np.array([epsilon]))[0]
            assert divergence == pytest.approx(brute, abs=1e-14), f"n={n} p={p} shift={shift} eps={epsilon}"
