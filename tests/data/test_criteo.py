import gzip
import hashlib
import re

import numpy as np
import pytest
import torch
from raw_files import criteo_line, error_of, in_file_order, load, write

from vflbench.data.clicklogs import CATEGORIES, INTEGERS, Criteo

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


def test_rows_takes_the_first_rows(tmp_path):
    path = write(tmp_path / "x", GOOD)
    split = load(Criteo(path=path, rows=7, test_fraction=0.2))
    assert sorted([*split.train.ids.tolist(), *split.test.ids.tolist()]) == list(range(7))
    assert len(load(Criteo(path=path, rows=500)).train) == 18


def test_lines_after_the_last_row_are_not_parsed(tmp_path):
    path = write(tmp_path / "x", [*GOOD, "", "not a row", *GOOD])
    assert len(load(Criteo(path=path, rows=20)).train) == 18
    assert "row 21: Expected 40 columns, got 1" in error_of(Criteo(path=path, rows=21))
    trimmed = load(Criteo(path=path, rows=5)).train.features["a"].columns
    assert trimmed.cardinalities[0] == 3  # values after the last row have no id


def test_integers_beyond_what_a_float_counts_exactly_are_read(tmp_path):
    lines = [criteo_line(i % 2, {4: 2**60 + i}) for i in range(10)]
    numeric, _, _ = in_file_order(load(Criteo(path=write(tmp_path / "x", lines))))
    assert numeric.isfinite().all()


def test_facts_identify_the_raw_file_by_its_hash(tmp_path):
    path = write(tmp_path / "x", GOOD)
    facts = load(Criteo(path=path)).facts
    sha256 = hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()
    assert facts == {"class_rows": {"0": 10, "1": 10}, "path": path, "file_sha256": sha256}


def test_ids_do_not_depend_on_the_order_of_the_rows(tmp_path):
    forward, backward = (load(Criteo(path=write(tmp_path / n, o))) for n, o in (("f", GOOD), ("b", GOOD[::-1])))
    for there, back in zip(in_file_order(forward), in_file_order(backward), strict=True):
        assert torch.equal(there, back.flip(0))


def test_every_column_can_be_missing_at_once(tmp_path):
    nothing = criteo_line(1, dict.fromkeys(range(1, 14), ""), dict.fromkeys(range(1, 27), ""))
    numeric, categorical, labels = in_file_order(load(Criteo(path=write(tmp_path / "x", [*GOOD, nothing]))))
    assert labels[-1] == 1
    assert not numeric[-1].any()
    assert not categorical[-1].any()
    assert (categorical[:-1, 1:] == 1).all()  # a column of one value and missing ones


def test_categories_are_texts_not_numbers(tmp_path):
    """As numbers, 1e5, 100000 and 00100000 would be one."""
    words = ["1e5", "100000", "00100000", "NaN", "0x10", "16"]
    lines = [criteo_line(i % 2, categories={7: word}) for i, word in enumerate(words)]
    split = load(Criteo(path=write(tmp_path / "x", lines), test_fraction=0.2))
    assert split.train.features["a"].columns.cardinalities[6] == len(words)


def test_parties_hold_the_columns_they_name_and_the_rest_is_recorded(tmp_path):
    split = load(Criteo(path=write(tmp_path / "x", GOOD), parties={"shop": ["I*", "C1"], "label": ["C2?"]}))
    assert split.train.features["shop"].columns.numeric == INTEGERS
    assert split.train.features["shop"].columns.categorical == ("C1",)
    assert split.train.features["label"].columns.categorical == tuple(f"C{i}" for i in range(20, 27))
    assert split.facts["columns_left_out"] == [f"C{i}" for i in range(2, 20)]


def unlabelled(line):
    return line.split("\t", 1)[1]


BAD_UTF8 = "\n".join([*GOOD, criteo_line(0, categories={2: "@"})]).encode().replace(b"@", b"\xff\xfe")


def test_an_error_names_the_line_the_column_and_the_value(tmp_path):
    cases = (
        ([unlabelled(line) for line in GOOD], ["row 1", "got 39", "40", "label"]),
        ([*GOOD[:5], unlabelled(GOOD[5]), *GOOD[6:]], ["row 6", "got 39", "40"]),
        ([*GOOD[:2], GOOD[2] + "\tx"], ["row 3", "got 41"]),
        ([*GOOD[:9], criteo_line(2)], ["row 10", "column label", "'2'", "0 or 1"]),
        ([*GOOD, criteo_line("")], ["row 21", "column label", "''"]),
        ([*GOOD, criteo_line(0, {5: "many"})], ["row 21", "column I5", "'many'", "integers"]),
        ([*GOOD, criteo_line(0, {5: "1_000"})], ["row 21: column I5"]),
        ([*GOOD, criteo_line(0, {5: "+5"})], ["row 21: column I5"]),
        ([criteo_line(0, {13: "1.5"}), *GOOD], ["row 1", "column I13", "'1.5'"]),
        ([criteo_line(0, {13: str(2**63)}), *GOOD], ["row 1", "column I13"]),
        (BAD_UTF8, ["row 21", "column C2", "utf-8"]),
        ([line.replace("\t", ",") for line in GOOD], ["row 1", "got 1"]),
        (b"", ["Empty CSV"]),
        (b"\n\n\n", ["no rows"]),
    )
    for i, (lines, expected) in enumerate(cases):
        path = write(tmp_path / f"{i}.txt", lines)
        message = error_of(Criteo(path=path))
        for words in [*expected, f"dataset.path={path}"]:
            assert words in message, message
        assert "\n" not in message


def test_a_wrong_line_in_a_later_block_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 100_000)
    lines = GOOD * 300  # some 1,400 kB
    lines[5000] = unlabelled(lines[5000])
    assert "row 5,001: Expected 40 columns, got 39" in error_of(Criteo(path=write(tmp_path / "large.txt", lines)))


def test_a_truncated_gzip_file_is_rejected(tmp_path):
    whole = gzip.compress("\n".join(criteo_line(i % 2, {2: i * i}) for i in range(500)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    assert re.search(r"ended before the end", error_of(Criteo(path=str(tmp_path / "cut.gz"))))


def test_a_missing_file_and_a_folder_are_rejected(tmp_path):
    assert "no such file" in error_of(Criteo(path=str(tmp_path / "nowhere.txt")))
    assert "folder" in error_of(Criteo(path=str(tmp_path)))


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


@pytest.mark.slow
@pytest.mark.data
def test_the_whole_real_file_has_its_published_counts(data_folder):
    split = load(Criteo(path=str(data_folder / "criteo" / "train.txt.gz")))
    assert len(split.train) + len(split.test) == 109_715
    positives = int(split.train.labels.sum() + split.test.labels.sum())
    assert positives / 109_715 == pytest.approx(0.2559, abs=5e-5)
    columns = split.train.features["a"].columns
    sizes = dict(zip(columns.categorical, columns.cardinalities, strict=True))
    # Columns without a missing value have as many ids as distinct values, the others have one more.
    assert (sizes["C1"], sizes["C9"], sizes["C23"], sizes["C26"], sizes["C3"]) == (553, 3, 14, 9777, 50_581)


@pytest.mark.data
def test_the_real_unlabelled_file_is_rejected(data_folder):
    assert "row 1: Expected 40 columns, got 39" in error_of(
        Criteo(path=str(data_folder / "criteo" / "test_unlabelled.txt.gz"))
    )


@pytest.mark.slow
@pytest.mark.data
def test_every_column_has_the_counts_that_the_data_folder_states(data_folder):
    """The README does not count the empty field as a value, and omits its share if that is below 0.00005."""
    section = (data_folder / "README.md").read_text().split("## criteo/")[1].split("## ")[0]
    stated = re.findall(r"^\| ([IC]\d+) \| ([\d.]+) \| ([\d,]+) \|$", section, re.MULTILINE)
    assert [name for name, *_ in stated] == [*INTEGERS, *CATEGORIES]
    raw = Criteo(path=str(data_folder / "criteo" / "train.txt.gz")).prepare().table
    columns = [*raw.numeric.T, *raw.categorical.T]
    for column, (name, share, count) in zip(columns, stated, strict=True):
        if name in INTEGERS:
            missing = np.isnan(column)
            distinct = len(np.unique(column[~missing]))
        else:
            has_missing = float(share) > 0
            missing = (column == 0) & has_missing  # the empty string sorts first
            distinct = raw.sizes[CATEGORIES.index(name)] - has_missing
        assert missing.mean() == pytest.approx(float(share), abs=5.1e-5), name
        assert distinct == int(count.replace(",", "")), name


@pytest.mark.data
def test_a_log_of_the_real_integers_is_the_log_by_hand(data_folder):
    path = data_folder / "criteo" / "train.txt.gz"
    with gzip.open(path, "rt") as file:
        x = [float(line.split("\t")[2]) for line, _ in zip(file, range(500), strict=False)]
    assert min(x) < 0  # I2 is negative in places
    y = np.sign(x) * np.log1p(np.abs(x))
    numeric, _, _ = in_file_order(load(Criteo(path=str(path), rows=500, numeric_transform="log")))
    assert numeric[:, 1].tolist() == pytest.approx(((y - y.min()) / (y.max() - y.min())).tolist(), abs=1e-6)


@pytest.mark.data
def test_min_count_shares_one_id_among_the_rare_values_of_a_real_column(data_folder):
    path = str(data_folder / "criteo" / "train_head.txt.gz")
    _, plain, _ = in_file_order(load(Criteo(path=path)))
    split = load(Criteo(path=path, min_count=5))
    _, merged, _ = in_file_order(split)
    for j, size in enumerate(split.train.features["a"].columns.cardinalities):
        counts = plain[:, j].bincount()
        rare = counts[plain[:, j].long()] < 5
        assert size == int((counts >= 5).sum()) + bool(rare.any())
        assert (merged[rare, j] == size - 1).all()
        assert merged[~rare, j].unique().tolist() == list(range(int((counts >= 5).sum())))


def test_a_byte_order_mark_is_neither_an_error_nor_reported_as_one(tmp_path):
    mark = b"\xef\xbb\xbf"
    content = mark + "\n".join([*GOOD, "bad"]).encode()
    assert len(load(Criteo(path=write(tmp_path / "x", mark + "\n".join(GOOD).encode()))).train) == 18
    assert len(load(Criteo(path=write(tmp_path / "y", content), rows=5, test_fraction=0.2)).train) == 4
    assert "row 21: Expected 40 columns, got 1" in error_of(Criteo(path=write(tmp_path / "z", content)))
