"""Criteo and Avazu: what lands in which column, and rows of a day that are held out."""

import pytest
import torch
from support.raw_files import avazu_line, criteo_line, error_of, in_file_order, load, write

from vflbench.cli.components import construct
from vflbench.data.clicklogs import AVAZU, Avazu, Criteo
from vflbench.errors import UserError


def test_every_field_lands_in_its_column(tmp_path):
    lines = [
        criteo_line(0, {1: "", 2: -2, 13: 100}, {1: "", 26: "ffffffff"}),
        criteo_line(1, {1: 4, 2: 8, 13: 50}, {1: "aaaaaaaa", 26: ""}),
        criteo_line(1, {1: 8, 2: 3, 13: 0}, {1: "", 26: "00000000"}),
        criteo_line(0, {1: 0, 2: 3, 13: 0}, {1: "00000000", 26: "ffffffff"}),
    ]
    split = load(Criteo(path=write(tmp_path / "0", lines)))
    other = load(Criteo(path=write(tmp_path / "1", lines, end="\r\n", compress=True)))
    assert other.fingerprint == split.fingerprint
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


def test_categories_are_texts_not_numbers_and_quotes_are_ordinary_characters(tmp_path):
    """As numbers, 1e5, 100000 and 00100000 would be one."""
    words = ["1e5", "100000", "00100000", "NaN", "0x10", "16", '"a', 'b"']
    lines = [criteo_line(i % 2, categories={7: word}) for i, word in enumerate(words)]
    split = load(Criteo(path=write(tmp_path / "x", lines), test_fraction=0.2))
    assert split.train.features["a"].columns.cardinalities[6] == len(words)


def clicks(path, rows, columns=AVAZU.columns):
    return write(path, [",".join(columns), *(avazu_line(columns, **row) for row in rows)])


def test_every_column_is_categorical_the_id_is_dropped_and_the_header_states_the_order(tmp_path):
    rows = [{"click": i % 2, "C20": i % 4 - 1, "device_ip": f"{i:08x}", "hour": f"141021{i:02d}"} for i in range(20)]
    rows = [{name: str(value) for name, value in row.items()} for row in rows]
    split = load(Avazu(path=clicks(tmp_path / "x.csv", rows)))
    assert load(Avazu(path=clicks(tmp_path / "y.csv", rows, AVAZU.columns[::-1]))).fingerprint == split.fingerprint
    columns = split.train.columns["a"]
    assert columns.numeric == ()
    assert columns.categorical == tuple(c for c in AVAZU.columns if c not in ("id", "click"))
    sizes = dict(zip(columns.categorical, columns.cardinalities, strict=True))
    assert (sizes["C20"], sizes["device_ip"], sizes["hour"], sizes["site_id"]) == (4, 20, 20, 1)
    _, categorical, labels = in_file_order(split)
    assert labels.tolist() == [0, 1] * 10
    assert categorical[:, columns.categorical.index("C20")].tolist() == [0, 1, 2, 3] * 5  # "-1" < "0" < "1" < "2"


def test_hour_can_be_read_as_day_and_hour_of_day(tmp_path):
    rows = [{"click": str(i % 2), "hour": f"1410{21 + i % 3}{i % 24:02d}"} for i in range(48)]
    split = load(Avazu(path=clicks(tmp_path / "x.csv", rows), hour="day_and_hour"))
    columns = split.train.columns["a"]
    assert columns.categorical[:2] == ("day", "hour_of_day")
    assert "hour" not in columns.categorical
    assert columns.cardinalities[:2] == (3, 24)
    assert in_file_order(split)[1][:, :2].tolist() == [[i % 3, i % 24] for i in range(48)]


HOURS = [f"1410{day}{hour:02d}" for day, rows in {21: 5, 22: 9, 30: 4}.items() for hour in range(rows)]


def avazu(tmp_path, **options):
    rows = [{"click": str(i % 2), "hour": hour, "C14": f"{i:03d}"} for i, hour in enumerate(HOURS)]
    return Avazu(path=clicks(tmp_path / "x.csv", rows), hour="day_and_hour", **options)


def values(table, column):
    block = table.rows(torch.arange(len(table))).features["a"]
    return sorted(block.categorical[:, block.columns.categorical.index(column)].tolist())


def test_a_day_of_avazu_is_a_date_and_later_days_are_in_no_vocabulary(tmp_path):
    for test_day, past, rows in ((2, 5, 9), (3, 14, 4)):
        split = avazu(tmp_path, test_day=test_day, validation_fraction=0.2).load(torch.Generator().manual_seed(0))
        columns = split.train.columns["a"]
        assert dict(zip(columns.categorical, columns.cardinalities, strict=True))["C14"] == past + rows
        assert sorted(values(split.train.all(), "C14") + values(split.validation.all(), "C14")) == list(range(past))
        assert values(split.test.all(), "C14") == list(range(past, past + rows))


def test_a_day_of_criteo_is_a_seventh_of_the_rows(tmp_path):
    path = write(tmp_path / "x", [criteo_line(i % 2, categories={1: f"{i:08x}"}) for i in range(30)])
    for day, before, of_day in ((2, 5, 4), (3, 9, 4), (4, 13, 5), (7, 26, 4)):
        split = load(Criteo(path=path, test_day=day))
        assert values(split.train, "C1") == list(range(before))
        assert values(split.test, "C1") == list(range(before, before + of_day))
    used = load(Criteo(path=path, test_day=7, rows=14))
    assert (len(used.train), len(used.test)) == (12, 2)


def test_a_day_that_is_not_there_and_hours_that_can_not_be_met_are_errors(tmp_path):
    assert "dataset.test_day" in error_of(avazu(tmp_path, test_day=4))
    path = write(tmp_path / "y", [criteo_line(label=i % 2) for i in range(30)])
    assert "of 7 days" in error_of(Criteo(path=path, test_day=8))
    with pytest.raises(UserError, match=r"test_day.*hour=day_and_hour"):
        construct(Avazu, {"path": path, "test_day": 2}, "dataset")
    with pytest.raises(UserError, match="test_day"):
        construct(Criteo, {"path": path, "test_day": 1}, "dataset")
