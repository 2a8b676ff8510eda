import numpy as np
import pytest
from scipy.stats import spearmanr

from vflbench.numerics.association import association

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
