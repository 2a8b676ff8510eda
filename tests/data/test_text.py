import gzip
import hashlib

import pytest
from raw_files import write

from vflbench.data.text import TextFormat, existing_file, file_facts, is_gzip, raw_table, read_text
from vflbench.errors import UserError

TABS = TextFormat("tabs (y, n, c)", ("y", "n", "c"), label="y", delimiter="\t", header=False, integers=frozenset({"n"}))
COMMAS = TextFormat("commas (k, y, c)", ("k", "y", "c"), label="y", delimiter=",", header=True, ignored=frozenset({"k"}))
GOOD = ["0\t-7\tpear", "1\t\tfig", "1\t12\t", "0\t3\tfig"]


def refusal(path, form=TABS, rows=None) -> str:
    with pytest.raises(UserError) as error:
        read_text(path, form, rows)
    assert error.value.key == "dataset.path"
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return error.value.problem


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_missing_integers_are_null_and_missing_categories_the_empty_string(tmp_path, compress, end):
    table = read_text(write(tmp_path / "x", GOOD, end=end, compress=compress), TABS, None)
    assert table.to_pydict() == {"y": [0, 1, 1, 0], "n": [-7, None, 12, 3], "c": ["pear", "fig", "", "fig"]}


def test_the_last_line_needs_no_line_end_and_empty_lines_are_no_rows(tmp_path):
    table = read_text(write(tmp_path / "x", "\n\n".join(GOOD).encode()), TABS, None)
    assert table["c"].to_pylist() == ["pear", "fig", "", "fig"]


@pytest.mark.parametrize("mark", ["NA", "null", "NaN", "#N/A"])
def test_only_the_empty_field_is_missing(tmp_path, mark):
    table = read_text(write(tmp_path / "x", [*GOOD, f"0\t1\t{mark}"]), TABS, None)
    assert table["c"].to_pylist()[-1] == mark


@pytest.mark.parametrize("word", ["NA", "null", "1.5", str(2**63)])
def test_an_integer_column_holds_integers_or_nothing(tmp_path, word):
    assert refusal(write(tmp_path / "x", [*GOOD, f"0\t{word}\tfig"])) == f"line 5: column n: '{word}' is not an integer"


def test_gzip_is_told_by_content_not_by_name(tmp_path):
    plain, compressed = tmp_path / "plain.gz", tmp_path / "compressed.txt"
    write(plain, GOOD)
    write(compressed, GOOD, compress=True)
    assert (is_gzip(plain), is_gzip(compressed)) == (False, True)
    assert read_text(str(plain), TABS, None).equals(read_text(str(compressed), TABS, None))


def test_gzip_files_may_be_joined(tmp_path):
    parts = [gzip.compress(f"{line}\n".encode()) for line in GOOD]
    assert read_text(write(tmp_path / "x", b"".join(parts)), TABS, None)["n"].to_pylist() == [-7, None, 12, 3]


@pytest.mark.parametrize(("rows", "read"), [(1, 1), (3, 3), (4, 4), (99, 4), (None, 4)])
def test_rows_limits_from_the_top(tmp_path, rows, read):
    assert read_text(write(tmp_path / "x", GOOD), TABS, rows)["n"].to_pylist() == [-7, None, 12, 3][:read]


def test_codes_follow_the_order_of_the_values(tmp_path):
    column = raw_table(read_text(write(tmp_path / "x", GOOD), TABS, None), "y").columns[1]
    assert (column.codes.tolist(), column.size) == ([2, 1, 0, 1], 3)  # "" < "fig" < "pear"


@pytest.mark.parametrize("rows", [None, 250])
def test_one_vocabulary_covers_all_read_blocks(tmp_path, monkeypatch, rows):
    monkeypatch.setattr("vflbench.data.text._BLOCK_BYTES", 200)
    words = [f"w{(i * 7) % 300:03d}" for i in range(300)]
    table = read_text(write(tmp_path / "x", [f"{i % 2}\t{i}\t{word}" for i, word in enumerate(words)]), TABS, rows)
    assert table["c"].to_pylist() == words[:rows]
    column = raw_table(table, "y").columns[1]
    by_code = dict(zip(column.codes.tolist(), words, strict=False))
    assert len(by_code) == len(words[:rows])
    assert [by_code[code] for code in sorted(by_code)] == sorted(words[:rows])


def test_an_ignored_column_is_not_read_even_if_too_large_for_64_bits(tmp_path):
    table = read_text(write(tmp_path / "x", ["k,y,c", f"{10**20},1,a", "word,0,b"]), COMMAS, None)
    assert table.to_pydict() == {"y": [1, 0], "c": ["a", "b"]}


def test_with_a_header_quotes_wrap_fields_and_without_they_are_characters(tmp_path):
    assert read_text(write(tmp_path / "x", ["k,y,c", '1,0,"a,b"']), COMMAS, None)["c"].to_pylist() == ["a,b"]
    assert read_text(write(tmp_path / "y", ['0\t1\t"a"']), TABS, None)["c"].to_pylist() == ['"a"']


def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path):
    assert read_text(write(tmp_path / "x", b"\xef\xbb\xbf" + "\n".join(GOOD).encode()), TABS, None)["y"].to_pylist()[0] == 0
    content = b"\xef\xbb\xbfk,y,c\n1,0,a\n2,1\n"
    assert refusal(write(tmp_path / "y", content), COMMAS) == "line 3: 2 fields where commas (k, y, c) has 3"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "5\tfig",
            "2 fields where tabs (y, n, c) has 3: a row without its y? Unlabelled rows can't be trained on or scored",
        ),
        ("0\t5\tfig\t", "4 fields where tabs (y, n, c) has 3"),
        ("0", "1 fields where tabs (y, n, c) has 3"),
        ("2\t5\tfig", "column y: the label is '2'; it must be 0 or 1"),
        ("-1\t5\tfig", "column y: the label is '-1'; it must be 0 or 1"),
        ("\t5\tfig", "column y: the label is ''; it must be 0 or 1"),
        ("1.0\t5\tfig", "column y: the label is '1.0'; it must be 0 or 1"),
        ("1\tfive\tfig", "column n: 'five' is not an integer"),
        ("1\t5.0\tfig", "column n: '5.0' is not an integer"),
        ("1\t\u0665\tfig", "column n: '\u0665' is not an integer"),
        (f"1\t{-(2**63) - 1}\tfig", f"column n: '{-(2**63) - 1}' is not an integer"),
        (f"1\t{'x' * 61}\tfig", f"column n: '{'x' * 60}'... is not an integer"),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_first_wrong_line_is_named_in_full(tmp_path, line, told, compress, end):
    path = write(tmp_path / "x", [*GOOD, "", line, *GOOD, "not\ta row"], end=end, compress=compress)
    assert refusal(path) == f"line 6: {told}"


def test_the_widest_integers_are_read(tmp_path):
    widest = [-(2**63), 2**63 - 1]
    assert read_text(write(tmp_path / "x", [f"0\t{n}\t" for n in widest]), TABS, None)["n"].to_pylist() == widest


def test_bytes_that_are_no_utf8_are_shown(tmp_path):
    assert (
        refusal(write(tmp_path / "x", b"0\t1\tfig\n1\t2\tp\xe9ar\n")) == r"line 2: column c: 'p\\xe9ar' is not valid UTF-8"
    )


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("k,c", "the header has no column y: these rows carry no label, and training needs one"),
        ("k,y,d", "the header must name the 3 columns of commas (k, y, c); missing: c"),
        ("y", "the header must name the 3 columns of commas (k, y, c); missing: k, c"),
        ("K,Y,C", "the header must name the 3 columns of commas (k, y, c); missing: k, y, c"),
        ("k,y,c,d", "the header names columns that commas (k, y, c) does not have: d"),
        ("k,y,c,c", "the header names columns that commas (k, y, c) does not have: c"),
    ],
)
def test_a_wrong_header_is_line_1(tmp_path, header, told):
    row = ",".join("0" for _ in header.split(","))
    assert refusal(write(tmp_path / "x", [header, row, row]), COMMAS) == f"line 1: {told}"


@pytest.mark.parametrize("compress", [False, True])
def test_a_file_without_rows_is_refused(tmp_path, compress):
    assert (
        refusal(write(tmp_path / "x", gzip.compress(b"") if compress else b""))
        == "the file is empty; tabs (y, n, c) was expected"
    )
    assert refusal(write(tmp_path / "y", ["", ""], compress=compress)) == "the file holds no rows of tabs (y, n, c)"
    assert (
        refusal(write(tmp_path / "z", ["k,y,c"], compress=compress), COMMAS) == "the file holds no rows of commas (k, y, c)"
    )


@pytest.mark.parametrize("lost", [1, 8, 9, 400])
def test_a_cut_gzip_file_is_refused_even_if_only_its_checksum_is_gone(tmp_path, lost):
    whole = gzip.compress("\n".join(f"{i % 2}\t{i * i}\tc{i}" for i in range(500)).encode())
    path = write(tmp_path / "x", whole[:-lost])
    assert refusal(path).startswith("the file breaks off after line ")
    assert read_text(path, TABS, 3)["n"].to_pylist() == [0, 1, 4]  # the wanted rows are whole


def test_a_gzip_file_whose_checksum_is_wrong_is_refused(tmp_path):
    """Stored, not deflated: the changed digit is a valid field, so that only the checksum can tell."""
    damaged = gzip.compress("\n".join(GOOD).encode(), compresslevel=0).replace(b"12", b"13")
    assert "CRC check failed" in refusal(write(tmp_path / "x", damaged))


def test_a_missing_file_and_a_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal("nowhere.txt") == f"there is no such file (looked in {tmp_path})"
    assert refusal(tmp_path) == "this is a folder; name the file in it"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "x", GOOD)
    assert existing_file("~/x") == tmp_path / "x"


def test_facts_tell_the_whole_path_and_the_hash_of_the_bytes_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x", GOOD, compress=True)
    sha256 = hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()
    assert file_facts("x") == {"path": str((tmp_path / "x").resolve()), "file_sha256": sha256}
