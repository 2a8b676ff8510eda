"""Text files that are wrong: each is refused in one printable line that names the row, the column and the value."""

import gzip

import pytest
from support.raw_files import avazu_line, criteo_line, error_of, write

from vflbench.data.binary import Binary
from vflbench.data.clicklogs import AVAZU, Avazu, Criteo
from vflbench.data.csv import Csv

CRITEO = [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}) for i in range(20)]
SHORT = CRITEO[0].split("\t", 1)[1]
HEADER = ",".join(AVAZU.columns)
CLICKS = [HEADER, *(avazu_line(click=str(i % 2), hour=f"141021{i:02d}") for i in range(20))]
TABLE = ["a,b,y", *(f"{i},{'no' if i % 3 else 'yes'},{i % 2}" for i in range(40))]
SVM = [f"{1 if i % 2 else -1} 1:{i % 3} 2:1" for i in range(12)]
BITS = ["class,a,b", *(f"{'yes' if i % 2 else 'no'},{i % 2},{i % 3}" for i in range(12))]
LONG = "1" * 140_000
READERS = {
    "criteo": lambda path, **options: Criteo(path=path, **options),
    "avazu": lambda path, **options: Avazu(path=path, **options),
    "csv": lambda path, **options: Csv(**{"path": path, "label": "y", **options}),
    "binary": lambda path, **options: Binary(path=path, **options),
}
CASES = [
    ("criteo", [SHORT], {}, ["row 1", "got 39", "40", "label"]),
    ("criteo", [*CRITEO[:5], SHORT, *CRITEO[6:]], {}, ["row 6", "got 39"]),
    ("criteo", [*CRITEO[:9], criteo_line(2)], {}, ["row 10", "column label", "'2'", "0 or 1"]),
    ("criteo", [*CRITEO, criteo_line(0, {5: "many"})], {}, ["row 21", "column I5", "'many'", "numbers"]),
    ("criteo", [*CRITEO, criteo_line(0, {5: "1_000"})], {}, ["row 21: column I5"]),
    (
        "criteo",
        "\n".join([*CRITEO, criteo_line(0, categories={2: "@"})]).encode().replace(b"@", b"\xff"),
        {},
        ["row 21", "C2"],
    ),
    ("criteo", b"\n\n\n", {}, ["no rows"]),
    ("avazu", [HEADER.replace("click,", ""), "x"], {}, ["row 1", "click", "no label"]),
    ("avazu", [HEADER.replace("C14", "D14"), *CLICKS[1:]], {}, ["row 1", "no column C14"]),
    ("avazu", [*CLICKS, "1,2,3"], {}, ["row 22", "got 3", "24"]),
    ("avazu", [*CLICKS, avazu_line(click="yes")], {}, ["row 22", "column click", "'yes'"]),
    ("csv", TABLE, {"label": "click"}, ["dataset.label=click", "a, b"]),
    ("csv", TABLE, {"label": "a"}, ["40 different values"]),
    ("csv", TABLE, {"types": {"town": "ignore"}}, ["dataset.types=town", "no such column"]),
    ("csv", TABLE, {"types": {"b": "numeric"}}, ["row 2", "column b: it holds numbers", "yes"]),
    ("csv", TABLE, {"positive": "maybe"}, ["dataset.positive=maybe", "0, 1"]),
    ("csv", TABLE, {"delimiter": "--"}, ["one character"]),
    ("csv", TABLE, {"encoding": "utf-9"}, ["unknown encoding: utf-9"]),
    ("csv", [*TABLE, "1,2"], {}, ["row 42", "Expected 3 columns, got 2"]),
    ("csv", [*TABLE, "1,yes,"], {}, ["row 42", "column y", "no label"]),
    ("csv", ["x,x,y", "1,2,0", "1,2,1"], {}, ["row 1", "names x twice"]),
    ("csv", b"", {}, ["Empty CSV file"]),
    ("csv", ["x,y", '"a', 'b",0', "c,1", "d"], {}, ["row 4: Expected 2 columns, got 1"]),
    ("csv", ["x,y", "a,0", "b,1", '"c,0', "d,1"], {}, ["row 4: a quote is opened and not closed"]),
    ("csv", ["a\x1b[31m,y", *("1,0", "2,1")], {}, ["row 1: "]),
    ("csv", gzip.compress("\n".join(TABLE * 50).encode())[:-60], {}, ["ended before the end"]),
    *(
        ("csv", [*TABLE, f"{number},yes,1"], {"types": {"a": "numeric"}}, ["row 42", "column a"])
        for number in ("inf", "nan(1)", "+-1", "1\x1b[31m")
    ),
    ("binary", ["1 #a:1"], {}, ["no row has a feature"]),
    ("binary", ["Class", "1"], {}, ["one column"]),
    ("binary", BITS, {"label": "c"}, ["no such column"]),
    ("binary", BITS, {"positive": 7}, ["no row has this label"]),
    ("binary", BITS, {"columns": 5}, ["between 1 and 2"]),
    ("binary", BITS, {"columns": ["c"]}, ["no column c"]),
    ("binary", ["Class,a", "0.1,1", "0.2,0", "0.3,1", "0.4,1", "0.5,0"], {}, ["a class, not a measurement"]),
    *(
        ("binary", [*SVM, line], {}, [" 13"])
        for line in (
            "garbage 1:1",
            "\x001 1:1",
            "\ufeff1 1:1",
            "\u0661 1:1",
            "inf 1:1",
            "1 1:nan",
            "1 1:0x1",
            "1 1:",
            "1 -1:1",
        )
    ),
    *(
        ("binary", [*BITS, line], {}, ["row 14: "])
        for line in (
            "\x1b[31mred,1,1",
            "y\0es,1,1",
            '"yes,1,1',
            "NA,1,1",
            "yes,1_0,1",
            "yes,nan,1",
            "yes,1",
            f"yes,{LONG},1",
        )
    ),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_it_is_refused_in_one_line(number, tmp_path):
    reader, lines, options, expected = CASES[number]
    message = error_of(READERS[reader](write(tmp_path / "x", lines), **options))
    for words in expected:
        assert words in message, (reader, message)
    assert message.isprintable()
    assert 20 < len(message) < 1000
