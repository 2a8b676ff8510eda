import numpy as np
import torch
from raw_files import in_file_order, load
from sklearn.datasets import load_breast_cancer

from vflbench.data.synthetic import BreastCancer


def test_rows_labels_and_scaled_columns_are_those_of_scikit_learn():
    bunch = load_breast_cancer()
    split = load(BreastCancer())
    numeric, categorical, labels = in_file_order(split)
    low, high = bunch.data.min(0), bunch.data.max(0)
    np.testing.assert_allclose(numeric, (bunch.data - low) / (high - low), atol=1e-7)
    assert labels.tolist() == bunch.target.tolist()
    assert categorical.shape == (569, 0)
    assert [name.replace("_", " ") for name in split.train.features["a"].columns.numeric] == list(bunch.feature_names)


def test_the_positive_class_is_benign():
    _, _, labels = in_file_order(load(BreastCancer()))
    assert (len(labels), int(labels.sum())) == (569, 357)
    radius = in_file_order(load(BreastCancer(parties={"a": ["mean_radius"]})))[0][:, 0]
    assert radius[labels == 1].mean() < radius[labels == 0].mean()  # malignant tumours are larger


def test_rows_takes_the_first_and_scales_by_them_alone():
    numeric, _, labels = in_file_order(load(BreastCancer(rows=100)))
    data, target = load_breast_cancer().data[:100], load_breast_cancer().target[:100]
    assert labels.tolist() == target.tolist()
    np.testing.assert_allclose(numeric, (data - data.min(0)) / (data.max(0) - data.min(0)), atol=1e-7)


def test_two_parties_share_the_rows_and_split_the_columns():
    whole, halves = load(BreastCancer()), load(BreastCancer(parties=2))
    assert [len(block.columns) for block in halves.train.features.values()] == [15, 15]
    joined = torch.cat([halves.train.features[party].numeric for party in "ab"], 1)
    assert torch.equal(joined, whole.train.features["a"].numeric)
    assert torch.equal(halves.train.ids, whole.train.ids)
