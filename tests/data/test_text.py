import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from raw_files import write

from vflbench.data.files import MAX_LINE_BYTES, Block, Part, find_parts, open_parts, read_blocks
from vflbench.data.prepare import prepare
from vflbench.data.streaming import Request
from vflbench.data.text import TextFormat, header_of, parse, without_mark
from vflbench.errors import UserError

TABS = TextFormat("tabs (y, n, c)", ("y", "n", "c"), label="y", delimiter="\t", header=False, integers=frozenset({"n"}))
COMMAS = TextFormat("commas (k, y, c)", ("k", "y", "c"), label="y", delimiter=",", header=True, ignored=frozenset({"k"}))
GOOD = ["0\t-7\tpear", "1\t\tfig", "1\t12\t", "0\t3\tfig"]


def request(path, form=TABS, rows=None, **options) -> Request:
    def classes(labels, _rows):
        return ["0", "1"], np.array([int(text) for text in labels])

    return Request(find_parts(path), lambda: form, classes, {"test": form.name}, rows=rows, **options)


def table_of(path, form=TABS, rows=None) -> dict[str, list]:
    """What is parsed, with labels as they are spelled."""
    tables, columns = [], form.columns
    for opened in open_parts(find_parts(path)):
        for number, block in enumerate(read_blocks(opened, quotes=form.multiline)):
            if not number:
                block = without_mark(block)
                columns, block = header_of(block, form) if form.header else (columns, block)
            left = None if rows is None else rows - sum(map(len, tables))
            parsed = parse(block, form, columns, left)
            assert not parsed.bad
            tables.append(parsed.table)
    return pa.concat_tables(tables).to_pydict()


def refusal(path, form=TABS, rows=None) -> str:
    with pytest.raises(UserError) as error:
        prepare(request(path, form, rows))
    assert error.value.key == "dataset.path"
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return error.value.problem


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_missing_integers_are_null_and_missing_categories_the_empty_string(tmp_path, compress, end):
    table = table_of(write(tmp_path / "x", GOOD, end=end, compress=compress))
    assert table == {"y": ["0", "1", "1", "0"], "n": [-7, None, 12, 3], "c": ["pear", "fig", "", "fig"]}


def test_the_last_line_needs_no_line_end_and_empty_lines_are_no_rows(tmp_path):
    table = table_of(write(tmp_path / "x", "\n\n".join(GOOD).encode()))
    assert table["c"] == ["pear", "fig", "", "fig"]


@pytest.mark.parametrize("mark", ["NA", "null", "NaN", "#N/A"])
def test_only_the_empty_field_is_missing(tmp_path, mark):
    assert table_of(write(tmp_path / "x", [*GOOD, f"0\t1\t{mark}"]))["c"][-1] == mark


@pytest.mark.parametrize("word", ["NA", "null", "1.5", str(2**63)])
def test_an_integer_column_holds_integers_or_nothing(tmp_path, word):
    assert refusal(write(tmp_path / "x", [*GOOD, f"0\t{word}\tfig"])) == f"line 5: column n: '{word}' is not an integer"


def test_gzip_is_told_by_content_not_by_name(tmp_path):
    plain, compressed = tmp_path / "plain.gz", tmp_path / "compressed.txt"
    write(plain, GOOD)
    write(compressed, GOOD, compress=True)
    assert table_of(str(plain)) == table_of(str(compressed))


def test_gzip_files_may_be_joined(tmp_path):
    parts = [gzip.compress(f"{line}\n".encode()) for line in GOOD]
    assert table_of(write(tmp_path / "x", b"".join(parts)))["n"] == [-7, None, 12, 3]


@pytest.mark.parametrize(("rows", "read"), [(1, 1), (3, 3), (4, 4), (99, 4), (None, 4)])
def test_rows_limits_from_the_top(tmp_path, rows, read):
    assert table_of(write(tmp_path / "x", GOOD), rows=rows)["n"] == [-7, None, 12, 3][:read]


def test_codes_follow_the_order_of_the_values(tmp_path):
    table = prepare(request(write(tmp_path / "x", GOOD))).table
    assert (table.categorical[:, 0].tolist(), table.sizes) == ([2, 1, 0, 1], (3,))  # "" < "fig" < "pear"
    assert table.labels.tolist() == [0, 1, 1, 0]
    assert table.numeric[:, 0].tolist() == [-7, np.iinfo(np.int32).min, 12, 3]


@pytest.mark.parametrize("rows", [None, 250])
@pytest.mark.parametrize("length", [3, 12])
def test_one_vocabulary_covers_all_read_blocks(tmp_path, monkeypatch, rows, length):
    """Words of up to 8 bytes and longer ones are kept in different ways, also side by side."""
    monkeypatch.setattr("vflbench.data.files.BLOCK_BYTES", 200)
    words = [f"w{(i * 7) % 300:03d}".ljust(length if i % 2 else 3, "~") for i in range(300)]
    table = prepare(request(write(tmp_path / "x", [f"{i % 2}\t{i}\t{w}" for i, w in enumerate(words)]), rows=rows)).table
    kept = words[:rows]
    ranks = {word: rank for rank, word in enumerate(sorted(set(kept)))}
    assert table.categorical[:, 0].tolist() == [ranks[word] for word in kept]
    assert table.statistics.counts[0].tolist() == [kept.count(word) for word in sorted(set(kept))]
    assert table.numeric[:, 0].tolist() == list(range(len(kept)))
    assert (table.statistics.low.tolist(), table.statistics.high.tolist()) == ([0], [len(kept) - 1])


def test_an_ignored_column_is_not_read_even_if_too_large_for_64_bits(tmp_path):
    table = table_of(write(tmp_path / "x", ["k,y,c", f"{10**20},1,a", "word,0,b"]), COMMAS)
    assert table == {"y": ["1", "0"], "c": ["a", "b"]}


def test_with_a_header_quotes_wrap_fields_and_without_they_are_characters(tmp_path):
    assert table_of(write(tmp_path / "x", ["k,y,c", '1,0,"a,b"']), COMMAS)["c"] == ["a,b"]
    assert table_of(write(tmp_path / "y", ['0\t1\t"a"']))["c"] == ['"a"']


def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path):
    assert table_of(write(tmp_path / "x", b"\xef\xbb\xbf" + "\n".join(GOOD).encode()))["y"][0] == "0"
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
    path = write(tmp_path / "x", [f"0\t{n}\t" for n in widest])
    assert table_of(path)["n"] == widest
    assert prepare(request(path)).table.numeric[:, 0].tolist() == [float(n) for n in widest]


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


def test_a_gzip_file_whose_checksum_is_wrong_is_refused(tmp_path):
    """Stored, not deflated: the changed digit is a valid field, so that only the checksum can tell."""
    damaged = gzip.compress("\n".join(GOOD).encode(), compresslevel=0).replace(b"12", b"13")
    assert "CRC check failed" in refusal(write(tmp_path / "x", damaged))


def test_a_missing_file_and_a_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal("nowhere.txt") == f"there is no such file (looked in {tmp_path})"
    assert refusal(str(tmp_path)) == "this is a folder; name the file in it, or a pattern such as 'day_*'"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "x", GOOD)
    assert find_parts("~/x") == [Part(tmp_path / "x")]


def test_facts_tell_the_whole_path_and_the_hash_of_the_bytes_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x", GOOD, compress=True)
    sha256 = hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()
    assert prepare(request("x")).facts == {"path": str((tmp_path / "x").resolve()), "file_sha256": sha256}


ZSTD = pa.Codec("zstd")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda b: ZSTD.compress(b, asbytes=True)])
def test_compressed_files_of_every_kind_are_read_whatever_their_name(tmp_path, pack):
    path = tmp_path / "rows"
    path.write_bytes(pack("\n".join(GOOD).encode()))
    assert table_of(str(path))["n"] == [-7, None, 12, 3]
    path.write_bytes(path.read_bytes()[:-5])
    assert "breaks off" in refusal(str(path))


def test_a_pattern_takes_its_files_in_natural_order(tmp_path):
    for number in (10, 9, 1):
        write(tmp_path / f"day_{number}", [f"0\t{number}\tx"], compress=number == 9)
    (tmp_path / "day_folder").mkdir()
    assert table_of(str(tmp_path / "day_*"))["n"] == [1, 9, 10]
    assert table_of([str(tmp_path / "day_10"), str(tmp_path / "day_1")])["n"] == [10, 1]
    with pytest.raises(UserError, match="no file matches"):
        find_parts(str(tmp_path / "night_*"))
    with pytest.raises(UserError, match="named twice"):
        find_parts([str(tmp_path / "day_1")] * 2)


def archive(path, kind, members):
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, lines in members.items():
                file.writestr(name, "\n".join(lines))
    else:
        with tarfile.open(path, f"w:{kind}") as file:
            for name, lines in members.items():
                info = tarfile.TarInfo(name)
                data = "\n".join(lines).encode()
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.mark.parametrize("kind", ["zip", "", "gz", "xz"])
def test_members_of_an_archive(tmp_path, kind):
    two = archive(tmp_path / "two", kind, {"readme.txt": ["hello"], "d/day_1": GOOD[:2], "d/day_2": GOOD[2:]})
    assert [str(p) for p in find_parts(two, ["d/*"])] == [f"{two}::d/day_1", f"{two}::d/day_2"]
    with pytest.raises(UserError, match=r"holds 3 files; .*dataset.members: readme.txt, d/day_1, d/day_2"):
        find_parts(two)
    with pytest.raises(UserError, match="no file in .* matches"):
        find_parts(two, ["nothing"])
    one = archive(tmp_path / "one", kind, {"train.txt": GOOD})
    assert table_of(one)["n"] == [-7, None, 12, 3]
    bad = archive(tmp_path / "bad", kind, {"train.txt": [*GOOD, "x"]})
    assert refusal(bad).startswith("line 5: 1 fields")
    with pytest.raises(UserError, match="not a .zip or .tar"):
        find_parts(write(tmp_path / "plain", GOOD), ["x"])


def test_the_rows_of_all_parts_follow_one_another(tmp_path):
    both = archive(tmp_path / "both.tar.gz", "gz", {"a": GOOD[:1], "b": GOOD[1:]})
    assert [part.member for part in find_parts(both, ["*"])] == ["a", "b"]
    table = prepare(replace(request(str(write(tmp_path / "x", GOOD))), parts=find_parts(both, ["b", "a"]))).table
    assert table.numeric[:, 0].tolist() == [-7, np.iinfo(np.int32).min, 12, 3]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"0\t 5\tfig", "column n: ' 5' is not an integer"),
        (b"0\t0x1\tfig", "column n: '0x1' is not an integer"),
        (b"0\t+5\tfig", "column n: '+5' is not an integer"),
        (b"01\t5\tfig", "column y: the label is '01'; it must be 0 or 1"),
        (b"0\t5\tf\0g", r"column c: 'f\x00g' holds a NUL byte"),
        (b"0\t5\tf\rg", r"column c: 'f\rg' holds a carriage return"),
        (b"0\t5\t" + b"f" * MAX_LINE_BYTES, "it is longer than 1,048,576 bytes"),
        (b"0\t5\t" + b"f" * (40 << 20), "it is longer than 1,048,576 bytes"),
    ],
    ids=["space", "hex", "plus", "label 01", "NUL", "carriage return", "a long line", "a line of 40 MB"],
)
def test_what_pyarrow_would_take_is_still_wrong(tmp_path, line, told):
    path = write(tmp_path / "x", b"\n".join([GOOD[0].encode(), line, GOOD[1].encode()]) + b"\n")
    assert refusal(path) == f"line 2: {told}"
    found = prepare(request(path, skip=True, max_bad_fraction=0.5))
    assert found.table.numeric[:, 0].tolist() == [-7, np.iinfo(np.int32).min]
    assert found.facts["bad_rows"] == {"count": 1, "first": [f"line 2: {told}"]}


def test_leading_zeros_and_odd_characters_in_categories_are_fine(tmp_path):
    table = table_of(write(tmp_path / "x", ["0\t007\t x+", f"1\t-{'0' * 30}5\t0x"]))
    assert table == {"y": ["0", "1"], "n": [7, -5], "c": [" x+", "0x"]}


def test_carriage_returns_alone_end_no_line(tmp_path):
    assert refusal(write(tmp_path / "x", GOOD, end="\r")).startswith("line 1: 9 fields")


def test_bad_rows_are_counted_shown_and_refused_if_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.files.BLOCK_BYTES", 64)
    lines = [f"{i % 2}\t{i}\tw{i}" if i % 4 else f"{i % 2}\tword\t{i}" for i in range(100)]
    path = write(tmp_path / "x", lines)
    found = prepare(request(path, skip=True, max_bad_fraction=0.25))
    assert found.table.numeric[:, 0].tolist() == [i for i in range(100) if i % 4]
    assert found.facts["bad_rows"]["count"] == 25
    assert found.facts["bad_rows"]["first"] == [f"line {i}: column n: 'word' is not an integer" for i in (1, 5, 9, 13, 17)]
    with pytest.raises(UserError, match=r"25 of 100 rows are bad \(25.00%\), more than allowed") as error:
        prepare(request(path, skip=True, max_bad_fraction=0.24))
    assert (error.value.key, error.value.value) == ("dataset.max_bad_fraction", 0.24)
    with pytest.raises(UserError, match="all 2 rows are bad"):
        prepare(request(write(tmp_path / "y", ["x", "y"]), skip=True, max_bad_fraction=1.0))


def test_a_limit_counts_good_rows_and_looks_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.files.BLOCK_BYTES", 64)
    path = write(tmp_path / "x", [*GOOD, "bad", *GOOD, "worse"] * 3)
    found = prepare(request(path, rows=6, skip=True, max_bad_fraction=1.0))
    assert (len(found.table), found.facts["bad_rows"]["count"]) == (6, 1)
    assert found.facts["file_sha256"] is None  # not all of it was read
    assert len(prepare(request(path, rows=4)).table) == 4


@pytest.mark.parametrize("size", [1, 7, 30, 1000])
def test_blocks_are_whole_lines_numbered_from_1_and_lose_nothing(tmp_path, monkeypatch, size):
    monkeypatch.setattr("vflbench.data.files.BLOCK_BYTES", size)
    text = b"".join(b"x" * (i % 9) + b"\n" for i in range(50)) + b"no end"
    blocks = [b for o in open_parts(find_parts(write(tmp_path / "x", text))) for b in read_blocks(o, quotes=False)]
    assert b"".join(b.data for b in blocks) == text
    lines = 1
    for block in blocks:
        assert block.first_line == lines
        lines += block.data.count(b"\n")
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])


def test_line_ends_inside_quotes_do_not_cut_a_row(monkeypatch, tmp_path):
    monkeypatch.setattr("vflbench.data.files.BLOCK_BYTES", 5)
    text = b'a,"b\nc"\nd,e\n"f\n""g\n",h\n'
    path = write(tmp_path / "x", text)
    blocks = [b for o in open_parts(find_parts(path)) for b in read_blocks(o, quotes=True)]
    assert b"".join(b.data for b in blocks) == text
    assert all(b.data.count(b'"') % 2 == 0 for b in blocks)
    form = TextFormat("two", ("x", "y"), label="y", delimiter=",", header=True, binary_label=False, multiline=True)
    rows = parse(Block(Part(tmp_path), 1, text), form, ("x", "y")).table
    assert rows.to_pydict() == {"y": ["b\nc", "e", "h"], "x": ["a", "d", 'f\n"g\n']}
