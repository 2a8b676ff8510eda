import numpy as np
from raw_files import in_file_order, load
from sklearn.datasets import load_digits

from vflbench.data.pictures import Digits


def test_pixels_and_classes_are_those_of_scikit_learn():
    bunch = load_digits()
    split = load(Digits())
    numeric, categorical, labels = in_file_order(split)
    np.testing.assert_array_equal(numeric, bunch.data / 16)  # by the same number, also pixels that are hardly ever bright
    assert labels.tolist() == bunch.target.tolist()
    assert categorical.shape == (1797, 0)
    assert split.train.classes == 10


def test_pixels_that_are_always_blank_are_zero():
    numeric, _, _ = in_file_order(load(Digits()))
    data = load_digits().data
    blank = [j for j in range(64) if not data[:, j].any()]
    assert blank == [0, 32, 39]
    assert not numeric[:, blank].any()


def test_two_parties_hold_the_upper_and_the_lower_half_of_the_picture():
    blocks = load(Digits(parties=2)).train.features
    rows_of = {party: {name.split("_")[1] for name in block.columns.numeric} for party, block in blocks.items()}
    assert rows_of == {"a": set("0123"), "b": set("4567")}
    assert [len(block.columns) for block in blocks.values()] == [32, 32]


def test_patterns_can_hold_the_left_half():
    columns = load(Digits(parties={"left": ["pixel_?_[0-3]"], "right": ["pixel_?_[4-7]"]})).train.features["left"].columns
    assert columns.numeric == tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(4))


def test_there_are_ten_classes_even_among_a_few_rows():
    split = load(Digits(rows=6))
    assert split.train.classes == split.test.classes == 10
    assert sorted(in_file_order(split)[2].tolist()) == [0, 1, 2, 3, 4, 5]
