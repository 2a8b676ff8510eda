import numpy as np
import pytest
import torch
from raw_files import load

from vflbench.data.synthetic import Synthetic, _zipf, bayes_auc
from vflbench.errors import UserError
from vflbench.numerics.auc import auc


def test_bayes_auc_is_the_expected_share_of_won_pairs():
    eta = np.array([0.1, 0.5, 0.5, 0.9, 0.3])
    won = total = 0.0
    for i, p in enumerate(eta):
        for j, q in enumerate(eta):
            if i != j:
                total += p * (1 - q)
                won += p * (1 - q) * ((p > q) + 0.5 * (p == q))
    assert bayes_auc(eta) == pytest.approx(won / total, abs=1e-12)


def test_labels_drawn_from_eta_are_ranked_by_it_as_well_as_stated():
    draw = np.random.default_rng(0)
    eta = draw.beta(1, 3, 4000)
    measured = [auc(torch.from_numpy(eta), torch.from_numpy(draw.random(4000) < eta)) for _ in range(200)]
    assert np.mean(measured) == pytest.approx(bayes_auc(eta), abs=0.002)


@pytest.mark.parametrize(("target", "ratio"), [(0.8, 0.25), (0.6, 0.5), (0.95, 0.05), (0.99, 0.9), (0.51, 0.02)])
def test_the_planted_signal_is_as_strong_as_asked(target, ratio):
    split = load(Synthetic(rows=20_000, vocabulary=500, bayes_auc=target, positive_ratio=ratio))
    assert split.facts["bayes_auc"] == pytest.approx(target, abs=1e-4)
    labels = torch.cat([split.train.labels, split.test.labels]).double()
    assert labels.mean().item() == pytest.approx(ratio, abs=4 * (ratio * (1 - ratio) / 20_000) ** 0.5)


def test_ids_follow_zipf():
    size, ids = 50, _zipf(np.random.default_rng(0), 50, 400_000)
    k = np.arange(size)
    expected = np.log((k + 2) / (k + 1)) / np.log(size + 1)
    assert expected.sum() == pytest.approx(1)
    assert np.bincount(ids, minlength=size) / len(ids) == pytest.approx(expected, abs=0.003)


def test_shape_vocabulary_and_party_columns_are_as_asked():
    split = load(Synthetic(rows=1000, numeric=2, categorical=5, vocabulary=777, parties={"x": ["I*"], "y": ["C*"]}))
    assert split.train.features["x"].columns.numeric == ("I1", "I2")
    sizes = split.train.features["y"].columns.cardinalities
    assert (len(sizes), sum(sizes), min(sizes)) == (5, 777, 3)
    assert (split.train.features["y"].categorical.amax(0) < torch.tensor(sizes)).all()


def test_the_same_seed_gives_the_same_tables_and_another_others():
    def fingerprint(seed):
        return Synthetic(rows=500, vocabulary=100).load(torch.Generator().manual_seed(seed)).fingerprint()

    assert fingerprint(1) == fingerprint(1) != fingerprint(2)


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="dataset.vocabulary=77.*78"):
        load(Synthetic(vocabulary=77))
    with pytest.raises(UserError, match="there must be a column"):
        load(Synthetic(numeric=0, categorical=0))
    for unreachable in (0.5000001, 0.99999999):
        with pytest.raises(UserError, match="dataset.bayes_auc"):
            load(Synthetic(rows=500, vocabulary=100, bayes_auc=unreachable))


def test_one_column_holds_the_whole_vocabulary():
    split = load(Synthetic(rows=500, numeric=0, categorical=1, vocabulary=9))
    assert split.train.features["a"].columns.cardinalities == (9,)
