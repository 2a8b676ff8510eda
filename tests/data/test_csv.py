"""Tables of text: types, missing values, labels, separators and encodings."""

import zipfile

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.raw_files import error_of, in_file_order, load, refusal_of, write

from vflbench.data.csv import Csv
from vflbench.data.parquet import Parquet

LINES = [f"{20 + i},{'Rome' if i % 3 else 'Oslo'},{i % 4},{'true' if i % 2 else 'false'},{i % 5}" for i in range(40)]
LINES = ["age,city,device,member,clicked", *LINES]


def test_numbers_are_numeric_and_the_rest_categorical(tmp_path):
    split = load(Csv(path=write(tmp_path / "t.csv", LINES), label="clicked", positive=0))
    columns = split.train.columns["a"]
    assert columns.numeric == ("age", "device")
    assert (columns.categorical, columns.cardinalities) == (("city", "member"), (2, 2))
    numeric, categorical, labels = in_file_order(split)
    assert numeric[:, 0].tolist() == pytest.approx([i / 39 for i in range(40)])
    assert categorical[:, 0].tolist() == [int(i % 3 > 0) for i in range(40)]  # Oslo before Rome
    assert labels.tolist() == [int(i % 5 == 0) for i in range(40)]
    assert split.facts["classes_are"] == ["not 0", "0"]
    assert load(Csv(path=str(tmp_path / "t.csv"), label="clicked")).train.classes == 5


def test_missing_is_zero_in_numbers_and_a_category_of_its_own_elsewhere(tmp_path):
    lines = ["x,c,y", "4,a,0", ",,1", "NA,b,0", "8,null,1", "?,a,1"]
    options = {"path": write(tmp_path / "t", lines), "label": "y", "test_fraction": 0.2}
    numeric, categorical, _ = in_file_order(load(Csv(**options)))
    assert numeric.tolist() == [[0.5, 0], [0, 1], [0, 1], [1, 0], [0, 1]]
    assert categorical[:, 0].tolist() == [1, 0, 2, 0, 1]
    assert in_file_order(load(Csv(**options, missing_as="zero")))[0].tolist() == numeric[:, :1].tolist()


@pytest.mark.parametrize(("choice", "missing", "there"), [(None, 2, False), (None, 3, True), ("indicator", 1, True)])
def test_few_missing_numbers_and_dates_have_no_indicator(tmp_path, choice, missing, there):
    lines = [f"{i % 9},2020-01-{1 + i % 28:02},{i % 2}" if i >= missing else f",,{i % 2}" for i in range(200)]
    path = write(tmp_path / "t", ["x,day,y", *lines])
    parties = load(Csv(path=path, label="y", missing_as=choice, parties={"a": ["x"], "b": ["day"]})).train.columns
    indicated = [*parties["a"].numeric, *parties["b"].numeric]
    assert ("x.missing" in indicated) is ("day.missing" in indicated) is there
    numeric, _, _ = in_file_order(load(Csv(path=path, label="y", missing_as=choice)))
    if there:
        assert numeric[:, 1].tolist() == [1.0] * missing + [0.0] * (200 - missing)


def test_types_come_from_the_file_and_not_from_the_rows_asked_for(tmp_path, monkeypatch):
    """A text far below makes a column of numbers one of categories, whether its row is used or not."""
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 200)
    path = write(tmp_path / "x", ["a,b,y", *(f"{i % 7},{i % 3}.5,{i % 2}" for i in range(300)), "none,1,0"])
    for rows in (50, 301, 10**7, None):
        table, _ = Csv(path=path, label="y", rows=rows).read(None)
        assert (table.numeric_names, table.categorical_names) == (("b",), ("a",)), rows
        assert len(table) == min(rows or 301, 301)


ADVERSARIAL = {
    "decimal commas in every field": ("a;b;y", [f"{i},5;{i % 7},25;{i % 2}" for i in range(40)], ";"),
    "a comma in every text": ("a\tb\ty", [f"{i}\tRoe, Ann; Oslo\t{i % 2}" for i in range(40)], "\t"),
    "commas in the header": ('"a, b";c, d;y', [f"{i % 4};{i % 3};{i % 2}" for i in range(40)], ";"),
    "semicolons in quotes": ("a,b,y", [f'"{i % 3};x;y",{i % 5},{i % 2}' for i in range(40)], ","),
    "a line end in quotes": ("a;b;y", [f'"x,\n{i % 3}";{i % 5};{i % 2}' for i in range(40)], ";"),
    "one row": ("a;b,c;y", ["1;2,3;0"], ";"),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_tables_that_mislead(tmp_path, name):
    header, rows, mark = ADVERSARIAL[name]
    dataset = Csv(path=write(tmp_path / "t", [header, *rows]), label="y", bad_rows="skip", max_bad_fraction=0.5)
    assert dataset.prepare().facts["read_as"]["delimiter"] == mark


def test_what_splits_all_lines_evenly_is_asked(tmp_path):
    problem = error_of(Csv(path=write(tmp_path / "even", ["a,b;c,d"] * 40), label="c2", header=False))
    assert "can be split at comma (',') or semicolon (';'); say which with dataset.delimiter" in problem


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig", "cp932"])
def test_other_encodings(tmp_path, encoding):
    words = ["東京", "大阪"] if encoding == "cp932" else ["Köln", "Gemünd €"]
    text = "\n".join([f"{words[0]},y", *(f"{words[i % 2]},{i % 3 % 2}" for i in range(40))])
    (tmp_path / "t").write_bytes(text.encode(encoding))
    said = None if encoding == "utf-8-sig" else encoding
    other = load(Csv(path=str(tmp_path / "t"), label="y", encoding=said))
    plain = load(Csv(path=write(tmp_path / "plain", text.encode()), label="y"))
    assert other.train.columns == plain.train.columns
    for ours, theirs in zip(in_file_order(other), in_file_order(plain), strict=True):
        assert ours.tolist() == theirs.tolist()
    if encoding == "cp1252":
        assert "dataset.encoding=cp1252" in error_of(Csv(path=str(tmp_path / "t"), label="y"))
        body = write(tmp_path / "body", text.replace("Köln", "stadt", 1).encode(encoding))
        problem = error_of(Csv(path=body, label="y"))
        assert "column stadt: 'K\ufffdln' is not valid utf-8; for Latin-1 or Windows-1252" in problem


def test_a_file_that_is_no_text_is_named_and_not_shown(tmp_path):
    write(tmp_path / "t.csv", LINES)
    parquet.write_table(pa.table({"a": [1, 2, 3], "y": [0, 1, 0]}), tmp_path / "parquet")
    with zipfile.ZipFile(tmp_path / "excel", "w") as book:
        for name in ("[Content_Types].xml", "xl/workbook.xml"):
            book.writestr(name, "<x/>")
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    csv = {"parquet": "read it with dataset=parquet", "excel": "an Excel workbook", "picture": "dataset.path="}
    for name, said in csv.items():
        assert said in refusal_of(Csv(path=str(tmp_path / name), label="y"))
    for name in ("t.csv", "excel", "picture"):
        remedy = "export its sheet as CSV" if name == "excel" else "is read with dataset=csv"
        assert remedy in error_of(Parquet(path=str(tmp_path / name), label="y"))
