import csv
import gzip

import pytest
import torch
from support.raw_files import avazu_line, in_file_order, load, write

from vflbench.data.clicklogs import AVAZU, Avazu

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


def test_the_header_states_the_order_of_the_columns(tmp_path):
    turned = AVAZU.columns[::-1]
    rows = [avazu_line(turned, click=str(i % 2), hour=f"141021{i:02d}") for i in range(10)]
    plain = [avazu_line(click=str(i % 2), hour=f"141021{i:02d}") for i in range(10)]
    one = load(Avazu(path=write(tmp_path / "a", [",".join(turned), *rows])))
    other = load(Avazu(path=write(tmp_path / "b", [HEADER, *plain])))
    assert all(map(torch.equal, in_file_order(one), in_file_order(other)))
    assert one.fingerprint == other.fingerprint


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
