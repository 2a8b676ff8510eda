import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from vflbench.data.assignment import assign_columns, left_out
from vflbench.data.breast_cancer import BreastCancer
from vflbench.errors import UserError

COLUMNS = ("I1", "I2", "C1", "C2", "C10")


@settings(deadline=None)
@given(st.integers(1, 26), st.integers(0, 60))
def test_even_runs_are_contiguous_and_differ_by_at_most_one_column(count, more):
    columns = tuple(f"x{i}" for i in range(count + more))
    assignment = assign_columns(count, columns)
    assert "".join(assignment) == "abcdefghijklmnopqrstuvwxyz"[:count]
    assert sum(assignment.values(), ()) == columns
    assert {len(names) for names in assignment.values()} <= {len(columns) // count, -(-len(columns) // count)}
    assert left_out(assignment, columns) == ()


def test_one_party_holds_everything():
    assert assign_columns(1, COLUMNS) == {"a": COLUMNS}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("C?", ("C1", "C2")), ("C[12]", ("C1", "C2")), ("*1*", ("I1", "C1", "C10")), ("C1", ("C1",)), ("[!C]*", ("I1", "I2"))],
)
def test_patterns_match_whole_names_as_a_shell_does(pattern, found):
    assert assign_columns({"a": [pattern]}, COLUMNS) == {"a": found}


def test_a_party_may_name_a_column_twice_and_columns_in_any_order():
    assert assign_columns({"a": ["C10", "C*", "I1"]}, COLUMNS) == {"a": ("I1", "C1", "C2", "C10")}


def test_parties_keep_the_order_they_are_named_in():
    assert list(assign_columns({"z": ["C*"], "label": ["I2"], "b": ["I1"]}, COLUMNS)) == ["z", "label", "b"]


def test_columns_left_out_keep_the_files_order():
    assert left_out(assign_columns({"a": ["C1"], "label": ["I2"]}, COLUMNS), COLUMNS) == ("I1", "C2", "C10")
    assert left_out({}, COLUMNS) == COLUMNS


@pytest.mark.parametrize(
    ("parties", "told"),
    [
        (-1, "between 1 and 5 for 5 columns"),
        (27, "between 1 and 26 for 40 columns"),
        ({"a": ["i1"]}, "party a names the column i1"),
        ({"a": ["C1"], "b": ["D*"]}, "party b names the column D"),
        ({"a": ["C1"], "label": ["*"]}, "both a and label claim the column C1"),
        ({"a": ["C1"], "label": []}, "label holds no column"),
    ],
)
def test_a_refusal_names_key_value_and_cause(parties, told):
    columns = [f"x{i}" for i in range(40)] if parties == 27 else COLUMNS
    with pytest.raises(UserError, match=told) as error:
        assign_columns(parties, columns)
    assert (error.value.key, error.value.value) == ("dataset.parties", parties)
    assert str(error.value).startswith(f"dataset.parties={parties}: ")


def test_a_dataset_refuses_a_column_it_does_not_have():
    with pytest.raises(UserError, match="mean_radios, which is not one of mean_radius") as error:
        BreastCancer(parties={"a": ["mean_radios"]}).load(torch.Generator())
    assert error.value.key == "dataset.parties"


@pytest.mark.parametrize(
    ("parties", "told"),
    [
        (True, "a number of non-label parties"),
        (1.5, "a number of non-label parties"),
        (["I1"], "a number of non-label parties"),
        (None, "a number of non-label parties"),
        ({"my bank": ["I1"]}, "must be a word, and 'my bank' is not one"),
        ({1: ["I1"]}, "must be a word, and 1 is not one"),
        ({"a": "I*"}, "party a must have a list of column names"),
        ({"a": [1]}, "party a must have a list of column names"),
    ],
)
def test_a_dataset_is_not_made_with_parties_of_another_shape(parties, told):
    with pytest.raises(ValidationError, match=told):
        BreastCancer(parties=parties)


def test_a_name_with_brackets_is_a_name_first():
    assert assign_columns({"a": ["x[1]"]}, ["x[1]", "x1"]) == {"a": ("x[1]",)}
