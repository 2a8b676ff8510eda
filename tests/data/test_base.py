"""Which rows a run uses and what for, which of them all parties share, and how their columns are encoded."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raw_files import error_of, load

from vflbench.data import table
from vflbench.data.base import Dataset, shared_rows
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.data.table import category_ids, raw_table
from vflbench.errors import UserError
from vflbench.options import options


@options
class Fixed(Dataset):
    """Row i has x = i, c = i // 10; every second row, by default, is positive."""

    n: int = 100
    every: int = 2

    def read(self, rng):
        i = np.arange(self.n)
        labels = i % 2 if self.every == 2 else (i % self.every == 0).astype(int)
        return raw_table({"x": i.astype(float), "c": (i // 10, self.n // 10 + 1)}, labels), {"source": "made up"}


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
    assert split.train.columns["a"].cardinalities == (10,)  # 9 seen in training, and one id for what was not
    assert (split.test.features["a"].categorical == 9).all()
    assert split.train.features["a"].numeric.max() == 1
    assert (split.test.features["a"].numeric == 1).all()  # clipped
    assert load(Fixed(split="chronological")).train.features["a"].numeric.max() < 0.91


def test_a_sample_is_of_the_size_asked_and_keeps_row_ids():
    split = load(Fixed(sample=0.3))
    ids = torch.cat([split.train.ids, split.test.ids])
    assert (len(split.train), len(split.test), len(ids.unique())) == (27, 3, 30)
    assert torch.equal(split.train.labels, split.train.ids % 2)
    assert list(range(27)) != split.train.ids.tolist() == sorted(split.train.ids.tolist())
    assert split.train.columns["a"].cardinalities == (len((ids // 10).unique()),), "of the rows that are kept"


def test_a_positive_ratio_is_reached_by_dropping_the_class_that_is_too_frequent():
    for ratio, negatives, positives in ((0.45, 24, 20), (0.5, 20, 20), (0.1, 80, 9)):
        split = load(Fixed(every=5, positive_ratio=ratio))
        assert torch.cat([split.train.labels, split.test.labels]).bincount().tolist() == [negatives, positives], ratio
        assert torch.equal(split.train.labels, (split.train.ids % 5 == 0).long()), ratio


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


@pytest.mark.parametrize("parties", [1, 2, 4])
def test_each_party_s_share_is_exact_and_independent_of_the_others(parties):
    """So the shared rows are a share^K of all, to what chance allows; rows that were dropped stay so."""
    rows, share = 300_000, 0.6
    kept = np.arange(rows) >= 1000
    shared, facts, note = shared_rows(kept, share, "abcd"[:parties], torch.Generator().manual_seed(1))
    total = rows - 1000
    expected, chance = total * share**parties, np.sqrt(total * share**parties * (1 - share**parties))
    assert not shared[:1000].any()
    assert abs(shared.sum() - expected) < (1 if parties == 1 else 5 * chance)
    assert abs(shared[-50_000:].mean() - share**parties) < 0.02
    held = dict.fromkeys("abcd"[:parties], round(share * total))
    assert facts["overlap"] == {"rows": total, "shared": int(shared.sum()), "held": held}
    assert f"the {shared.sum():,} that all share are used, and {total - shared.sum():,} are left out" in note


def test_all_of_it_is_no_overlap_at_all_and_draws_nothing():
    rng, other = (torch.Generator().manual_seed(3) for _ in range(2))
    plain, whole = Digits(parties=2).load(rng), Digits(parties=2, overlap=1.0).load(other)
    assert (whole.fingerprint, whole.facts, whole.notes) == (plain.fingerprint, plain.facts, plain.notes)
    assert torch.equal(rng.get_state(), other.get_state())


def test_rows_that_one_party_lacks_are_in_no_split_and_are_not_fitted():
    def made(**changes):
        options = {"rows": 4000, "numeric": 4, "categorical": 4, "vocabulary": 200, "parties": 2, **changes}
        return Synthetic(**options).load(torch.Generator().manual_seed(3))

    whole, half = made(validation_fraction=0.2), made(overlap=0.5, validation_fraction=0.2)
    used = len(half.train) + len(half.test) + len(half.validation)
    assert used == half.facts["overlap"]["shared"] == (half.train.role != 0).sum()
    assert abs(used - 1000) < 5 * np.sqrt(750)
    assert half.notes[-1].startswith("overlap: of the label party's 4,000 rows each non-label party holds ")
    raw, encoding = half.train.raw, half.train.encoding.parties["a"]
    assert np.array_equal(raw.numeric, whole.train.raw.numeric)  # the same source
    assert np.array_equal(encoding.low, raw.numeric[half.train.role != 0][:, encoding.numeric].min(axis=0))
    assert half.fingerprint == made(overlap=0.5, validation_fraction=0.2).fingerprint != whole.fingerprint


def test_too_little_overlap_is_refused():
    text = error_of(Synthetic(rows=100, parties=4, overlap=0.01))
    assert "dataset.overlap=0.01: of 100 rows, each of 4 holds 1, and " in text
    assert "are shared; training needs more" in text


def scaled(values, fit=None, transform="none"):
    """One column, with its range taken over the rows in `fit`."""
    values = np.array(values, dtype=float)
    seen = np.nan_to_num(values if fit is None else values[np.array(fit)])
    low, high = np.array([seen.min()]), np.array([seen.max()])
    return table.scaled(values[:, None], low, high, transform)[:, 0]


def test_a_range_that_is_next_to_nothing_is_none_whether_or_not_denormal_numbers_are_flushed():
    for flush in (True, False):
        torch.set_flush_denormal(flush)
        assert scaled([0.0, 5e-324, 1e-308]).tolist() == [0, 0, 0]
    assert scaled([-1e308, 0, 1e308]).tolist() == [0, 0.5, 1], "the largest numbers do not overflow"


@pytest.mark.slow
@given(
    st.lists(st.integers(-(10**6), 10**6) | st.none(), min_size=1, max_size=40), st.sampled_from(["none", "log"]), st.data()
)
def test_scaling_agrees_with_plain_arithmetic(values, transform, data):
    fit = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)).filter(any))
    x = [0.0 if v is None else float(v) for v in values]
    if transform == "log":
        x = [math.copysign(math.log(1 + abs(v)), v) for v in x]
    low, high = (bound(v for v, used in zip(x, fit, strict=True) if used) for bound in (min, max))
    expected = [0.0 if low == high else min(1.0, max(0.0, (v - low) / (high - low))) for v in x]
    assert scaled([np.nan if v is None else v for v in values], fit, transform).tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("counts", "min_count", "every_row", "ids", "size"),
    [
        ([3, 1, 2, 1], 2, True, [0, 2, 1, 2], 3),
        ([2, 2], 2, True, None, 2),  # nothing rare, no shared id
        ([2, 1, 0], 1, False, [0, 1, 2], 3),  # the last does not occur in training
        ([1, 0], 0, False, [0, 1], 3),  # a vocabulary that is kept whole, and an id for what is not in it
    ],
)
def test_categories_that_are_rare_or_do_not_occur_in_training_share_the_last_id(counts, min_count, every_row, ids, size):
    made, count = category_ids(np.array(counts), min_count, every_row_fitted=every_row)
    assert (made if made is None else made.tolist(), count) == (ids, size)
