import numpy as np
from sklearn.datasets import load_breast_cancer
from support.raw_files import in_file_order, load

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
