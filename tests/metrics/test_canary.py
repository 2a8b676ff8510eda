import itertools
import math

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy import stats

from vflbench.defenses.alibi import Alibi
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.tpsl import Tpsl
from vflbench.metrics.canary import Guesses, canaries_needed, guess, power
from vflbench.metrics.privacy import Exposure
from vflbench.numerics.interval import least_probability
from vflbench.run.attackers import Canaries
from vflbench.run.summary import account


def test_clopper_pearson_is_the_inverse_of_the_binomial_tail():
    for right, n, alpha in ((1, 1, 0.05), (30, 40, 0.01), (40, 40, 1e-4)):
        assert stats.binom.sf(right - 1, n, least_probability(right, n, alpha)) == pytest.approx(alpha)
    assert least_probability(0, 10, 0.05) == 0
    assert least_probability(0, 0, 0.05) == 0


@pytest.mark.parametrize("eps", [0.3, 1.0, 3.0])
def test_the_bound_is_wrong_in_a_share_alpha_of_trials_at_most_and_is_not_trivial(eps):
    """For guesses as good as eps allows."""
    right = np.random.default_rng(0).binomial(4000, 1 / (1 + math.exp(-eps)), (1000, 2)).tolist()
    bounds = np.array([Guesses(4000, high, 4000, low).epsilon_low(0.05) for high, low in right])
    assert (bounds > eps).mean() <= 0.05
    assert bounds.mean() > 0.6 * eps


def test_each_of_the_four_shares_can_prove_eps_and_no_guesses_and_poor_ones_cannot():
    for counts in ((0, 0, 200, 0), (200, 0, 0, 0), (200, 200, 0, 0), (200, 100, 200, 200)):
        assert Guesses(*counts).epsilon_low(0.01) > 3, counts
    for counts in ((0, 0, 0, 0), (50, 25, 50, 25), (1, 1, 1, 1)):
        assert Guesses(*counts).epsilon_low(0.01) == 0, counts


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


TRIES = 500


def within(count, probability, tries=TRIES):
    return abs(count / tries - probability) <= 4 * math.sqrt(max(probability * (1 - probability), 1 / tries) / tries)


@pytest.mark.parametrize(("claim", "times", "canaries"), [(1.0, 1.5, 200), (2.0, 1.5, 300), (0.3, 2.0, 1000)])
@pytest.mark.parametrize("gaussian", [True, False])
def test_so_many_simulated_audits_catch_a_promise_that_is_too_weak(claim, times, canaries, gaussian):
    """Labels through Gaussian noise, or through randomized response, read with the share of right guesses that it leaves."""
    alpha, rng, caught = 0.001, np.random.default_rng(6), 0
    right = stats.norm.cdf(times * claim / 2) if gaussian else 1 / (1 + math.exp(-times * claim))
    for _ in range(TRIES):
        coins = rng.integers(2, size=canaries)
        said = np.where(rng.random(canaries) < right, coins, 1 - coins)
        guesses = Guesses(*(int(rows.sum()) for rows in (said == 1, (said & coins) == 1, said == 0, (said | coins) == 0)))
        caught += (guesses.mu_low(alpha, canaries) if gaussian else guesses.epsilon_low(alpha)) > claim
    assert within(caught, power(claim, times, canaries, alpha, gaussian=gaussian))


def test_two_hundred_canaries_catch_one_and_a_half_times_the_promise_twice_in_a_hundred():
    """At eps = 1 with ten readers, as a run with a few attacks has them."""
    assert power(1.0, 1.5, 200, 0.001 / 10) == pytest.approx(0.0228, abs=1e-4)


def test_a_kept_promise_is_suspected_less_often_than_alpha_and_power_grows():
    for claim, gaussian in itertools.product((0.05, 0.3, 1.0, 3.0), (False, True)):
        assert power(claim, 1.0, 500, 0.01, gaussian=gaussian) <= 0.01
        grown = [round(power(claim, 2.0, n, 0.01, gaussian=gaussian), 9) for n in (50, 500, 5000, 50_000)]
        assert grown == sorted(grown)
    assert power(1.0, 1.5, 1, 0.001) == power(1.0, 1.5, 0, 0.001) == power(math.inf, 1.5, 200, 0.001) == 0
    assert power(500.0, 2.0, 1000, 0.001) == pytest.approx(0, abs=1e-9)  # 1000 coins say nothing of so large an eps


def test_so_many_canaries_are_needed():
    for gaussian in (False, True):
        needed = canaries_needed(1.0, 1.5, 0.0001, gaussian=gaussian)
        assert power(1.0, 1.5, needed, 0.0001, gaussian=gaussian) >= 0.8
        assert power(1.0, 1.5, int(0.8 * needed), 0.0001, gaussian=gaussian) < 0.8
    assert canaries_needed(1e-4, 1.5, 0.001) is None


def audited(promised, leaking, epochs, canaries, seed, classes=2):
    """The account of a run whose labels `leaking` hides, while it promises what `promised` does."""
    rng = torch.Generator().manual_seed(seed)
    leaking.__class__ = type("Lying", (type(leaking),), {"guarantee": lambda _: promised.guarantee()})
    ids = torch.arange(canaries)
    sides = torch.rand(canaries, classes, generator=rng).topk(2).indices.sort(dim=1).values.T
    coins = torch.where(torch.rand(canaries, generator=rng) < 0.5, *sides)
    planted = Canaries(ids, coins, sides, classes)
    logits = torch.zeros(canaries, 1 if classes == 2 else classes)
    for defense in (promised, leaking):
        defense.plan(epochs)
    promised.labels(coins, logits, drawing(rng, ids))  # it learns how many classes there are
    for epoch in range(epochs):
        planted.read(ids, leaking.labels(coins, logits, drawing(rng, ids, epoch)), leaking.evidence())
    return account({"it": leaking}, Exposure(epochs, epochs), [], planted)


def test_bounds_of_two_readers_are_lower_than_that_of_one_because_all_hold_at_once():
    """Both read every coin. Each may be wrong with half the probability (Bonferroni)."""
    one, both = (audited(LabelGdp(), leaking, 1, 50, 0).tried for leaking in (LabelDp(eps=40.0), LabelGdp(mu=60.0)))
    (alone,) = one.values()
    assert len(both) == 2
    assert all(0 < bound["mu_low"] < alone["mu_low"] for bound in both.values())


def caught_as_printed(made, epochs, times, *, canaries, tries, classes=2):
    accounts = [audited(made(1.0), made(times), epochs, canaries, seed, classes) for seed in range(tries)]
    printed = {power.times: power.probability for power in accounts[0].power}
    caught = sum(account.violated for account in accounts)
    assert caught == 0 if times == 1 else within(caught, printed[times], tries), (caught / tries, printed)
    return printed


def test_gaussian_noise_twice_too_weak_is_caught_as_often_as_printed():
    printed = caught_as_printed(lambda times: LabelGdp(mu=times), 2, 2.0, canaries=150, tries=80)
    assert printed[2.0] > 0.7


OF_TWO = [
    (lambda times: LabelGdp(mu=times), 150),
    (lambda times: LabelGdp(mu=times, noise="once"), 150),
    (lambda times: LabelDp(eps=times), 400),
    (lambda times: LabelDp(eps=times, mechanism="zero_sum"), 400),
    (lambda times: LabelDp(eps=0.5 * times, fresh_every_epoch=True), 600),
    (lambda times: Alibi(eps=times), 600),
    (lambda times: Tpsl(eps=0.5 * times), 600),
    (lambda times: Tpsl(eps=0.5 * times, noise="bernoulli"), 600),
]
OF_THREE = [
    lambda times: LabelGdp(mu=times),
    lambda times: Alibi(eps=2 * times),
    lambda times: Tpsl(eps=times),
    lambda times: LabelDp(eps=times),
    lambda times: LabelDp(eps=times, fresh_every_epoch=True),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "epochs", "canaries", "classes"),
    [(made, epochs, count, 2) for made, count in OF_TWO for epochs in (2, 3)] + [(made, 3, 300, 3) for made in OF_THREE],
)
def test_every_mechanism_that_leaks_more_than_it_promises_is_caught_as_often_as_printed(made, epochs, canaries, classes):
    """At an even and an odd number of epochs; one that keeps its promise isn't suspected."""
    for times in (1.0, 2.0):
        caught_as_printed(made, epochs, times, canaries=canaries, tries=30, classes=classes)


def test_labels_without_evidence_are_guessed_at_a_tie_too():
    """A Gaussian mechanism of others hands on classes alone, of which two visits may say each the other."""
    ids = torch.arange(400)
    planted = Canaries(ids, (ids < 200).long())
    planted.read(ids, torch.ones(400).long())
    planted.read(ids, torch.zeros(400).long())
    assert planted.guesses() == Guesses()
    assert planted.guesses(every=True) == Guesses(200, 100, 200, 100)
