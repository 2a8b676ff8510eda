from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.stats import spearmanr

from vflbench.numerics import party_correlation
from vflbench.numerics.party_correlation import association, divide, icor, pcor

NONE = np.zeros((500, 0), int)


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def test_numeric_columns_have_spearmans_correlation(draw):
    x = draw.standard_normal((500, 4)) @ draw.standard_normal((4, 4))
    x[:, 3] = np.round(x[:, 3])  # ties
    np.testing.assert_allclose(association(x, NONE), spearmanr(x).statistic, atol=1e-12)


def test_a_category_that_decides_a_column_has_1_and_one_drawn_apart_has_about_0(draw):
    codes = draw.integers(0, 5, (500, 1))
    apart = draw.integers(0, 400, (500, 2))  # nearly a value of its own in each row: Cramer's V uncorrected is 0.9
    whole = association(10.0 * codes, np.hstack([codes, (codes * 3) % 5, apart]))
    assert whole[0, 1] == pytest.approx(1)
    assert whole[1, 2] == pytest.approx(1)
    assert (whole[:3, 3:] < 0.12).all()
    assert whole[3, 4] < 0.12
    assert (whole == whole.T).all()


def test_a_constant_column_goes_with_nothing():
    x = np.stack([np.zeros(50), np.arange(50)], 1)
    codes = np.stack([np.zeros(50, int), np.arange(50) // 25], 1)
    whole = association(x, codes)
    assert np.diag(whole).tolist() == [0, 1, 0, 1]
    assert not whole[[0, 2]].any()
    assert whole[1, 3] == pytest.approx(0.865, abs=0.01)


def blocks(sizes, rng, noise=0.5):
    """Correlations of columns in groups that share a factor, in a random order."""
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = rng.standard_normal((2000, len(sizes)))[:, group] + noise * rng.standard_normal((2000, len(group)))
    return np.corrcoef(x.T), group


@pytest.mark.parametrize("d", [2, 5, 16])
def test_pcor_is_1_where_all_columns_are_one_and_0_where_they_are_independent(d):
    assert pcor(np.ones((d, d))) == pytest.approx(1)
    assert pcor(-np.ones((d, d))) == pytest.approx(1)
    assert pcor(np.eye(d)) == 0


def test_icor_is_the_mean_excess_between_parties(draw):
    c, _ = blocks([3, 3, 3], draw)
    party = np.repeat([0, 1, 2], 3)
    parts = [np.flatnonzero(party == k) for k in range(3)]
    strength = np.array([[pcor(c[np.ix_(a, b)]) for b in parts] for a in parts])
    expected = np.mean([(strength[i].sum() - strength[i, i]) / 2 - strength[i, i] for i in range(3)])
    assert icor(c, party) == pytest.approx(expected, abs=1e-12)


def test_the_search_meets_the_least_and_the_greatest_of_all_divisions(draw):
    c, _ = blocks([3, 2, 2], draw)
    every = [icor(c, np.array(p)) for p in set(permutations([0, 0, 0, 1, 1, 2, 2]))]
    _, least, greatest = divide(c, [3, 2, 2], 0.5, np.random.default_rng(1))
    assert (least, greatest) == pytest.approx((min(every), max(every)), abs=1e-9)


def test_beta_goes_from_parties_apart_to_parties_alike_in_a_search(draw, monkeypatch):
    """Of 10 columns with loadings of their own there are 252 divisions, few enough to measure all of them."""
    monkeypatch.setattr(party_correlation, "_FEW", 0)
    x = draw.standard_normal((2000, 4)) @ draw.standard_normal((4, 10)) + draw.standard_normal((2000, 10))
    c = np.corrcoef(x.T)
    every = [icor(c, np.isin(np.arange(10), [0, *rest]).astype(int)) for rest in combinations(range(1, 10), 4)]
    for beta in (0.0, 0.5, 1.0):
        division, least, greatest = divide(c, [5, 5], beta, np.random.default_rng(0))
        assert (least, greatest) == pytest.approx((min(every), max(every)), abs=0.03 * (max(every) - min(every)))
        assert division.icor == pytest.approx(icor(c, division.party), abs=1e-12)
        assert np.bincount(division.party).tolist() == [5, 5]
        assert division.icor == pytest.approx((1 - beta) * least + beta * greatest, abs=0.05 * (greatest - least))
