"""Lines that are garbage: refused in one printable line that names the row, the column and the value."""

import gzip
import re
from functools import partial

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.raw_files import criteo_line, refusal_of, write

from vflbench.data.binary import Binary
from vflbench.data.clicklogs import AVAZU, Avazu, Criteo
from vflbench.data.csv import Csv
from vflbench.data.parquet import Parquet
from vflbench.errors import UserError

CRITEO = [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}) for i in range(20)]
SHORT = CRITEO[0].split("\t", 1)[1]
HEADER = ",".join(AVAZU.columns)
TABLE = ["a,b,y", *(f"{i},{'no' if i % 3 else 'yes'},{i % 2}" for i in range(40))]
SVM = [f"{1 if i % 2 else -1} 1:{i % 3} 2:1" for i in range(12)]
BITS = ["class,a,b", *(f"{'yes' if i % 2 else 'no'},{i % 2},{i % 3}" for i in range(12))]
LONG = "1" * 140_000
READERS = {"criteo": Criteo, "avazu": Avazu, "csv": partial(Csv, label="y"), "binary": Binary}
CASES = [
    ("criteo", [*CRITEO[:5], SHORT], {}, ["row 6", "got 39", "40", "label"]),
    ("criteo", [*CRITEO[:9], criteo_line(2)], {}, ["row 10", "column label", "'2'", "0 or 1"]),
    ("criteo", [*CRITEO, criteo_line(0, {5: "many"})], {}, ["row 21", "column I5", "'many'", "numbers"]),
    ("criteo", "\n".join([*CRITEO, criteo_line(0, {}, {2: "@"})]).encode().replace(b"@", b"\xff"), {}, ["row 21", "C2"]),
    ("avazu", [HEADER.replace("click,", ""), "x"], {}, ["row 1", "click", "no label"]),
    ("avazu", [HEADER.replace("C14", "D14"), "x"], {}, ["row 1", "no column C14"]),
    ("csv", TABLE, {"types": {"town": "ignore"}}, ["dataset.types=town", "no such column"]),
    ("csv", TABLE, {"types": {"b": "numeric"}}, ["row 2", "column b: it holds numbers", "yes"]),
    ("csv", TABLE, {"positive": "maybe"}, ["dataset.positive=maybe", "0, 1"]),
    ("csv", TABLE, {"delimiter": "--"}, ["one character"]),
    ("csv", TABLE, {"encoding": "utf-9"}, ["unknown encoding: utf-9"]),
    ("csv", ["x,y", '"a', 'b",0', "c,1", "d"], {}, ["row 4: Expected 2 columns, got 1"]),
    ("csv", ["a\x1b[31m,y", *("1,0", "2,1")], {}, ["row 1: "]),
    ("csv", gzip.compress("\n".join(TABLE * 50).encode())[:-60], {}, ["ended before the end"]),
    ("csv", ["", *TABLE, "nan(1),yes,1"], {"types": {"a": "numeric"}, "skip_lines": 1}, ["row 43", "column a"]),
    ("binary", ["1 #a:1"], {}, ["no row has a feature"]),
    ("binary", ["Class", "1"], {}, ["one column"]),
    ("binary", BITS, {"label": "c"}, ["no such column"]),
    ("binary", BITS, {"columns": 5}, ["between 1 and 2"]),
    ("binary", BITS, {"columns": ["c"]}, ["no column c"]),
    ("binary", ["Class,a", "0.1,1", "0.2,0", "0.3,1", "0.4,1", "0.5,0"], {}, ["a class, not a measurement"]),
    *(
        ("binary", [*SVM, line], {}, [" 13"])
        for line in ("garbage 1:1", "\x001 1:1", "\ufeff1 1:1", "\u0661 1:1", "inf 1:1", "1 1:nan", "1 1:", "1 -1:1")
    ),
    *(
        ("binary", [*BITS, line], {}, ["row 14: "])
        for line in ("\x1b[31mred,1,1", "y\0es,1,1", '"yes,1,1', "NA,1,1", "yes,1_0,1", "yes,nan,1", f"yes,{LONG},1")
    ),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_it_is_refused_in_one_line(number, tmp_path):
    reader, lines, options, expected = CASES[number]
    message = refusal_of(READERS[reader](path=write(tmp_path / "x", lines), **options))
    for words in expected:
        assert words in message, (reader, message)


@pytest.mark.parametrize("lines", [SVM, BITS, TABLE], ids=["libsvm", "binary", "csv"])
def test_other_line_ends_and_encodings_are_named(tmp_path, lines):
    def read(path):
        return Csv(path=path, label="y", rows=12) if lines is TABLE else Binary(path=path)

    text = "\n".join(lines) + "\n"
    if lines is not SVM:
        assert len(read(write(tmp_path / "cr", text.replace("\n", "\r").encode())).read(None)[0]) == 12
    for name in ("utf-16", "utf-16-be", "utf-16-le", "utf-32"):
        content = text.encode(name) if name != "utf-16-le" else "\ufeff".encode(name) + text.encode(name)
        assert "UTF-16 or UTF-32" in refusal_of(read(write(tmp_path / name, content)))
    assert re.search("ufeff|xbf", refusal_of(read(write(tmp_path / "marks", b"\xef\xbb\xbf" * 2 + text.encode()))))
    mixed = text.replace("\n", "\r\n", 3).removesuffix("\n")
    assert len(read(write(tmp_path / "mixed", b"\xef\xbb\xbf" + mixed.encode())).read(None)[0]) == 12


PLAIN = ["a,b,y,c", *(f"{i},w{i % 3},{i % 2},v{i % 5}" for i in range(100))]


@pytest.mark.parametrize("options", [{}, {"trim": True}, {"comment": "#"}], ids=str)
@pytest.mark.parametrize("line", ['7,w,0,"v', '7,"w,0,v', '"7,w,0,v', '7,"w"x,0,v'])
def test_a_quote_that_is_not_closed_costs_its_line_and_no_other(tmp_path, line, options):
    """The library reads on to the next quote, or to the end of the file: rows would be lost without a word."""
    path = write(tmp_path / "x.csv", [*PLAIN[:21], line, *PLAIN[21:61], line, *PLAIN[61:]])
    assert "a quote is opened and not closed" in refusal_of(Csv(path=path, label="y", **options))
    table, facts = Csv(path=path, label="y", bad_rows="skip", max_bad_fraction=0.5, **options).read(None)
    assert len(table.labels) == 100
    assert facts["bad_rows"]["count"] == 2
    assert facts["bad_rows"]["first"][0].startswith("row 22: a quote is opened and not closed: ")


def test_a_quoted_value_may_hold_line_ends_delimiters_and_quotes(tmp_path):
    path = write(tmp_path / "x.csv", [*PLAIN, '100,"one\ntwo, ""three""\n",0,v1', '101,"",1,"v2"', '102,5"x,1,v2'])
    assert len(Csv(path=path, label="y").read(None)[0].labels) == 103


def test_rows_have_their_numbers_however_many_threads_the_library_has(tmp_path):
    count = pa.cpu_count()
    pa.set_cpu_count(2)  # as on a usual machine; tests have one
    try:
        path = write(tmp_path / "x.csv", [*PLAIN, "1,2", *PLAIN[1:]])
        assert "row 102: Expected 4 columns, got 2" in refusal_of(Csv(path=path, label="y"))
    finally:
        pa.set_cpu_count(count)


def test_a_column_with_the_empty_name_is_a_feature(tmp_path):
    """As pandas names its index where it writes a table."""
    path = write(tmp_path / "x", [",y,a", *(f"{1.5 * k},{k % 2},{k % 7}.5" for k in range(60))])
    assert Csv(path=path, label="y").read(None)[0].numeric_names == ("", "a")


def test_folders_of_a_parted_table_may_lack_a_value_and_files_must_agree_on_types(tmp_path):
    for folder, values in {"year=2020": [1, 2], "year=__HIVE_DEFAULT_PARTITION__": [3, 4]}.items():
        (tmp_path / folder).mkdir()
        pa.parquet.write_table(pa.table({"y": [0, 1] * 30, "a": values * 30}), tmp_path / folder / "p.parquet")
    read = Parquet(path=str(tmp_path), label="y").read(None)[0]
    assert (len(read), read.categorical_names, read.sizes, read.categorical[0]) == (120, ("year",), (2,), [1])  # "" is 0
    pa.parquet.write_table(pa.table({"y": [0, 1] * 30, "a": [True, False] * 30}), tmp_path / "year=2020" / "q.parquet")
    assert "Field a has incompatible types: int64 vs bool" in refusal_of(Parquet(path=str(tmp_path), label="y"))


def test_an_identifier_that_stands_in_two_files_of_a_party_is_named_with_both(tmp_path):
    for name, ids in (("1", ["i1", "i2"]), ("2", ["i3", "i1"])):
        pa.parquet.write_table(pa.table({"id": ids, "x": [0.0, 1.0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(UserError, match=r"rows 1 \(.*1.parquet\), 2 \(.*2.parquet\): column id has the identifier 'i1'"):
        Parquet(party_files={"a": str(tmp_path)}, label="y", id="id").read_party("a")
