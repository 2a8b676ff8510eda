import numpy as np
from sklearn.datasets import load_digits
from support.raw_files import in_file_order, load

from vflbench.data.pictures import Digits


def test_pixels_and_classes_are_those_of_scikit_learn():
    bunch = load_digits()
    split = load(Digits())
    numeric, categorical, labels = in_file_order(split)
    np.testing.assert_array_equal(numeric, bunch.data / 16)  # by the same number, also pixels that are hardly ever bright
    assert labels.tolist() == bunch.target.tolist()
    assert categorical.shape == (1797, 0)
    assert split.train.classes == 10


def test_there_are_ten_classes_even_among_a_few_rows():
    split = load(Digits(rows=6))
    assert split.train.classes == split.test.classes == 10
    assert sorted(in_file_order(split)[2].tolist()) == [0, 1, 2, 3, 4, 5]
