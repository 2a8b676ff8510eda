import csv
import gzip
import re

import pytest
import torch
from raw_files import avazu_line, error_of, in_file_order, load, write

from vflbench.data.clicklogs import AVAZU, Avazu
from vflbench.errors import UserError

HEADER = ",".join(AVAZU.columns)
ROWS = [avazu_line(click=str(i % 2), C20=str(i % 4 - 1), device_ip=f"{i:08x}", hour=f"141021{i:02d}") for i in range(20)]


def test_every_column_is_categorical_and_the_id_is_dropped(tmp_path):
    split = load(Avazu(path=write(tmp_path / "x.csv", [HEADER, *ROWS])))
    columns = split.train.features["a"].columns
    assert columns.numeric == ()
    assert columns.categorical == tuple(c for c in AVAZU.columns if c not in ("id", "click"))
    sizes = dict(zip(columns.categorical, columns.cardinalities, strict=True))
    assert (sizes["C20"], sizes["device_ip"], sizes["hour"], sizes["site_id"]) == (4, 20, 20, 1)
    _, categorical, labels = in_file_order(split)
    assert labels.tolist() == [0, 1] * 10
    assert categorical[:, columns.categorical.index("C20")].tolist() == [0, 1, 2, 3] * 5  # "-1" < "0" < "1" < "2"


def test_hour_can_be_read_as_day_and_hour_of_day(tmp_path):
    rows = [avazu_line(click=str(i % 2), hour=f"1410{21 + i % 3}{i % 24:02d}") for i in range(48)]
    split = load(Avazu(path=write(tmp_path / "x.csv", [HEADER, *rows]), hour="day_and_hour"))
    columns = split.train.features["a"].columns
    assert columns.categorical[:2] == ("day", "hour_of_day")
    assert "hour" not in columns.categorical
    assert columns.cardinalities[:2] == (3, 24)
    _, categorical, _ = in_file_order(split)
    assert categorical[:, 0].tolist() == [i % 3 for i in range(48)]
    assert categorical[:, 1].tolist() == [i % 24 for i in range(48)]


def test_ids_of_twenty_digits_and_missing_values_are_fine(tmp_path):
    rows = [*ROWS, avazu_line(id="99999999999999999999", site_id="", click="1")]
    split = load(Avazu(path=write(tmp_path / "x.csv.gz", [HEADER, *rows], compress=True)))
    columns = split.train.features["a"].columns
    assert columns.cardinalities[columns.categorical.index("site_id")] == 2


def test_the_header_states_the_order_of_the_columns(tmp_path):
    turned = AVAZU.columns[::-1]
    rows = [avazu_line(turned, click=str(i % 2), hour=f"141021{i:02d}") for i in range(10)]
    plain = [avazu_line(click=str(i % 2), hour=f"141021{i:02d}") for i in range(10)]
    one = load(Avazu(path=write(tmp_path / "a", [",".join(turned), *rows])))
    other = load(Avazu(path=write(tmp_path / "b", [HEADER, *plain])))
    assert all(map(torch.equal, in_file_order(one), in_file_order(other)))
    assert one.fingerprint == other.fingerprint


def test_neither_windows_line_ends_nor_compression_change_anything(tmp_path):
    ways = [(end, compress) for end in ("\n", "\r\n") for compress in (False, True)]
    paths = [write(tmp_path / f"{i}", [HEADER, *ROWS], end=end, compress=compress) for i, (end, compress) in enumerate(ways)]
    assert len({load(Avazu(path=path)).fingerprint for path in paths}) == 1


def test_ids_may_be_anything_and_never_matter(tmp_path):
    numbered = [avazu_line(id=str(10**19 + i), click=str(i % 2)) for i in range(10)]
    worded = [avazu_line(id="same", click=str(i % 2)) for i in range(10)]
    one, other = (load(Avazu(path=write(tmp_path / n, [HEADER, *r]))) for n, r in (("a", numbered), ("b", worded)))
    assert one.fingerprint == other.fingerprint


def test_rows_counts_rows_not_the_header(tmp_path):
    path = write(tmp_path / "x", [HEADER, *ROWS[:12], "not a row"])
    assert len(in_file_order(load(Avazu(path=path, rows=12)))[2]) == 12
    with pytest.raises(UserError, match="row 14: Expected 24 columns, got 1"):
        load(Avazu(path=path, rows=13))


def test_an_unlabelled_file_is_rejected(tmp_path):
    """The competition's `test.csv` has the same columns without click."""
    columns = [name for name in AVAZU.columns if name != "click"]
    path = write(tmp_path / "test.csv", [",".join(columns), avazu_line(columns)])
    assert "row 1: the header has no column click; these rows carry no label" in error_of(Avazu(path=path))


def test_bytes_that_are_not_utf8_are_reported_with_line_and_column(tmp_path):
    content = "\n".join([HEADER, *ROWS, avazu_line(app_id="@")]).encode().replace(b"@", b"\xff")
    with pytest.raises(UserError, match="row 22: column app_id: .*utf-8"):
        load(Avazu(path=write(tmp_path / "x", content)))


def test_a_truncated_gzip_file_is_rejected(tmp_path):
    whole = gzip.compress("\n".join([HEADER, *(avazu_line(C14=str(i * i)) for i in range(300))]).encode())
    with pytest.raises(UserError, match=r"ended before the end"):
        load(Avazu(path=write(tmp_path / "x", whole[: len(whole) // 2])))


def test_an_error_names_the_wrong_header_or_row(tmp_path):
    cases = (
        (HEADER.replace("click,", ""), ["x"], ["row 1", "click", "no label"]),
        (HEADER.replace("C14", "D14"), ROWS, ["row 1", "no column C14"]),
        (HEADER, [*ROWS, "1,2,3"], ["row 22", "got 3", "24"]),
        (HEADER, [*ROWS, avazu_line(click="yes")], ["row 22", "column click", "'yes'"]),
        (HEADER + ",C21", [row + ",7" for row in ROWS], ["row 1", "names C21 twice"]),
        (HEADER, [], ["no rows"]),
    )
    for i, (header, rows, expected) in enumerate(cases):
        message = error_of(Avazu(path=write(tmp_path / f"{i}.csv", [header, *rows])))
        for words in expected:
            assert words in message, message


@pytest.mark.data
def test_both_real_files_are_read(data_folder):
    for name, rows, ratio in (("train_head", 7199, 0.1738), ("train", 8000, 0.1615)):
        split = load(Avazu(path=str(data_folder / "avazu" / f"{name}.csv.gz")))
        labels = torch.cat([split.train.labels, split.test.labels])
        assert len(labels) == rows, name
        assert labels.double().mean().item() == pytest.approx(ratio, abs=5e-5), name
    columns = split.train.features["a"].columns
    sizes = dict(zip(columns.categorical, columns.cardinalities, strict=True))
    assert (sizes["hour"], sizes["site_id"], sizes["device_ip"], sizes["C20"]) == (240, 549, 7250, 116)


@pytest.mark.data
def test_real_rows_agree_with_a_reading_by_hand(data_folder):
    path = data_folder / "avazu" / "train.csv.gz"
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    split = load(Avazu(path=str(path)))
    _, categorical, labels = in_file_order(split)
    assert labels.tolist() == [int(row["click"]) for row in rows]
    for j, name in enumerate(split.train.features["a"].columns.categorical):
        rank = {value: i for i, value in enumerate(sorted({row[name] for row in rows}))}
        assert categorical[:, j].tolist() == [rank[row[name]] for row in rows], name


@pytest.mark.data
def test_every_column_has_the_counts_that_the_data_folder_states(data_folder):
    section = (data_folder / "README.md").read_text().split("## avazu/")[1].split("## ")[0]
    stated = re.findall(r"^\| (\w+) \| ([\d,]+) \| \S+ \(([\d.]+)\) \|$", section, re.MULTILINE)
    split = load(Avazu(path=str(data_folder / "avazu" / "train.csv.gz")))
    columns = split.train.features["a"].columns
    _, categorical, _ = in_file_order(split)
    assert [name for name, *_ in stated] == list(columns.categorical)
    assert [int(count.replace(",", "")) for _, count, _ in stated] == list(columns.cardinalities)
    for ids, (name, _, share) in zip(categorical.T, stated, strict=True):
        assert ids.bincount().max().item() / len(ids) == pytest.approx(float(share), abs=5.1e-4), name


def test_quotes_and_empty_lines_before_a_wrong_row_are_not_blamed_for_it(tmp_path):
    lines = ["", HEADER, *ROWS, avazu_line(site_domain='"a,b"'), avazu_line(click="2")]
    with pytest.raises(UserError, match="row 23: column click: the label is '2'"):
        load(Avazu(path=write(tmp_path / "x", lines)))
