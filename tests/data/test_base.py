import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raw_files import error_of, load

from vflbench.data.base import Dataset
from vflbench.data.table import raw_table
from vflbench.errors import UserError
from vflbench.options import options


@options
class Fixed(Dataset):
    """Row i has x = i, c = i // 10; every second row, by default, is positive."""

    n: int = 100
    every: int = 2
    one_class: bool = False

    def _labels(self, i):
        return i % 2 if self.every == 2 else (i % self.every == 0).astype(int)

    def read(self, rng):
        i = np.arange(self.n)
        columns = {"x": i.astype(float), "c": (i // 10, self.n // 10 + 1)}
        return raw_table(columns, np.zeros(self.n, int) if self.one_class else self._labels(i)), {"source": "made up"}


@options
class Late(Fixed):
    """The only negatives are the last two rows."""

    def _labels(self, i):
        return (i < self.n - 2).astype(int)


def test_validation_rows_are_held_out_of_the_others_and_leave_the_test_rows_as_they_were(rng):
    for how in ("random", "chronological"):
        without = Fixed(split=how).load(torch.Generator().manual_seed(3))
        split = Fixed(split=how, validation_fraction=0.2).load(torch.Generator().manual_seed(3))
        ids = {name: rows.all().ids.tolist() for name, rows in {"train": split.train, **split.held_out}.items()}
        assert [len(ids[name]) for name in ("train", "test", "validation")] == [70, 10, 20]
        assert sorted(i for held in ids.values() for i in held) == list(range(100))
        assert ids["test"] == without.test.all().ids.tolist()
        assert list(without.held_out) == ["test"]
    assert ids["validation"] == list(range(70, 90))
    with pytest.raises(UserError, match="of 90 row.s., 90 are for validation and none remains for training"):
        Fixed(validation_fraction=0.9).load(rng)


def test_fit_on_train_never_looks_at_a_test_row():
    split = load(Fixed(split="chronological", fit_on="train"))
    columns = split.train.features["a"].columns
    assert columns.cardinalities == (10,)  # 9 seen in training, and one id for what was not
    assert (split.test.features["a"].categorical == 9).all()
    assert split.train.features["a"].numeric.max() == 1
    assert (split.test.features["a"].numeric == 1).all()  # clipped
    everything = load(Fixed(split="chronological"))
    assert everything.train.features["a"].numeric.max() < 0.91


def test_a_sample_is_of_the_size_asked_and_keeps_row_ids():
    split = load(Fixed(sample=0.3))
    ids = torch.cat([split.train.ids, split.test.ids])
    assert (len(split.train), len(split.test)) == (27, 3)
    assert len(ids.unique()) == 30
    assert torch.equal(split.train.labels, split.train.ids % 2)
    assert split.train.ids.tolist() == sorted(split.train.ids.tolist())
    assert split.train.ids.tolist() != list(range(27))
    assert split.train.features["a"].columns.cardinalities == (len((ids // 10).unique()),), "of the rows that are kept"


def test_a_positive_ratio_is_reached_by_dropping_the_class_that_is_too_frequent():
    for ratio, negatives, positives in ((0.45, 24, 20), (0.5, 20, 20), (0.1, 80, 9)):
        split = load(Fixed(every=5, positive_ratio=ratio))
        labels = torch.cat([split.train.labels, split.test.labels])
        assert (int((labels == 0).sum()), int((labels == 1).sum())) == (negatives, positives), ratio
        assert torch.equal(split.train.labels, (split.train.ids % 5 == 0).long()), ratio


def test_columns_that_no_party_holds_are_recorded():
    assert load(Fixed(parties={"a": ["x"]})).facts == {
        "class_rows": {"0": 50, "1": 50},
        "source": "made up",
        "columns_left_out": ["c"],
    }


def test_the_fingerprint_is_of_the_values_the_split_and_the_encoding():
    same = load(Fixed()).fingerprint
    assert load(Fixed()).fingerprint == same
    assert len(same) == 64
    others = [load(Fixed(), seed=1)]
    changes = [{"n": 101}, {"every": 3}, {"test_fraction": 0.2}, {"min_count": 20}, {"fit_on": "train"}, {"sample": 0.9}]
    changes += [{"parties": p} for p in ({"b": ["*"]}, {"a": ["x"]}, {"a": ["c"], "b": ["x"]})]
    others += [load(Fixed(**change)) for change in [*changes, {"numeric_transform": "log"}]]
    assert len({same, *(split.fingerprint for split in others)}) == 1 + len(others)


@settings(max_examples=50)
@given(st.integers(8, 200), st.floats(0.01, 0.5), st.sampled_from(["random", "chronological"]), st.integers(0, 9))
def test_any_split_is_disjoint_covering_ordered_and_of_the_size_asked(n, fraction, how, seed):
    split = load(Fixed(n=n, test_fraction=fraction, split=how), seed)
    train, test = split.train.ids.tolist(), split.test.ids.tolist()
    assert sorted(train + test) == list(range(n))
    assert (train, test) == (sorted(train), sorted(test))
    assert len(test) == pytest.approx(max(1, n * fraction), abs=0.5 + 1e-9)
    if how == "chronological":
        assert max(train) < min(test)


def test_every_row_is_as_likely_as_any_other_to_be_tested_on():
    """25 of 100 rows in each of 400 draws; 5 standard errors."""
    rng = torch.Generator().manual_seed(0)
    tested = torch.cat([Fixed(test_fraction=0.25).load(rng).test.all().ids for _ in range(400)]).bincount(minlength=100)
    assert (tested / 400 - 0.25).abs().max() < 5 * (0.25 * 0.75 / 400) ** 0.5


def test_one_class_among_the_training_rows_is_rejected_though_the_test_rows_have_another():
    assert "every training row has the label 1" in error_of(Late(split="chronological"))
