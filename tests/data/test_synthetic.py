import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from support.raw_files import error_of, in_file_order, load

from vflbench.data.synthetic import Bernoulli, BreastCancer, Synthetic, _zipf, bayes_auc
from vflbench.numerics.auc import auc


def test_the_planted_signal_is_as_strong_as_requested():
    for target, ratio in ((0.8, 0.25), (0.6, 0.5), (0.95, 0.05), (0.99, 0.9), (0.51, 0.02)):
        split = load(Synthetic(rows=20_000, vocabulary=500, bayes_auc=target, positive_ratio=ratio))
        assert split.facts["bayes_auc"] == pytest.approx(target, abs=1e-4), (target, ratio)
        labels = torch.cat([split.train.labels, split.test.labels]).double()
        deviation = (ratio * (1 - ratio) / 20_000) ** 0.5
        assert labels.mean().item() == pytest.approx(ratio, abs=4 * deviation), (target, ratio)


def test_ids_follow_zipf():
    size, ids = 50, _zipf(np.random.default_rng(0), 50, 400_000)
    k = np.arange(size)
    expected = np.log((k + 2) / (k + 1)) / np.log(size + 1)
    assert expected.sum() == pytest.approx(1)
    assert np.bincount(ids, minlength=size) / len(ids) == pytest.approx(expected, abs=0.003)


def test_shape_and_vocabulary_are_as_requested_and_the_seed_alone_sets_the_values():
    made = Synthetic(rows=1000, numeric=2, categorical=5, vocabulary=777, parties={"x": ["I*"], "y": ["C*"]})
    split, again, other = (load(made, seed) for seed in (1, 1, 2))
    assert split.fingerprint == again.fingerprint != other.fingerprint
    assert split.train.columns["x"].numeric == ("I1", "I2")
    sizes = split.train.columns["y"].cardinalities
    assert (len(sizes), sum(sizes), min(sizes)) == (5, 777, 3)
    assert (split.train.features["y"].categorical.amax(0) < torch.tensor(sizes)).all()


def test_impossible_options_are_rejected():
    assert re.match("dataset.vocabulary=77.*78", error_of(Synthetic(vocabulary=77)))
    assert "there must be at least one column" in error_of(Synthetic(numeric=0, categorical=0))
    for unreachable in (0.5000001, 0.99999999):
        unreached = "dataset.bayes_auc=.* can't reach this AUC"
        assert re.match(unreached, error_of(Synthetic(rows=500, vocabulary=100, bayes_auc=unreachable)))


PROBABILITIES = st.lists(st.sampled_from([0.05, 0.2, 0.5, 0.9]) | st.floats(0.01, 0.99), min_size=2, max_size=30)


@given(PROBABILITIES)
def test_bayes_auc_agrees_with_all_pairs_and_with_its_mirror_image(eta):
    p = np.array(eta)
    weight = np.outer(p, 1 - p)
    np.fill_diagonal(weight, 0)
    won = np.sign(p[:, None] - p) / 2 + 0.5
    assert bayes_auc(p) == pytest.approx((weight * won).sum() / weight.sum(), abs=1e-9)
    assert bayes_auc(1 - p) == pytest.approx(bayes_auc(p), abs=1e-9)  # the classes exchanged


def test_the_planted_weights_can_be_recovered_and_reach_the_bayes_auc():
    """x = u^3, and the signal is linear in u with weights that fall by 0.8 from column to column."""
    raw, facts = Synthetic(rows=40_000, numeric=4, categorical=0, bayes_auc=0.85).read(torch.Generator().manual_seed(0))
    u = np.cbrt(raw.numeric)
    assert raw.names == ("I1", "I2", "I3", "I4")
    fitted = LogisticRegression(C=1e6, max_iter=1000).fit(u - 0.5, raw.labels)
    weights = fitted.coef_[0]
    assert weights / weights[0] == pytest.approx([1, 0.8, 0.64, 0.512], abs=0.06)
    reached = auc(torch.from_numpy(u @ weights), torch.from_numpy(raw.labels))
    assert reached == pytest.approx(facts["bayes_auc"], abs=0.008)


def test_the_published_shape_is_the_default():
    raw, facts = Synthetic(rows=2000).read(torch.Generator().manual_seed(0))
    assert list(raw.names) == [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    assert (sum(raw.sizes), facts["bayes_auc"]) == (20_000, pytest.approx(0.8, abs=1e-4))


def test_it_is_coin_flips_in_whole_batches_and_stays_as_it_is():
    data = Bernoulli(rows=50, features=30, density=0.3, batches=40).load(torch.Generator().manual_seed(0))
    x, labels = data.train.all().features["a"].numeric, data.train.all().labels
    assert (len(data.train) + len(data.test), data.facts["batch_rows"]) == (2000, 50)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert abs(x.mean().item() - 0.3) < 0.01
    assert abs(torch.corrcoef(x.T).fill_diagonal_(0)).max() < 0.12
    weights = torch.linalg.lstsq(x - 0.3, labels.float() * 2 - 1).solution
    assert (weights.abs() > 0.05).sum() > 10  # the labels depend on the columns


def test_a_constant_column_is_not_normalised_away():
    data = Bernoulli(rows=1, features=8, density=0.9999, batches=12).load(torch.Generator().manual_seed(1))
    assert (data.train.all().features["a"].numeric == 1).all()


def test_rows_labels_and_scaled_columns_are_those_of_scikit_learn():
    bunch, split = load_breast_cancer(), load(BreastCancer())
    numeric, _, labels = in_file_order(split)
    low, high = bunch.data.min(0), bunch.data.max(0)
    np.testing.assert_allclose(numeric, (bunch.data - low) / (high - low), atol=1e-7)
    assert labels.tolist() == bunch.target.tolist()
    assert [name.replace("_", " ") for name in split.train.columns["a"].numeric] == list(bunch.feature_names)
