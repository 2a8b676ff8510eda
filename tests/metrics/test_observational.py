import itertools
import math
from functools import cache, reduce

import numpy as np
import pytest
import torch
from scipy import stats

from vflbench.metrics.observational import (
    StratifiedTable,
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
    noise = torch.randn(2, 4000, generator=rng)
    scores = {"noise": noise[0], "reversed": noise[1] - 2 * positive.double()}
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


def of(*strata):
    """high, high_positive, low, low_positive of each stratum."""
    return StratifiedTable(*np.array(strata).T)


def test_of_one_stratum_it_inverts_the_tail_of_fishers_noncentral_hypergeometric_law():
    for high, high_positive, low, low_positive in ((30, 25, 40, 8), (9, 9, 19, 1), (300, 250, 200, 20)):
        for alpha in (0.025, 1e-4):
            w = of((high, high_positive, low, low_positive)).log_odds_low(alpha)
            law = stats.nchypergeom_fisher(high + low, high_positive + low_positive, high, math.exp(w))
            assert law.sf(high_positive - 1) == pytest.approx(alpha, rel=1e-4)


def test_of_several_strata_it_inverts_the_tail_of_the_sum():
    odds = math.exp(of((4, 3, 5, 1), (6, 4, 3, 1), (2, 1, 2, 1)).log_odds_low(0.2))
    masses = [stats.nchypergeom_fisher(*shape, odds).pmf(np.arange(7)) for shape in ((9, 4, 4), (9, 5, 6), (4, 2, 2))]
    assert odds > 1
    assert reduce(np.convolve, masses)[3 + 4 + 1 :].sum() == pytest.approx(0.2, rel=1e-4)


def test_no_rows_one_class_and_one_group_show_nothing():
    for counts in ((0, 0, 0, 0), (10, 10, 10, 10), (10, 5, 0, 0), (10, 0, 10, 0)):
        table = of(counts)
        assert table.log_odds_low(0.025) == 0
        assert table.rows == 0
    assert of((10, 5, 10, 5)).log_odds_low(0.3) == 0
    assert of((0, 0, 0, 0)).log_odds()[0] == 0


def test_a_difference_between_strata_is_no_difference_between_groups():
    """Simpson: all rows together have odds ratio 16; within strata there is none."""
    assert of((80, 64, 20, 16), (20, 4, 80, 16)).log_odds_low(0.025) == 0
    assert of((100, 68, 100, 32)).log_odds_low(0.025) > 0.5
    assert of((80, 64, 20, 16), (20, 4, 80, 16)).log_odds()[0] == pytest.approx(0, abs=0.05)


def test_the_estimate_finds_the_odds_ratio_that_strata_share():
    draws, rows = np.random.default_rng(0), np.full(200, 30)
    base = draws.uniform(-2, 2, 200)
    positive = [draws.binomial(rows, 1 / (1 + np.exp(-log_odds))) for log_odds in (base + 1.3, base)]
    table = StratifiedTable(rows, positive[0], rows, positive[1])
    estimate, error = table.log_odds()
    assert abs(estimate - 1.3) < 3 * error
    assert error < 0.06
    assert 1.3 - 4 * error < table.log_odds_low(0.025) < estimate


@pytest.mark.parametrize("eps", [0.3, 1.0])
@pytest.mark.parametrize("prior", [0.5, 0.2])
def test_randomized_response_exceeds_2_eps_no_more_often_than_alpha_for_any_groups_made_of_the_messages(eps, prior):
    """Exactly, over all 2^5 labels and 2^5 released labels. Groups may depend on everything that was released."""
    n, alpha = 5, 0.25
    rows = np.array(list(itertools.product((0, 1), repeat=n)))  # (2^n, n)
    keep = 1 / (1 + math.exp(-eps))
    law_of_labels = np.prod(np.where(rows == 1, prior, 1 - prior), axis=1)
    groupings = (  # 1: high, 0: low, -1: not guessed
        lambda z: z,
        lambda z: np.where(np.arange(n) < 2 + z.sum(), z, -1),
        lambda z: z if z.sum() * 2 > n else 1 - z,
    )
    bound = cache(lambda *cell: of(cell).log_odds_low(alpha))
    for number, groups in enumerate(groupings):
        wrong = 0.0
        for z in rows:
            high, low = groups(z) == 1, groups(z) == 0
            chance = np.prod(np.where(rows == z, keep, 1 - keep), axis=1) * law_of_labels
            exceeds = [bound(high.sum(), y[high].sum(), low.sum(), y[low].sum()) > 2 * eps for y in rows]
            wrong += chance @ exceeds
        assert wrong <= alpha, number
