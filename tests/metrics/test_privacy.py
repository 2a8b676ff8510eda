import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from vflbench.metrics import privacy
from vflbench.metrics.canary import Guesses
from vflbench.metrics.privacy import Exposure, GaussianRelease, Ledger, Release, Sensitivity


def test_releases_are_distinguished_by_their_counts():
    """One release has the closed forms e^eps / (1 + e^eps) and 1 / (1 + e^eps), as the counts do."""
    for n, eps in ((1, 0.01), (1, 4.0), (1, 30.0), (2, 1.0), (10, 1.0), (400, 1.0)):
        case, keep = (n, eps), 1 / (1 + math.exp(-eps))
        ones, zeros = stats.binom(n, keep).pmf(np.arange(n + 1)), stats.binom(n, 1 - keep).pmf(np.arange(n + 1))
        above = np.tril(np.outer(ones, zeros), -1).sum() + 0.5 * (ones * zeros).sum()
        assert privacy.leak_auc_ceiling(eps, n) == pytest.approx(above), case
        assert privacy.error_floor(eps, n) == pytest.approx(0.5 * np.minimum(ones, zeros).sum()), case
        assert privacy.leak_auc_ceiling(eps, n) <= 1 / (1 + math.exp(-n * eps)) + 1e-12, case
    assert privacy.leak_auc_ceiling(1.0, 10) == pytest.approx(0.985, abs=5e-4)


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
    assert ledger.epsilon == ledger.epsilon_at(1e-6) == 0.0
    ledger.add("first", Release("randomized_response", 0.5), seen)
    assert ledger.epsilon == ledger.epsilon_at(1e-6) == 0.5  # a single release is pure
    ledger.add("second", Release("lp_2st", 2.0, fresh=True), seen)
    assert [(name, count) for name, _, count in ledger.entries] == [("first", 1), ("second", 5)]
    assert ledger.epsilon == pytest.approx(10.5)
    assert 8 < ledger.epsilon_at(1e-3) < 10.5


def test_ceilings_are_those_of_two_normals():
    for mu in (0.01, 0.661, 0.935, 3.0):
        area, _ = integrate.quad(lambda t, mu=mu: stats.norm.sf(t - mu) * stats.norm.pdf(t), -12, 12)
        assert privacy.gaussian_auc_ceiling(mu) == pytest.approx(area, abs=1e-9)
        assert privacy.gaussian_error_floor(mu) == pytest.approx(stats.norm.sf(mu / 2))
    assert privacy.gaussian_auc_ceiling(0.661) == pytest.approx(0.680, abs=5e-4)
    assert privacy.gaussian_auc_ceiling(0.935) == pytest.approx(0.746, abs=5e-4)


def test_delta_is_the_largest_excess_of_probability():
    """sup over sets S of P(N(mu, 1) in S) - e^eps P(N(0, 1) in S), by integration of the positive part."""
    normal = stats.norm.pdf
    for mu, eps in ((0.5, 0.1), (0.661, 3.0), (2.0, 1.0)):
        start = eps / mu + mu / 2  # where the ratio of the densities is e^eps
        excess, _ = integrate.quad(lambda t, mu=mu, e=eps: normal(t - mu) - math.exp(e) * normal(t), start, 40)
        assert privacy.gaussian_delta(mu, eps) == pytest.approx(excess, rel=1e-5, abs=1e-13)
        assert privacy.gaussian_epsilon(mu, privacy.gaussian_delta(mu, eps)) == pytest.approx(eps, rel=1e-6)
    assert privacy.gaussian_epsilon(0.1, 0.9) == 0.0
    assert privacy.gaussian_delta(1.0, 1e5) == 0.0


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
    assert privacy.gaussian_delta(0.5, ledger.epsilon_at(1e-6)) == pytest.approx(1e-6, rel=1e-6)
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
            truth, eps = direct(n, p, shift, count, delta), privacy.exact_binomial_epsilon(n, p, shift, count, delta)
            case = f"n={n} p={p} shift={shift} count={count} delta={delta}"
            assert truth * (1 - 1e-9) <= eps <= 1.02 * truth + 1e-3, case


@pytest.mark.slow
def test_a_claim_is_never_below_the_exact_eps():
    for width, levels, n, p in ((1, 2, 2000, 0.5), (16, 16, 40_000, 0.9), (64, 16, 2500, 0.5)):
        for delta, messages in itertools.product((1e-6, 1e-3), (1, 4)):
            release = privacy.binomial_release(Sensitivity.of_grid(width, levels, 1.0), "", n, p, delta)
            total, case = release.delta_after(messages), f"{width} x {levels}, n={n} p={p} delta={delta}, {messages}"
            assert release.after(messages, total) >= release.exact_after(messages, total), case


def test_the_exact_eps_is_claimed_where_the_theorem_is_below_it():
    """25.4 by the theorem, 30.2 by exact accounting, and the same by a sum of normal losses."""
    sensitivity = Sensitivity.of_grid(64, 16, 1.0)
    release = privacy.binomial_release(sensitivity, "", 2000, 0.5, 1e-3)
    assert release.epsilon == pytest.approx(privacy.gaussian_epsilon(8 * 15 / math.sqrt(500), 1e-3), rel=0.02)
    assert "the theorem's eps = 25.44" in release.reason


def test_a_missing_claim_has_a_reason():
    coarse = privacy.binomial_release(Sensitivity.of_grid(1, 10_001, 1.0), "", 80_000, 0.5, 1e-6)
    assert coarse.epsilon is None
    assert "exact accounting gives no finite eps" in coarse.reason
    release = privacy.binomial_release(Sensitivity.of_grid(16, 16, 0.1), "", 512, 0.5, 1e-6)
    assert release.epsilon is None
    assert "n p (1 - p) = 128 is below max(23 log(10 d / delta), 2 Delta_inf) = 434.5" in release.reason
    enough = int(release.reason.rsplit("n = ")[-1].split()[0])
    assert privacy.binomial_release(Sensitivity.of_grid(16, 16, 0.1), "", enough, 0.5, 1e-6).epsilon is not None
    assert privacy.binomial_release(None, "no range", 10**6, 0.5, 1e-6).reason == "no range"


def test_no_two_quantized_rows_are_further_apart_than_the_sensitivity(rng):
    """A third of the rows are corners of the cube, a third are opposite, and all are shortened where a norm is given."""
    drawn = torch.randn(2, 20_000, 6, generator=rng) * torch.rand(2, 20_000, 1, generator=rng) * 3
    drawn[:, ::3] = drawn[:, ::3].sign()
    drawn[1, 1::3] = -drawn[0, 1::3]
    for norm in (math.inf, 0.4, 1.5):
        bound = Sensitivity.of_grid(6, 9, 0.25, None if norm == math.inf else norm)
        rows = drawn * (norm / drawn.norm(dim=-1, keepdim=True).clamp_min(norm)) if norm < math.inf else drawn
        distance = ((rows.clamp(-1, 1) + 1) / 0.25).round().diff(dim=0)[0].abs()
        assert distance.sum(1).max() <= bound.l1 + 1e-9, norm
        assert distance.norm(dim=1).max() <= bound.l2 + 1e-6, norm
        assert distance.max() <= bound.largest, norm
        assert norm == 0.4 or distance.max() == bound.largest, norm
    whole = Sensitivity.of_grid(6, 9, 0.25)
    assert (whole.l1, whole.l2, whole.largest) == pytest.approx((48, 8 * math.sqrt(6), 8))


def test_gaussian_noise_is_the_least_that_is_enough():
    for eps, delta in ((0.1, 1e-6), (1.0, 1e-6), (8.0, 1e-3)):
        sigma = privacy.gaussian_sigma(2.0, eps, delta)
        assert delta * (1 - 1e-9) < privacy.gaussian_delta(2 / sigma, eps) <= delta, eps
        assert privacy.gaussian_release(2.0, sigma, delta).epsilon == pytest.approx(eps, rel=1e-6), eps


def test_messages_compose():
    gaussian = privacy.gaussian_release(1.0, 10.0, 1e-6)
    assert gaussian.after(25, 1e-5) == pytest.approx(privacy.gaussian_epsilon(0.5, 1e-5))
    assert privacy.laplace_release(0.3).after(10, 0.0) == pytest.approx(3.0)
    composed = privacy.composed_epsilon(0.1, 1e-8, 100, 2e-6)
    advanced = 0.1 * math.sqrt(2 * 100 * math.log(1e6)) + 100 * 0.1 * math.expm1(0.1)  # a looser composition
    assert privacy.gaussian_epsilon(0.1, 1e-6) < composed < min(10.0, advanced)
    assert privacy.composed_epsilon(30.0, 1e-8, 4, 1e-7) == 120.0
    assert privacy.composed_epsilon(1.0, 1e-3, 10, 1e-5) == privacy.composed_epsilon(1.0, 1e-3, 1, 1e-4) == math.inf
    assert (gaussian.delta_after(1), gaussian.delta_after(10)) == (1e-6, pytest.approx(2e-5))


def test_the_theorem_as_written_out_by_hand():
    """d = 16, N = 40000, p = 1/2: V = 10000, b = 1/3, c = 7 sqrt(2) / 4, d' = 2/3. Heads and tails are the same noise, but
    the formula as printed gives p > 1/2 a smaller eps.
    """
    delta, v, theorem = 1e-6, 10_000, privacy.theorem_epsilon
    first = 4 * math.sqrt(2 * math.log(1.25e6)) / 100
    second = (4 * math.sqrt(2) * 1.75 * math.sqrt(math.log(1e7)) + 16 / 3) / (v * (1 - 1e-7))
    third = (2 / 3 * math.log(1.25e6) + 2 / 3 * math.log(3.2e8) * math.log(1e7)) / v
    assert theorem(16, 40_000, 0.5, delta, 16, 4, 1) == pytest.approx(first + second + third, rel=1e-12)
    assert theorem(4, 9000, 0.9, 1e-5, 4, 2, 1) == pytest.approx(theorem(4, 9000, 0.1, 1e-5, 4, 2, 1))


def test_without_its_condition_the_theorem_gives_nothing():
    least = 23 * math.log(10 * 16 / 1e-6)
    enough = math.ceil(4 * least)
    assert privacy.theorem_epsilon(16, enough - 1, 0.5, 1e-6, 16, 4, 1) is None
    assert privacy.theorem_epsilon(16, enough, 0.5, 1e-6, 16, 4, 1) is not None
    assert privacy.theorem_condition(1, 512, 0.5, 0.01, 10_000)[1] == 20_000


def test_the_divergence_is_that_of_the_best_set_of_outcomes():
    for n, p, shift, epsilon in itertools.product((7, 20), (0.3, 0.5, 0.8), (1, 3), (-1.0, 0.0, 0.3, 2.0)):
        outcomes = np.arange(n + shift + 1)
        one, other = stats.binom.pmf(outcomes, n, p), stats.binom.pmf(outcomes - shift, n, p)
        brute = max(np.clip(a - math.exp(epsilon) * b, 0, None).sum() for a, b in ((one, other), (other, one)))
        assert privacy.hockey_stick(n, p, shift, np.array([epsilon]))[0] == pytest.approx(brute, abs=1e-14), (n, p, shift)
