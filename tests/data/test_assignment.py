import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vflbench.data.columns import assign_columns, unassigned_columns
from vflbench.data.synthetic import BreastCancer
from vflbench.errors import UserError

COLUMNS = ("I1", "I2", "C1", "C2", "C10")


@given(st.integers(1, 26), st.integers(0, 60))
def test_even_runs_are_contiguous_and_differ_by_at_most_one_column(count, more):
    columns = tuple(f"x{i}" for i in range(count + more))
    assignment = assign_columns(count, columns)
    assert "".join(assignment) == "abcdefghijklmnopqrstuvwxyz"[:count]
    assert sum(assignment.values(), ()) == columns
    assert {len(names) for names in assignment.values()} <= {len(columns) // count, -(-len(columns) // count)}
    assert unassigned_columns(assignment, columns) == ()


def test_patterns_match_whole_names_as_a_shell_does():
    expected = {
        "C?": ("C1", "C2"),
        "C[12]": ("C1", "C2"),
        "*1*": ("I1", "C1", "C10"),
        "C1": ("C1",),
        "[!C]*": ("I1", "I2"),
    }
    assert {pattern: assign_columns({"a": [pattern]}, COLUMNS)["a"] for pattern in expected} == expected


def test_an_error_names_key_value_and_cause():
    many = [f"x{i}" for i in range(40)]
    for parties, columns, problem in (
        (-1, COLUMNS, "between 1 and 5 for 5 columns"),
        (27, many, "between 1 and 26 for 40 columns"),
        ({"a": ["i1"]}, COLUMNS, "party a names the column i1"),
        ({"a": ["C1"], "b": ["D*"]}, COLUMNS, "party b names the column D"),
        ({"a": ["C1"], "label": ["*"]}, COLUMNS, "both a and label name the column C1"),
        ({"a": ["C1"], "label": []}, COLUMNS, "label holds no column"),
        ({"label": ["C1"]}, COLUMNS, "there is no non-label party"),
    ):
        with pytest.raises(UserError, match=problem) as error:
            assign_columns(parties, columns)
        assert (error.value.key, error.value.value) == ("dataset.parties", parties)
        assert str(error.value).startswith(f"dataset.parties={parties}: ")


def test_a_dataset_rejects_a_column_it_does_not_have():
    with pytest.raises(UserError, match="mean_radios, which is not one of mean_radius") as error:
        BreastCancer(parties={"a": ["mean_radios"]}).load(torch.Generator())
    assert error.value.key == "dataset.parties"


def test_parties_of_another_shape_are_rejected_when_the_dataset_is_made():
    for parties, problem in (
        (True, "a number of non-label parties"),
        ({"my bank": ["I1"]}, "must be a word, and 'my bank' is not one"),
        ({"a": "I*"}, "party a must have a list of column names"),
    ):
        with pytest.raises(ValidationError, match=problem):
            BreastCancer(parties=parties)


def test_a_name_with_brackets_is_a_name_first():
    assert assign_columns({"a": ["x[1]"]}, ["x[1]", "x1"]) == {"a": ("x[1]",)}
