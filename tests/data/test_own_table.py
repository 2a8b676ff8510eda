"""Tables of one's own: what each column is taken for, and which columns are no features."""

import numpy as np
import pytest
from support.raw_files import error_of, in_file_order, load, write

from vflbench.data.csv import Csv

N = 200
WEIGHT = np.random.default_rng(0).normal(70, 9, N).round(5)
LABEL = ["yes" if i % 3 == 0 else "no" for i in range(N)]


def table(tmp_path, columns, **options):
    columns = {**columns, "y": LABEL}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return load(Csv(path=write(tmp_path / "t.csv", lines), label="y", **options))


def features(split):
    columns = split.train.columns["a"]
    return (*columns.numeric, *columns.categorical)


SOME = {"kind": ["abcd"[i % 4] for i in range(N)]}


def test_what_tells_every_row_apart_is_no_feature(tmp_path):
    for name, values, is_feature in (
        ("customer", [f"K-{1000 + 7 * (i // 2 * 2 if i > 195 else i)}" for i in range(N)], False),  # almost different
        ("customer", [f"K-{i // 3}" for i in range(N)], True),
        ("customer_id", [1000 + 7 * ((i * 37) % N) for i in range(N)], False),
        ("customerId", [f"{1000 + 7 * i}.0" for i in range(N)], False),  # as pandas writes whole numbers beside missing ones
        ("row", list(range(N)), False),
        ("when", [(i * 37) % N for i in range(N)], False),  # consecutive, in any order
        ("weight", WEIGHT, True),  # a measurement differs in every row, too
        ("paid", [1000 + i * i for i in range(N)], True),  # whole numbers with gaps, of another name: a line warns
        ("customer_id", [i // 2 for i in range(N)], True),
    ):
        split = table(tmp_path, {name: values, **SOME})
        assert features(split) == ((name, "kind") if is_feature else ("kind",))
        said = any(line.startswith(f"left out: {name} (") for line in split.facts["columns_are"])
        assert said is (split.facts.get("columns_left_out") == [name]) is not is_feature
        assert name in features(table(tmp_path, {name: values, **SOME}, types={name: "categorical"}))


def test_what_says_where_an_identifier_is_missing_is_no_feature_either(tmp_path):
    split = table(tmp_path, {"customer_id": ["" if i % 20 == 3 else 1000 + 7 * i for i in range(N)], **SOME})
    assert features(split) == ("kind",)


def test_a_party_that_names_an_identifier_is_told(tmp_path):
    problem = error_of(Csv(path=stored(tmp_path), label="y", parties={"a": ["customer"], "b": ["kind"]}))
    assert "party a names the column customer, which identifies rows (different in every row)" in problem
    assert "dataset.types={customer: categorical}" in problem
    split = load(Csv(path=stored(tmp_path), label="y", parties={"a": ["*"]}))  # a pattern means the features
    assert features(split) == ("kind",)
    alone = write(tmp_path / "alone", ["customer,y", *(f"K-{i},{i % 2}" for i in range(50))])
    assert "no column is left beside the label and identifiers" in error_of(Csv(path=alone, label="y"))


def stored(tmp_path):
    return write(tmp_path / "ids.csv", ["customer,kind,y", *(f"K-{i},{'abc'[i % 3]},{i % 2}" for i in range(50))])


def test_the_only_class_among_the_training_rows_is_named_though_the_test_rows_have_another(tmp_path):
    path = write(tmp_path / "one.csv", ["x,default", *(f"{i % 7},{'yes' if i < 58 else 'no'}" for i in range(60))])
    problem = error_of(Csv(path=path, label="default", split="chronological"))
    assert "every training row has the label yes in column default; a label leak needs at least two classes" in problem


def test_a_row_without_a_label_can_be_left_out(tmp_path):
    rows = [f"{i % 7},{i % 2}" for i in range(200)]
    path = write(tmp_path / "t.csv", ["x,default", "3,", *rows])
    problem = error_of(Csv(path=path, label="default"))
    assert "row 2: column default: the row has no label; dataset.bad_rows=skip leaves such rows out" in problem
    split = load(Csv(path=path, label="default", bad_rows="skip"))
    assert len(split.train) + len(split.test) == 200
    assert split.notes[0] == "bad rows left out: 1 (row 2: column default: the row has no label)"


@pytest.mark.parametrize(
    "words", [("no", "yes"), ("nein", "ja"), ("non", "oui"), ("-1", "1"), ("False", "True"), ("-", "+"), ("cat", "dog")]
)
def test_the_second_class_or_that_of_yes_is_positive_and_said_to_be(tmp_path, words):
    lines = ["x,y", *(f"{i % 7},{words[i % 3 == 0]}" for i in range(60))]
    split = load(Csv(path=write(tmp_path / "t", lines), label="y"))
    assert in_file_order(split)[2].tolist() == [int(i % 3 == 0) for i in range(60)]
    said = f"label y: positive is {words[1]} (20 of 60 rows), negative is {words[0]}"
    assert said in split.facts["columns_are"]


def test_a_label_must_be_named_and_the_error_lists_the_columns(tmp_path):
    path = stored(tmp_path)
    unnamed = "dataset.label: it must name the column that holds the labels; the columns are customer, kind, y"
    assert unnamed in error_of(Csv(path=path))
    assert "the columns are customer, kind, y; did you mean kind?" in error_of(Csv(path=path, label="kinds"))
    assert "dataset.id=y: the label can't be the identifier" in error_of(Csv(path=path, label="y", id="y"))


def test_what_is_missing_is_no_least_or_largest_value_and_lines_of_prepare_fit_a_terminal(tmp_path):
    lines = ["income,debt,kind,nothing,a_rather_long_name_of_a_column,y"]
    for i, label in enumerate(LABEL):
        known = f"{7009 + 10 * (i // 2) + 0.5 * (i == 7)},{-3.5 - i // 2},{'abc'[i % 3]}" if i % 10 else ",,"
        lines.append(f"{known},,{label},{label}")
    described = Csv(path=write(tmp_path / "t.csv", lines), label="y", types={"nothing": "numeric"}).described()
    said = {line.split()[0]: " ".join(line.split()[2:]) for line in described}
    assert said["income"] == "7,009 .. 7,999; 20 missing, used as 0"
    assert said["debt"] == "-102.5 .. -3.5; 20 missing, used as 0"
    assert said["kind"].endswith("; 20 missing")
    assert said["nothing"] == "no value; 200 missing, used as 0"
    assert any(line.startswith("note: column a_rather_long_name_of_a_column determines") for line in described)
    assert all(len(line) <= 80 for line in described[1:])  # the first names the folder


def test_a_line_says_what_may_be_meant_otherwise_and_none_where_there_is_no_doubt(tmp_path):
    for said, values in (
        ("a different whole number in every row", [1000 + i * i for i in range(N)]),
        ("150 different texts in 200 rows", [f"w{i % 150}" for i in range(N)]),
        ("but also 'n.a.', so it is taken for texts", ["n.a." if i % 50 == 0 else str(i % 90) for i in range(N)]),
        ("in different ways", [f"{i % 9}.{10 + i % 80}" if i < 100 else f'"{i % 9},{10 + i % 80}"' for i in range(N)]),
        ("in different ways", [f"01/{13 + i % 15}/2020" if i % 2 else f"{13 + i % 15}/01/2020" for i in range(N)]),
        ("may stand before decimals or thousands", [f"{i % 9 + 1}.{100 + i}" if i % 3 else str(900 - i) for i in range(N)]),
        ("determines the label: each of its 2 values", ["left" if label == "yes" else "here" for label in LABEL]),
        ("determines the label", [i % 4 + 10 * (label == "yes") for i, label in enumerate(LABEL)]),
        ("", ["A" if i % 50 == 0 else str(i % 6) for i in range(N)]),  # a level of few
        ("", [f"{v:.3f}".rstrip("0") for v in WEIGHT]),  # a measurement with up to three decimals
        ("", [int(label == "yes" and i > 50) for i, label in enumerate(LABEL)]),  # a value of two classes
    ):
        notes = [line for line in table(tmp_path, {"a": values, **SOME}).notes if line.startswith("column a ")]
        assert (said in " ".join(notes)) if said else not notes


def test_an_option_takes_the_doubt_away(tmp_path):
    for options, values in (
        ({"decimal": "."}, [f"{i % 9 + 1}.{100 + i}" if i % 3 else str(900 - i) for i in range(N)]),
        ({"types": {"a": "numeric"}}, [int(label == "yes") for label in LABEL]),
        ({"min_count": 2}, [f"w{i}" for i in range(N)]),
    ):
        assert table(tmp_path, {"a": values, **SOME}, **options).notes == ()


def test_a_first_line_of_numbers_may_be_a_row(tmp_path):
    path = write(tmp_path / "t.csv", [f"{i % 2},{3 + i % 7}" for i in range(N)])
    assert any("say dataset.header=false" in note for note in load(Csv(path=path, label="0")).notes)


def test_a_label_that_is_not_found_for_a_known_reason(tmp_path):
    for said, mark, first in (
        ("did you mean ' y '?", ",", [" y ,a"]),
        ("dataset.delimiter=' '", " ", ["y a"]),
        ("dataset.skip_lines=1", ";", ["sep=;", "y;a"]),
    ):
        lines = [*first, *(f"{i % 2}{mark}{3 + i % 7}" for i in range(N))]
        assert said in error_of(Csv(path=write(tmp_path / "t.csv", lines), label="y"))
