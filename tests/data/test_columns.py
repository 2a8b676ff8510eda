import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.raw_files import error_of, load

from vflbench.data.columns import CorrelationSplit, ImportanceSplit, assign_columns
from vflbench.data.csv import Csv
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.data.table import raw_table
from vflbench.errors import UserError

COLUMNS = ("I1", "I2", "C1", "C2", "C10")


@given(st.integers(1, 26), st.integers(0, 60))
def test_even_runs_are_contiguous_and_differ_by_at_most_one_column(count, more):
    columns = tuple(f"x{i}" for i in range(count + more))
    assignment = assign_columns(count, columns)
    assert "".join(assignment) == "abcdefghijklmnopqrstuvwxyz"[:count]
    assert sum(assignment.values(), ()) == columns
    assert {len(names) for names in assignment.values()} <= {len(columns) // count, -(-len(columns) // count)}


def test_patterns_match_whole_names_as_a_shell_does():
    expected = {"C?": ("C1", "C2"), "C[12]": ("C1", "C2"), "*1*": ("I1", "C1", "C10"), "C1": ("C1",), "[!C]*": ("I1", "I2")}
    assert {pattern: assign_columns({"a": [pattern]}, COLUMNS)["a"] for pattern in expected} == expected
    assert assign_columns({"a": ["x[1]"]}, ["x[1]", "x1"]) == {"a": ("x[1]",)}, "a name with brackets is a name first"


def test_an_error_names_key_value_and_cause():
    many = [f"x{i}" for i in range(40)]
    for parties, columns, problem in (
        (-1, COLUMNS, "between 1 and 5 for 5 columns"),
        (27, many, "between 1 and 26 for 40 columns"),
        ({"a": ["i1"]}, COLUMNS, "party a names the column i1, which is not one of I1"),
        ({"a": ["C1"], "b": ["D*"]}, COLUMNS, "party b names the column D"),
        ({"a": ["C1"], "label": ["*"]}, COLUMNS, "both a and label name the column C1"),
        ({"a": ["C1"], "label": []}, COLUMNS, "label holds no column"),
        ({"label": ["C1"]}, COLUMNS, "there is no non-label party"),
    ):
        with pytest.raises(UserError, match=problem) as error:
            assign_columns(parties, columns)
        assert (error.value.key, error.value.value) == ("dataset.parties", parties)
        assert str(error.value).startswith(f"dataset.parties={parties}: ")


def test_parties_of_another_shape_are_rejected_in_the_words_of_the_option_when_the_dataset_is_made():
    for parties, problem in (
        (True, "a number of non-label parties"),
        ({"my bank": ["I1"]}, "must be a word, and 'my bank' is not one"),
        ({"a": "I*"}, "party a must have a list of column names"),
        ({"kind": "shapley"}, "the kind of a division is random, importance, correlation, not 'shapley'"),
        ({"kind": "importance", "beta": 0.5}, "beta: Unexpected keyword argument; a division by importance has"),
        ({"kind": "importance", "alpha": 0.0}, "alpha: it must be a number from 0.001 to 1000000"),
    ):
        with pytest.raises(ValidationError, match=f"(?s)parties.*{problem}"):
            Synthetic(parties=parties)


def small(parties, seed=0):
    return load(Synthetic(rows=300, numeric=4, categorical=4, vocabulary=40, parties=parties), seed)


@pytest.mark.parametrize("kind", ["random", "importance", "correlation"])
def test_every_column_goes_to_one_party_and_the_same_seed_gives_the_same_division(kind):
    held, again, *others = (
        small({"kind": kind, "count": 3, "label": 0.25, "seed": seed}).train.columns for seed in (7, 7, 0, 1, 2)
    )
    assert list(held) == ["a", "b", "c", "label"]
    names = [name for block in held.values() for name in (*block.numeric, *block.categorical)]
    assert sorted(names) == sorted([f"{letter}{k}" for letter in "IC" for k in range(1, 5)])
    assert len(held["label"]) == 2
    assert all(len(block) for block in held.values())
    assert again == held
    assert any(other != held for other in others)


def test_a_word_is_a_division_with_its_defaults_whatever_the_seed_of_the_run_and_the_note_says_it():
    split = small("random")
    assert {party: len(block) for party, block in split.train.columns.items()} == {"a": 4, "label": 4}
    assert split.notes == ("columns divided at random, seed 0: a 4, label 4",)
    for kind in ("random", "importance"):
        assert small(kind, seed=1).train.columns == small(kind, seed=2).train.columns
    note = small({"kind": "importance", "alpha": 0.5, "count": 2}).notes[0]
    assert note.startswith("columns divided by importance (alpha 0.5; weights ")
    assert "Icor" in small("correlation").notes[0]


def test_the_weights_of_parties_are_a_dirichlet_draw():
    """The variance of the share of one of two parties is 1 / (4 (2 alpha + 1)), and of the drawn columns a little more."""
    names, nothing = [f"c{j}" for j in range(40)], (raw_table({}, np.zeros(0)), np.zeros(0, int))
    for alpha in (0.1, 1.0, 100.0):
        draws = (ImportanceSplit(alpha=alpha).divide(names, *nothing, np.random.default_rng(k))[0] for k in range(300))
        shares = [(party == 0).mean() for party in draws]
        variance = 1 / (4 * (2 * alpha + 1))
        expected = variance + (0.25 - variance) / 40
        assert np.var(shares) == pytest.approx(expected, rel=0.25), alpha
        assert 0 < min(shares) <= max(shares) < 1  # each party holds a column


def test_beta_0_keeps_columns_that_go_together_together():
    """Numbers and a category of the same factor; the category has as many values as the factor has thirds."""
    draw = np.random.default_rng(0)
    factors = draw.standard_normal((900, 2))
    columns = {}
    for k in range(8):
        x = factors[:, int(k > 3)] + 0.3 * draw.standard_normal(900)
        thirds = np.searchsorted(np.quantile(x, [1 / 3, 2 / 3]), x)
        columns |= {f"k{k}": (thirds, 3)} if k < 3 else {f"n{k}": x}
    raw = raw_table(columns, np.arange(900) % 2)
    together, spread = (CorrelationSplit(beta=k).assign(list(columns), raw, np.arange(900))[0].values() for k in (0.0, 1.0))
    assert sorted(together) == [("k0", "k1", "k2", "n3"), ("n4", "n5", "n6", "n7")]
    assert all(sum(int(name[1]) > 3 for name in held) == 2 for held in spread)


def test_only_training_rows_count(tmp_path):
    """Rows for testing, the last ones, hold other correlations, and much larger ones."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((300, 6)) + draw.standard_normal((300, 2))[:, [0, 0, 0, 1, 1, 1]] * 2
    other = draw.standard_normal((100, 6)) + 50 * draw.standard_normal((100, 2))[:, [0, 1, 0, 1, 0, 1]]
    rows = np.column_stack([np.vstack([x, other]), np.arange(400) % 2])
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",", header="a,b,c,d,e,f,y", comments="")
    options = {"parties": {"kind": "correlation", "beta": 0.0}, "split": "chronological", "test_fraction": 0.25}
    held = load(Csv(path=str(tmp_path / "x.csv"), label="y", **options)).train.columns
    assert {block.numeric for block in held.values()} == {("a", "b", "c"), ("d", "e", "f")}


def test_too_few_columns_and_pictures_are_refused():
    for parties in ({"kind": "random", "count": 5, "label": 0.5}, {"kind": "importance", "count": 9}):
        with pytest.raises(UserError, match="are too few for [59] non-label parties"):
            small(parties)
    assert "parties of a picture hold rectangles" in error_of(Digits(parties="random"))
