"""Separators, encodings and kinds of files: found, or named by an error that helps."""

import zipfile

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.raw_files import error_of, in_file_order, load, write

from vflbench.data.csv import Csv
from vflbench.data.parquet import Parquet

ROWS = [[str(i % 5), "a" if i % 3 else "b,c", f"{i % 4}.5", str(i % 2)] for i in range(40)]


def text(mark, rows=ROWS, header=("n", "word", "x", "y")):
    quoted = [[f'"{v}"' if mark in v else v for v in row] for row in (list(header), *rows)]
    return "\n".join(mark.join(row) for row in quoted) + "\n"


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, mark):
    found = load(Csv(path=write(tmp_path / "t", text(mark).encode()), label="y"))
    said = load(Csv(path=str(tmp_path / "t"), label="y", delimiter=mark))
    assert found.facts["read_as"]["delimiter"] == mark
    for ours, theirs in zip(in_file_order(found), in_file_order(said), strict=True):
        assert ours.tolist() == theirs.tolist()


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
    even = write(tmp_path / "even", ["a,b;c,d"] * 40)
    problem = error_of(Csv(path=even, label="c2", header=False))
    assert "can be split at comma (',') or semicolon (';'); say which with dataset.delimiter" in problem


@pytest.mark.parametrize(
    ("encoding", "said"), [("cp1252", "cp1252"), ("utf-16", "utf-16"), ("utf-8-sig", None), ("cp932", "cp932")]
)
def test_other_encodings(tmp_path, encoding, said):
    words = ["東京", "大阪"] if encoding == "cp932" else ["Köln", "Gemünd €"]
    lines = ["städt,y" if encoding != "cp932" else "市,y", *(f"{words[i % 2]},{i % 3 % 2}" for i in range(40))]
    (tmp_path / "plain").write_bytes("\n".join(lines).encode())
    (tmp_path / "t").write_bytes("\n".join(lines).encode(encoding))
    plain, other = (
        load(Csv(path=str(tmp_path / "plain"), label="y")),
        load(Csv(path=str(tmp_path / "t"), label="y", encoding=said)),
    )
    assert other.train.columns == plain.train.columns
    for ours, theirs in zip(in_file_order(other), in_file_order(plain), strict=True):
        assert ours.tolist() == theirs.tolist()
    if said == "cp1252":
        assert "dataset.encoding=cp1252" in error_of(Csv(path=str(tmp_path / "t"), label="y"))
        (tmp_path / "body").write_bytes("\n".join(["stadt,y", *lines[1:]]).encode(encoding))
        assert "column stadt: 'K\ufffdln' is not valid utf-8; for Latin-1 or Windows-1252" in error_of(
            Csv(path=str(tmp_path / "body"), label="y")
        )


TABLE = pa.table({"a": [1, 2, 3], "y": [0, 1, 0]})


def test_a_file_that_is_no_text_is_named_and_not_shown(tmp_path):
    (tmp_path / "t.csv").write_text(text(","))
    parquet.write_table(TABLE, tmp_path / "parquet")
    with zipfile.ZipFile(tmp_path / "excel", "w") as book:
        for name in ("[Content_Types].xml", "xl/workbook.xml"):
            book.writestr(name, "<x/>")
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    csv = {"parquet": "read it with dataset=parquet", "excel": "an Excel workbook", "picture": "dataset.path="}
    for name, said in csv.items():
        problem = error_of(Csv(path=str(tmp_path / name), label="y"))
        assert said in problem
        assert problem.isprintable()
        assert len(problem) < 400
    assert len(load(Parquet(path=str(tmp_path / "parquet"), label="y")).train)
    for name in ("t.csv", "excel", "picture"):
        remedy = "export its sheet as CSV" if name == "excel" else "is read with dataset=csv"
        assert remedy in error_of(Parquet(path=str(tmp_path / name), label="y"))
