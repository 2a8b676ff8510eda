import pytest

from vflbench.data.parties import assign_columns, left_out
from vflbench.errors import UserError

COLUMNS = ("I1", "I2", "C1", "C2", "C10")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_number_cuts_all_columns_into_even_runs_in_order(count):
    assignment = assign_columns(count, COLUMNS)
    assert "".join(assignment) == "abcde"[:count]
    assert tuple(name for names in assignment.values() for name in names) == COLUMNS
    sizes = [len(names) for names in assignment.values()]
    assert max(sizes) - min(sizes) <= 1


def test_names_and_patterns_keep_the_files_order():
    assignment = assign_columns({"bank": ["C1*", "I2"], "label": ["I1"]}, COLUMNS)
    assert assignment == {"bank": ("I2", "C1", "C10"), "label": ("I1",)}
    assert left_out(assignment, COLUMNS) == ("C2",)


@pytest.mark.parametrize(
    ("parties", "told"),
    [
        (0, "between 1 and 5"),
        (6, "between 1 and 5"),
        ({"a": ["X"]}, "names the column X, which is not one of I1"),
        ({"a": ["I*"], "b": ["I1"]}, "both a and b claim the column I1"),
        ({"a": ["I1"], "b": []}, "b holds no column"),
        ({"label": ["I1"]}, "no non-label party"),
        ({}, "no non-label party"),
    ],
)
def test_what_makes_no_sense_is_refused(parties, told):
    with pytest.raises(UserError, match=told) as error:
        assign_columns(parties, COLUMNS)
    assert error.value.key == "dataset.parties"
