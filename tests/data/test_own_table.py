"""Tables of one's own: what each column is taken for, and which columns are no features."""

import numpy as np
import pytest
from support.raw_files import error_of, in_file_order, load, write

from vflbench.data.csv import Csv

N = 200
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(70, 9, N).round(5)
LABEL = ["yes" if i % 3 == 0 else "no" for i in range(N)]


def table(tmp_path, columns, name="t.csv", **options):
    columns = {**columns, "y": LABEL}
    lines = [",".join(columns), *(",".join(str(values[i]) for values in columns.values()) for i in range(N))]
    return load(Csv(**{"path": write(tmp_path / name, lines), "label": "y", **options}))


def features(split):
    columns = split.train.features["a"].columns
    return (*columns.numeric, *columns.categorical)


SOME = {"kind": ["abc"[i % 3] for i in range(N)]}


@pytest.mark.parametrize(
    ("name", "values", "is_feature"),
    [
        ("customer", [f"K-{1000 + 7 * i}" for i in range(N)], False),
        ("customer", [f"K-{1000 + 7 * (i // 2 * 2 if i > 195 else i)}" for i in range(N)], False),  # almost different
        ("customer", [f"K-{i // 3}" for i in range(N)], True),
        ("customer_id", [1000 + 7 * ((i * 37) % N) for i in range(N)], False),
        ("customerId", [f"{1000 + 7 * i}.0" for i in range(N)], False),  # as pandas writes whole numbers beside missing ones
        ("row", list(range(N)), False),
        ("when", [(i * 37) % N for i in range(N)], False),  # consecutive, in any order
        ("weight", WEIGHT, True),  # a measurement differs in every row, too
        ("paid", [1000 + i * i for i in range(N)], True),  # whole numbers with gaps, of another name: a line warns
        ("customer_id", [i // 2 for i in range(N)], True),
    ],
)
def test_what_tells_every_row_apart_is_no_feature(tmp_path, name, values, is_feature):
    split = table(tmp_path, {name: values, **SOME})
    assert features(split) == ((name, "kind") if is_feature else ("kind",))
    said = any(line.startswith(f"left out: {name} (") for line in split.facts["columns_are"])
    assert said is not is_feature
    assert (split.facts.get("columns_left_out") == [name]) is not is_feature
    kept = table(tmp_path, {name: values, **SOME}, types={name: "categorical"})
    assert name in features(kept)


def test_what_says_where_an_identifier_is_missing_is_no_feature_either(tmp_path):
    split = table(tmp_path, {"customer_id": ["" if i % 20 == 3 else 1000 + 7 * i for i in range(N)], **SOME})
    assert features(split) == ("kind",)


def test_a_line_warns_of_what_may_be_an_identifier(tmp_path):
    split = table(tmp_path, {"paid": [1000 + i * i for i in range(N)], "word": [f"w{i % 150}" for i in range(N)]})
    assert features(split) == ("paid", "word")
    assert any("column paid has a different whole number in every row" in note for note in split.notes)
    assert any("column word has 150 different texts in 200 rows" in note for note in split.notes)
    rare = table(tmp_path, {"word": [f"w{i}" for i in range(N)], "kind": [i % 4 for i in range(N)]}, min_count=2)
    assert rare.notes == ()


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


def test_what_the_file_calls_a_class_is_named_where_it_is_the_only_one(tmp_path):
    alone = write(tmp_path / "one.csv", ["x,default", *(f"{i % 7},yes" for i in range(60))])
    problem = error_of(Csv(path=alone, label="default"))
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
    ("words", "positive"),
    [
        *((("no", "yes"), "yes"), (("nein", "ja"), "ja"), (("non", "oui"), "oui"), (("F", "T"), "T")),
        *((("-1", "1"), "1"), (("False", "True"), "True"), (("-", "+"), "+"), (("cat", "dog"), "dog")),
    ],
)
def test_the_positive_class_is_said(tmp_path, words, positive):
    lines = ["x,y", *(f"{i % 7},{words[i % 3 == 0]}" for i in range(60))]
    split = load(Csv(path=write(tmp_path / "t", lines), label="y"))
    assert in_file_order(split)[2].tolist() == [int((words[i % 3 == 0]) == positive) for i in range(60)]
    rows, negative = (20, words[0]) if positive == words[1] else (40, words[1])
    assert f"label y: positive is {positive} ({rows} of 60 rows), negative is {negative}" in split.facts["columns_are"]


def test_a_label_must_be_named_and_the_error_lists_the_columns(tmp_path):
    path = stored(tmp_path)
    unnamed = "dataset.label: it must name the column that holds the labels; the columns are customer, kind, y"
    assert unnamed in error_of(Csv(path=path))
    assert "the columns are customer, kind, y; did you mean kind?" in error_of(Csv(path=path, label="kinds"))
    assert "dataset.id=y: the label can't be the identifier" in error_of(Csv(path=path, label="y", id="y"))


def test_what_is_missing_is_no_least_or_largest_value(tmp_path, monkeypatch):
    monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "cache"))
    lines = ["income,debt,kind,nothing,y"]
    for i, label in enumerate(LABEL):
        known = f"{7009 + 10 * (i // 2) + 0.5 * (i == 7)},{-3.5 - i // 2},{'abc'[i % 3]}" if i % 10 else ",,"
        lines.append(f"{known},,{label}")
    described = Csv(path=write(tmp_path / "t.csv", lines), label="y", types={"nothing": "numeric"}).described()
    said = {line.split()[0]: " ".join(line.split()[2:]) for line in described}
    assert said["income"] == "7,009 .. 7,999; 20 missing, used as 0"
    assert said["debt"] == "-102.5 .. -3.5; 20 missing, used as 0"
    assert said["kind"].endswith("; 20 missing")
    assert said["nothing"] == "no value; 200 missing, used as 0"


def doubt(tmp_path, values, name="a", **options):
    return [line for line in table(tmp_path, {name: values, **SOME}, **options).notes if line.startswith(f"column {name} ")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["n.a." if i % 50 == 0 else str(i % 90) for i in range(N)], "but also 'n.a.', so it is taken for texts"),
        ([f"{i % 9}.{10 + i % 80}" if i < 100 else f'"{i % 9},{10 + i % 80}"' for i in range(N)], "in different ways"),
        ([f"01/{13 + i % 15}/2020" if i % 2 else f"{13 + i % 15}/01/2020" for i in range(N)], "in different ways"),
        (["0000-00-00" if i % 40 == 0 else f"2020-0{i % 9 + 1}-{10 + i % 19}" for i in range(N)], "but also '0000-00-00'"),
        ([f"{i % 9 + 1}.{100 + i}" if i % 3 else str(900 - i) for i in range(N)], "may stand before decimals or thousands"),
        (["left" if label == "yes" else "here" for label in LABEL], "determines the label: each of its 2 values"),
        ([i % 4 + 10 * (label == "yes") for i, label in enumerate(LABEL)], "determines the label"),
    ],
)
def test_a_line_says_what_may_be_meant_otherwise(tmp_path, values, said):
    assert said in " ".join(doubt(tmp_path, values))


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (["A" if i % 50 == 0 else str(i % 6) for i in range(N)], {}),  # a level of few
        ([f"x{i % 60}" for i in range(N)], {}),
        ([f"{v:.3f}".rstrip("0") for v in WEIGHT], {}),  # a measurement with up to three decimals
        ([f"{i % 9 + 1}.{100 + i}" if i % 3 else str(900 - i) for i in range(N)], {"decimal": "."}),
        ([f"{i % 9 + 1}.{100 + i % 90}" if i % 3 else str(900 - i % 90) for i in range(N)], {"decimal": ","}),
        ([int(label == "yes" and i > 50) for i, label in enumerate(LABEL)], {}),  # a value of two classes
        ([int(label == "yes") for label in LABEL], {"types": {"a": "numeric"}}),
    ],
)
def test_no_line_where_there_is_no_doubt(tmp_path, values, options):
    assert not doubt(tmp_path, values, **options)


def test_a_first_line_of_numbers_may_be_a_row(tmp_path):
    lines = [f"{i % 2},{3 + i % 7}" for i in range(N)]
    split = load(Csv(path=write(tmp_path / "t.csv", lines), label="0"))
    assert any("say dataset.header=false" in note for note in split.notes)


@pytest.mark.parametrize(
    ("first", "mark", "said"),
    [
        ([" y ,a"], ",", "did you mean ' y '?"),
        (["y a"], " ", "dataset.delimiter=' '"),
        (["sep=;", "y;a"], ";", "dataset.skip_lines=1"),
    ],
)
def test_a_label_that_is_not_found_for_a_known_reason(tmp_path, first, mark, said):
    lines = [*first, *(f"{i % 2}{mark}{3 + i % 7}" for i in range(N))]
    assert said in error_of(Csv(path=write(tmp_path / "t.csv", lines), label="y"))


def test_lines_of_prepare_fit_a_terminal(tmp_path):
    lines = ["y,a,a_rather_long_name_of_a_column", *(f"{i % 2},{i % 2},{'n.a.' if i == 9 else i}" for i in range(N))]
    said = Csv(path=write(tmp_path / "t.csv", lines), label="y").described()
    assert any(line.startswith("note: column a determines the label") for line in said)
    assert all(len(line) <= 80 for line in said[1:])  # the first names the folder
