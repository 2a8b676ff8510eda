import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflbench.data import table
from vflbench.data.table import Columns, Features, VerticalTable, category_ids


def scaled(values, fit=None, transform="none"):
    """One column, with its range taken over the rows in `fit`."""
    values = np.array(values, dtype=float)
    seen = np.nan_to_num(values if fit is None else values[np.array(fit)])
    low, high = np.array([seen.min()]), np.array([seen.max()])
    return table.scaled(values[:, None], low, high, transform)[:, 0]


def indexed(codes, size, fit=None, min_count=1):
    """One column, with its values counted over the rows in `fit`."""
    codes = np.array(codes)
    seen = np.ones(len(codes), bool) if fit is None else np.array(fit)
    counts = np.bincount(codes[seen], minlength=size)
    ids, count = category_ids(counts, min_count, every_row_fitted=bool(seen.all()))
    return (codes if ids is None else ids[codes]), count


def test_a_range_that_is_next_to_nothing_is_none_whether_or_not_denormal_numbers_are_flushed():
    for flush in (True, False):
        torch.set_flush_denormal(flush)
        assert scaled([0.0, 5e-324, 1e-308]).tolist() == [0, 0, 0]
    assert scaled([-1e308, 0, 1e308]).tolist() == [0, 0.5, 1], "the largest numbers do not overflow"


def test_rare_categories_share_the_last_id():
    ids, size = indexed([0, 0, 0, 1, 2, 2, 3], 4, min_count=2)
    assert (ids.tolist(), size) == ([0, 0, 0, 2, 1, 1, 2], 3)
    assert indexed([0, 0, 1, 1], 2, min_count=2)[1] == 2  # nothing rare, no shared id
    assert indexed([0, 0, 1], 2, min_count=3)[1] == 1  # all rare


def test_values_that_do_not_occur_in_training_get_the_shared_id():
    ids, size = indexed([0, 1, 2, 0], 3, fit=[True, True, False, True])
    assert (ids.tolist(), size) == ([0, 1, 2, 0], 3)
    ids, size = indexed([0, 1, 1], 2, fit=[True, True, True], min_count=2)
    assert (ids.tolist(), size) == ([1, 0, 0], 2)
    assert indexed([0, 1], 2, fit=[True, False], min_count=0)[1] == 3


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 5), st.data())
def test_ids_are_in_range_and_frequent_values_stay_apart(codes, min_count, data):
    fit = data.draw(st.lists(st.booleans(), min_size=len(codes), max_size=len(codes)))
    ids, size = indexed(codes, 10, fit, min_count)
    assert ((ids >= 0) & (ids < size)).all()
    counts = np.bincount(np.array(codes)[np.array(fit)], minlength=10)
    frequent = {c for c in codes if counts[c] >= min_count}
    id_of = {c: {int(i) for i, k in zip(ids, codes, strict=True) if k == c} for c in set(codes)}
    assert all(len(ids) == 1 for ids in id_of.values())
    assert len({min(id_of[c]) for c in frequent}) == len(frequent)
    assert len({min(id_of[c]) for c in set(codes) - frequent}) <= 1


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


def four() -> VerticalTable:
    """Four rows; parties a and label; values all different from one another."""
    a, label = Columns(("I1", "I2"), ("C1",), (6,)), Columns((), ("C2",), (6,))
    ids = torch.arange(4)
    block = Features(a, torch.stack([ids / 8, ids / 16], 1), ids.int()[:, None])
    own = Features(label, torch.empty(len(ids), 0), (5 - ids).int()[:, None])
    return VerticalTable(ids, {"a": block, "label": own}, ids % 2, 2)


def test_choosing_rows_takes_them_from_every_block():
    table = four()
    for index in (torch.tensor([3, 1]), slice(1, 3), torch.tensor([False, True, False, True])):
        chosen = table.rows(index)
        assert torch.equal(chosen.ids, table.ids[index]), index
        assert torch.equal(chosen.labels, chosen.ids % 2)
        assert torch.equal(chosen.features["a"].numeric, torch.stack([chosen.ids / 8, chosen.ids / 16], 1))
        assert chosen.features["a"].categorical[:, 0].tolist() == chosen.ids.tolist()
        assert chosen.features["label"].categorical[:, 0].tolist() == (5 - chosen.ids).tolist()
        assert (chosen.classes, chosen.features["a"].columns) == (table.classes, table.features["a"].columns)
