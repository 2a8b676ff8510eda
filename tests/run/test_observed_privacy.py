"""An audit of label DP without canaries: when it may be believed, when it says so itself, and when it is wrong."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from vflbench.run.observed_privacy import guesses, observed_privacy


class World:
    """Rows whose features tell labels strongly (AUC 0.9 by the true log odds)."""

    def __init__(self, n: int, seed: int):
        self.rng = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 4, generator=self.rng, dtype=torch.float64)
        self.log_odds = 2 * self.x[:, 0] + self.x[:, 1] * self.x[:, 2] - 1
        self.labels = (torch.rand(n, generator=self.rng) < self.log_odds.sigmoid()).long()

    def released(self, eps: float, epochs: int = 1) -> Tensor:
        """(n,) share of epochs in which the released label is 1, flipped anew in each of them."""
        keep = 1 / (1 + math.exp(-eps))
        is_kept = torch.rand(epochs, len(self.x), generator=self.rng) < keep
        return torch.where(is_kept, self.labels, 1 - self.labels).double().mean(dim=0)

    def mixed(self, eps: float) -> Tensor:
        """(n,) the posterior log odds by features and one released label: no promise bounds them."""
        return self.log_odds + eps * (2 * self.released(eps) - 1)

    def proxy(self, kind: str):
        noise = torch.randn(len(self.x), generator=self.rng, dtype=torch.float64)
        log_odds = {
            "constant": 0 * self.log_odds,
            "underfitted": self.log_odds.sign(),
            "overfitted": 3 * (self.log_odds + 2 * noise),
            "miscalibrated": 2 - 0.3 * self.log_odds,
        }[kind]
        return lambda *rows: {kind: log_odds[rows[3]]}


def unchecked(*rows):
    return {"unchecked": torch.zeros(len(rows[3]), dtype=torch.float64)}


@pytest.mark.slow
def test_guesses_that_follow_features_are_left_undecided():
    """The promise is kept; the bound is far above it, since a proxy that knows nothing can't correct for features."""
    world = World(4000, seed=0)
    seen = observed_privacy({"posterior": world.mixed(1.0)}, world.labels, world.x, 1.0, proxy=world.proxy("constant"))
    assert seen.eps_low > 1.5
    assert seen.reads_features
    assert seen.outcome == "undecided"
    assert "Undecided" in seen.verdict


@pytest.mark.slow
def test_an_attack_that_reads_features_does_not_hide_one_that_does_not():
    world = World(4000, seed=0)
    scores = {"features": world.log_odds, "direct": world.released(2.0)}
    seen = observed_privacy(scores, world.labels, world.x, 1.0, proxy=world.proxy("constant"))
    assert (seen.attack, seen.outcome) == ("direct", "against")


@pytest.mark.slow
def test_features_that_are_missing_make_a_mechanism_without_any_leak_look_broken():
    """Why it is no proof. Here messages use no label at all: eps is 0. The recording lacks what they do use."""
    world = World(2000, seed=0)
    guess = (world.log_odds > 0).double()
    unrelated = torch.randn(2000, 3, generator=world.rng)
    seen = observed_privacy({"direct": guess}, world.labels, unrelated, 0.5)
    assert seen.outcome == "against"
    assert seen.odds_factor_needed > 1.5
    assert "if features predict labels at most" in seen.verdict
    assert "no proof" in seen.verdict
    assert observed_privacy({"direct": guess}, world.labels, world.x, 0.5).outcome != "against"


def test_scores_become_guesses():
    """Above 0 where a batch has scores of both signs, else above the middle of the best split; 1/2 for nan."""
    assert guesses(torch.tensor([-1.0, 2.0, 0.5])).tolist() == [0, 1, 1]
    assert guesses(torch.tensor([10.0, 90.0, math.nan])).tolist() == [0, 1, 0.5]
    assert guesses(torch.tensor([0.1, 0.2, 0.15, 4.0, 5.0, 4.5])).tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.slow
def test_over_200_audits_of_randomized_response_the_bound_is_wrong_no_more_often_than_stated():
    """Whatever the proxy: underfitted, overfitted, miscalibrated, or one that knows nothing. And it isn't trivial."""
    eps = 1.0
    kinds, wrong, bounds = ("constant", "underfitted", "overfitted", "miscalibrated"), 0, []
    for audit in range(200):
        world = World(2000, seed=audit)
        options = {"proxy": world.proxy(kinds[audit % 4]), "guess_model": unchecked, "seed": audit}
        bounds.append(observed_privacy({"direct": world.released(eps)}, world.labels, world.x, eps, **options).eps_low)
        wrong += bounds[-1] > eps
    assert stats.binomtest(wrong, 200, 0.05, alternative="greater").pvalue > 0.01, wrong
    assert sum(bounds) / 200 > 0.6 * eps


@pytest.mark.slow
def test_broken_promises_are_found_at_2000_rows_in_at_least_38_of_40_audits():
    """An eps of twice the promise, and flips drawn again in each of three epochs; 0.5 promised, the hardest."""
    caught = {"twice": 0, "fresh": 0}
    for audit in range(40):
        world = World(2000, seed=audit)
        options = {"proxy": world.proxy("underfitted"), "guess_model": unchecked, "seed": audit}
        for name, released in (("twice", world.released(1.0)), ("fresh", world.released(0.5, epochs=3))):
            caught[name] += observed_privacy({"direct": released}, world.labels, world.x, 0.5, **options).eps_low > 0.5
    assert min(caught.values()) >= 38, caught
