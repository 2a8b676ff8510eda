import numpy as np
import pytest
from raw_files import write
from small_tables import COMMAS, GOOD, GOOD_NUMBERS, WAYS, problem_of, request, table_of

from vflbench.data.blocks import MAX_LINE_BYTES
from vflbench.data.cache import prepare


def test_missing_integers_are_null_and_missing_categories_the_empty_string(tmp_path):
    for i, (end, compress) in enumerate(WAYS):
        table = table_of(write(tmp_path / f"{i}", GOOD, end=end, compress=compress))
        assert table == {"y": ["0", "1", "1", "0"], "n": GOOD_NUMBERS, "c": ["pear", "fig", "", "fig"]}, (end, compress)


def test_the_last_line_needs_no_line_end_and_empty_lines_are_no_rows(tmp_path):
    table = table_of(write(tmp_path / "x", "\n\n".join(GOOD).encode()))
    assert table["c"] == ["pear", "fig", "", "fig"]


def test_only_the_empty_field_is_missing(tmp_path):
    marks = ["NA", "null", "NaN", "#N/A"]
    assert table_of(write(tmp_path / "x", [*GOOD, *(f"0\t1\t{mark}" for mark in marks)]))["c"][-4:] == marks


def test_rows_limits_from_the_top(tmp_path):
    path = write(tmp_path / "x", GOOD)
    for rows, read in ((1, 1), (3, 3), (4, 4), (99, 4), (None, 4)):
        assert table_of(path, rows=rows)["n"] == GOOD_NUMBERS[:read], rows


def test_an_ignored_column_is_not_read_even_if_too_large_for_64_bits(tmp_path):
    table = table_of(write(tmp_path / "x", ["k,y,c", f"{10**20},1,a", "word,0,b"]), COMMAS)
    assert table == {"y": ["1", "0"], "c": ["a", "b"]}


def test_with_a_header_quotes_wrap_fields_and_without_they_are_characters(tmp_path):
    assert table_of(write(tmp_path / "x", ["k,y,c", '1,0,"a,b"']), COMMAS)["c"] == ["a,b"]
    assert table_of(write(tmp_path / "y", ['0\t1\t"a"']))["c"] == ['"a"']


def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path):
    assert table_of(write(tmp_path / "x", b"\xef\xbb\xbf" + "\n".join(GOOD).encode()))["y"][0] == "0"
    content = b"\xef\xbb\xbfk,y,c\n1,0,a\n2,1\n"
    assert problem_of(write(tmp_path / "y", content), COMMAS) == "line 3: 2 fields where commas (k, y, c) has 3"


WRONG_LINES = {
    "5\tfig": "2 fields where tabs (y, n, c) has 3: is its y missing? Rows without a label can't be used",
    "0\t5\tfig\t": "4 fields where tabs (y, n, c) has 3",
    "0": "1 fields where tabs (y, n, c) has 3",
    "2\t5\tfig": "column y: the label is '2'; it must be 0 or 1",
    "-1\t5\tfig": "column y: the label is '-1'; it must be 0 or 1",
    "\t5\tfig": "column y: the label is ''; it must be 0 or 1",
    "1.0\t5\tfig": "column y: the label is '1.0'; it must be 0 or 1",
    "1\tfive\tfig": "column n: 'five' is not an integer",
    "1\tNA\tfig": "column n: 'NA' is not an integer",
    "1\tnull\tfig": "column n: 'null' is not an integer",
    "1\t1.5\tfig": "column n: '1.5' is not an integer",
    "1\t5.0\tfig": "column n: '5.0' is not an integer",
    "1\t\u0665\tfig": "column n: '\u0665' is not an integer",
    f"1\t{2**63}\tfig": f"column n: '{2**63}' is not an integer",
    f"1\t{-(2**63) - 1}\tfig": f"column n: '{-(2**63) - 1}' is not an integer",
    f"1\t{'x' * 61}\tfig": f"column n: '{'x' * 60}'... is not an integer",
}


@pytest.mark.slow
def test_the_first_wrong_line_is_reported_in_full(tmp_path):
    for i, (line, problem) in enumerate(WRONG_LINES.items()):
        for j, (end, compress) in enumerate(WAYS):
            path = write(tmp_path / f"{i}-{j}", [*GOOD, "", line, *GOOD, "not\ta row"], end=end, compress=compress)
            assert problem_of(path) == f"line 6: {problem}", (line, end, compress)


@pytest.mark.slow
def test_what_pyarrow_accepts_is_still_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.blocks.BLOCK_BYTES", MAX_LINE_BYTES // 2)
    wrong = {
        b"0\t 5\tfig": "column n: ' 5' is not an integer",
        b"0\t0x1\tfig": "column n: '0x1' is not an integer",
        b"0\t+5\tfig": "column n: '+5' is not an integer",
        b"01\t5\tfig": "column y: the label is '01'; it must be 0 or 1",
        b"0\t5\tf\0g": r"column c: 'f\x00g' holds a NUL byte",
        b"0\t5\tf\rg": r"column c: 'f\rg' holds a carriage return",
        b"0\t5\t" + b"f" * MAX_LINE_BYTES: "it is longer than 1,048,576 bytes",
        b"0\t5\t" + b"f" * (5 * MAX_LINE_BYTES): "it is longer than 1,048,576 bytes",
    }
    for i, (line, problem) in enumerate(wrong.items()):
        path = write(tmp_path / f"{i}", b"\n".join([GOOD[0].encode(), line, GOOD[1].encode()]) + b"\n")
        assert problem_of(path) == f"line 2: {problem}"
        skipped = prepare(request(path, skip=True, max_bad_fraction=0.5))
        assert skipped.table.numeric[:, 0].tolist() == [-7, np.iinfo(np.int32).min], problem
        assert skipped.facts["bad_rows"] == {"count": 1, "first": [f"line 2: {problem}"]}


def test_the_widest_integers_are_read(tmp_path):
    widest = [-(2**63), 2**63 - 1]
    path = write(tmp_path / "x", [f"0\t{n}\t" for n in widest])
    assert table_of(path)["n"] == widest
    assert prepare(request(path)).table.numeric[:, 0].tolist() == [float(n) for n in widest]


def test_bytes_that_are_not_utf8_are_shown(tmp_path):
    path = write(tmp_path / "x", b"0\t1\tfig\n1\t2\tp\xe9ar\n")
    assert problem_of(path) == r"line 2: column c: 'p\\xe9ar' is not valid UTF-8"


def test_a_wrong_header_is_reported_as_line_1(tmp_path):
    wrong = {
        "k,c": "the header has no column y; these rows carry no label, and training needs one",
        "k,y,d": "the header must name the 3 columns of commas (k, y, c); missing: c",
        "y": "the header must name the 3 columns of commas (k, y, c); missing: k, c",
        "K,Y,C": "the header must name the 3 columns of commas (k, y, c); missing: k, y, c",
        "k,y,c,d": "the header names columns that commas (k, y, c) does not have: d",
        "k,y,c,c": "the header names columns that commas (k, y, c) does not have: c",
    }
    for i, (header, problem) in enumerate(wrong.items()):
        row = ",".join("0" for _ in header.split(","))
        assert problem_of(write(tmp_path / f"{i}", [header, row, row]), COMMAS) == f"line 1: {problem}"


def test_leading_zeros_and_odd_characters_in_categories_are_fine(tmp_path):
    table = table_of(write(tmp_path / "x", ["0\t007\t x+", f"1\t-{'0' * 30}5\t0x"]))
    assert table == {"y": ["0", "1"], "n": [7, -5], "c": [" x+", "0x"]}


def test_carriage_returns_alone_end_no_line(tmp_path):
    assert problem_of(write(tmp_path / "x", GOOD, end="\r")).startswith("line 1: 9 fields")
