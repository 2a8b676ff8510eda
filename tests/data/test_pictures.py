import numpy as np
import torch
from sklearn.datasets import load_digits
from support.raw_files import error_of, in_file_order, load

from vflbench.data.pictures import Digits
from vflbench.numerics.pixels import Area, area_of, put_together


def areas(dataset):
    return {party: area_of(block.columns.numeric) for party, block in load(dataset).train.features.items()}


def test_numbers_of_parties_cut_halves_quarters_strips():
    assert areas(Digits(parties=2)) == {"a": Area(0, 0, 4, 8), "b": Area(4, 0, 4, 8)}
    quarters = areas(Digits(parties=4))
    assert [(a.top, a.left) for a in quarters.values()] == [(0, 0), (0, 4), (4, 0), (4, 4)]
    assert {(a.height, a.width) for a in quarters.values()} == {(4, 4)}
    assert [(a.top, a.height) for a in areas(Digits(parties=3, cut="rows")).values()] == [(0, 3), (3, 2), (5, 3)]
    assert areas(Digits(parties=2, cut="columns")) == {"a": Area(0, 0, 8, 4), "b": Area(0, 4, 8, 4)}
    assert next(iter(areas(Digits(parties=6)).values())) == Area(0, 0, 3, 4)  # 3 x 2


def test_parts_put_together_are_the_picture():
    whole = load(Digits())
    for options in ({"parties": 4}, {"parties": 7, "cut": "rows"}, {"parties": 3, "cut": "columns"}):
        cut = load(Digits(**options))
        parts = {area_of(b.columns.numeric): b.numeric for b in cut.train.features.values()}
        assert torch.equal(put_together(parts).flatten(1), whole.train.features["a"].numeric), options
        assert torch.equal(cut.train.labels, whole.train.labels), options


def test_too_many_parts_are_rejected():
    assert "8 x 8 pixels can't be cut into so many parts (cut=rows)" in error_of(Digits(parties=9, cut="rows"))
    assert "dataset.parties=0" in error_of(Digits(parties=0))


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
