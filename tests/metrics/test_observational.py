import math

import pytest
import torch

from vflbench.metrics.observational import (
    best_cut,
    better,
    epsilon_low,
    explained_log_odds,
    odds_factor_needed,
    proxy_scores,
    strata,
    stratified_table,
)


def test_strata_follow_the_order_of_the_chances_and_have_equal_sizes(rng):
    chances = torch.randn(1000, generator=rng)
    stratum = strata(chances)
    assert stratum.bincount().tolist() == [50] * 20
    assert stratum[chances.argsort()].diff().min() >= 0
    assert torch.equal(strata(chances.exp()), stratum)
    assert strata(torch.randn(30, generator=rng)).max() == 0
    assert len(strata(torch.empty(0))) == 0


def test_the_cut_finds_the_score_that_tells_labels_and_its_direction(rng):
    positive = torch.rand(4000, generator=rng) < 0.2
    scores = {
        "noise": torch.randn(4000, generator=rng),
        "reversed": torch.randn(4000, generator=rng) - 2 * positive.double(),
    }
    cut = best_cut(scores, positive, torch.zeros(4000, dtype=torch.int64))
    assert (cut.name, cut.sign) == ("reversed", -1)
    high, low = cut.groups(scores)
    assert positive[high].double().mean() > 0.5 > 0.05 > positive[low].double().mean()
    assert not (high & low).any()
    assert best_cut({"constant": torch.zeros(10)}, positive[:10], torch.zeros(10, dtype=torch.int64)) is None


def test_half_the_log_odds_less_the_factor_is_eps():
    assert epsilon_low(2.0) == 1.0
    assert epsilon_low(2.0, math.e) == pytest.approx(0.5)
    assert epsilon_low(0.5, 10.0) == 0
    assert odds_factor_needed(2.0, 0.25) == pytest.approx(math.exp(1.5))
    assert epsilon_low(2.0, odds_factor_needed(2.0, 0.25)) == pytest.approx(0.25)
    assert odds_factor_needed(2.0, 1.5) == 1


def test_guesses_from_features_are_explained_and_guesses_from_the_label_alone_are_not(rng):
    """With one stratum, an odds ratio by features alone is the whole odds ratio of the table."""
    log_odds = 1.5 * torch.randn(40_000, generator=rng, dtype=torch.float64)
    positive = torch.rand(40_000, generator=rng) < log_odds.sigmoid()
    stratum = torch.zeros(40_000, dtype=torch.int64)
    by_features = torch.rand(40_000, generator=rng) < log_odds.sigmoid()
    explained = explained_log_odds(by_features, ~by_features, positive, stratum, log_odds)
    assert explained == pytest.approx(stratified_table(by_features, ~by_features, positive, stratum).log_odds()[0], abs=0.15)
    released = torch.where(torch.rand(40_000, generator=rng) < 0.73, positive, ~positive)
    assert explained_log_odds(released, ~released, positive, stratum, log_odds) < 0.1


def test_a_proxy_depends_on_no_label_of_the_rows_it_is_asked_about(rng):
    x = torch.randn(600, 3, generator=rng)
    positive = torch.rand(600, generator=rng) < (2 * x[:, 0]).sigmoid()
    learn, ask = torch.arange(300), torch.arange(300, 600)
    scores = proxy_scores(x, positive, learn, ask, seed=0)
    changed = positive.clone()
    changed[ask] = ~changed[ask]
    again = proxy_scores(x, changed, learn, ask, seed=0)
    assert all(torch.equal(scores[name], again[name]) for name in scores)
    assert torch.corrcoef(torch.stack([scores["logistic"], x[ask, 0].double()]))[0, 1] > 0.9
    assert better({**scores, "wrong": -scores["logistic"]}, positive[ask]) != "wrong"
