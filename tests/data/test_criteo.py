import gzip

import pytest
from support.raw_files import criteo_line, error_of, in_file_order, load, write

from vflbench.data.clicklogs import Criteo

GOOD = [criteo_line(label=i % 2, integers={1: i}, categories={1: f"{i % 3:08x}"}) for i in range(20)]


def test_every_field_lands_in_its_column(tmp_path):
    lines = [
        criteo_line(0, {1: "", 2: -2, 13: 100}, {1: "", 26: "ffffffff"}),
        criteo_line(1, {1: 4, 2: 8, 13: 50}, {1: "aaaaaaaa", 26: ""}),
        criteo_line(1, {1: 8, 2: 3, 13: 0}, {1: "", 26: "00000000"}),
        criteo_line(0, {1: 0, 2: 3, 13: 0}, {1: "00000000", 26: "ffffffff"}),
    ]
    ways = [(end, compress) for end in ("\n", "\r\n") for compress in (False, True)]
    paths = [write(tmp_path / f"{i}", lines, end=end, compress=compress) for i, (end, compress) in enumerate(ways)]
    split, *others = (load(Criteo(path=path)) for path in paths)
    assert {other.fingerprint for other in others} == {split.fingerprint}
    columns = split.train.features["a"].columns
    assert columns.numeric == tuple(f"I{i}" for i in range(1, 14))
    assert columns.categorical == tuple(f"C{i}" for i in range(1, 27))
    assert (columns.cardinalities[0], columns.cardinalities[1], columns.cardinalities[25]) == (3, 1, 3)
    numeric, categorical, labels = in_file_order(split)
    assert labels.tolist() == [0, 1, 1, 0]
    assert numeric[:, 0].tolist() == [0, 0.5, 1, 0]  # a missing integer is 0
    assert numeric[:, 1].tolist() == [0, 1, 0.5, 0.5]  # negative numbers are numbers
    assert numeric[:, 12].tolist() == [1, 0.5, 0, 0]
    assert categorical[:, 0].tolist() == [0, 2, 0, 1]  # the empty string is a category, and sorts first
    assert categorical[:, 25].tolist() == [2, 0, 1, 2]


def test_quotes_are_ordinary_characters(tmp_path):
    lines = [criteo_line(0, categories={3: '"a'}), criteo_line(1, categories={3: 'b"'}), *GOOD]
    assert load(Criteo(path=write(tmp_path / "x", lines))).train.features["a"].columns.cardinalities[2] == 3


def test_categories_are_texts_not_numbers(tmp_path):
    """As numbers, 1e5, 100000 and 00100000 would be one."""
    words = ["1e5", "100000", "00100000", "NaN", "0x10", "16"]
    lines = [criteo_line(i % 2, categories={7: word}) for i, word in enumerate(words)]
    split = load(Criteo(path=write(tmp_path / "x", lines), test_fraction=0.2))
    assert split.train.features["a"].columns.cardinalities[6] == len(words)


@pytest.mark.slow
@pytest.mark.data
def test_real_rows_agree_with_a_reading_by_hand(data_folder):
    path = data_folder / "criteo" / "train.txt.gz"
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line, _ in zip(file, range(3000), strict=False)]
    numeric, categorical, labels = in_file_order(load(Criteo(path=str(path), rows=3000)))
    assert labels.tolist() == [int(row[0]) for row in rows]
    for j in range(13):
        x = [float(row[1 + j] or 0) for row in rows]
        low, high = min(x), max(x)
        by_hand = [(v - low) / (high - low) if high > low else 0.0 for v in x]
        assert numeric[:, j].tolist() == pytest.approx(by_hand, abs=1e-6)
    for j in range(26):
        values = sorted({row[14 + j] for row in rows})
        assert categorical[:, j].tolist() == [values.index(row[14 + j]) for row in rows]


def test_a_byte_order_mark_is_neither_an_error_nor_reported_as_one(tmp_path):
    mark = b"\xef\xbb\xbf"
    content = mark + "\n".join([*GOOD, "bad"]).encode()
    assert len(load(Criteo(path=write(tmp_path / "x", mark + "\n".join(GOOD).encode()))).train) == 18
    assert len(load(Criteo(path=write(tmp_path / "y", content), rows=5, test_fraction=0.2)).train) == 4
    assert "row 21: Expected 40 columns, got 1" in error_of(Criteo(path=write(tmp_path / "z", content)))
