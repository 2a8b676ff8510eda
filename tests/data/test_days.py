import pytest
import torch
from support.raw_files import avazu_line, criteo_line, error_of, load, write

from vflbench.cli.components import construct
from vflbench.data.clicklogs import AVAZU, Avazu, Criteo
from vflbench.errors import UserError

ROWS_OF_DAY = {21: 5, 22: 9, 30: 4}
HOURS = [f"1410{day}{hour:02d}" for day, rows in ROWS_OF_DAY.items() for hour in range(rows)]


def avazu(tmp_path, **options):
    lines = [",".join(AVAZU.columns)]
    lines += [avazu_line(click=str(i % 2), hour=hour, C14=f"{i:03d}") for i, hour in enumerate(HOURS)]
    return Avazu(path=write(tmp_path / "x.csv", lines), hour="day_and_hour", **options)


def values(table, column):
    block = table.rows(torch.arange(len(table))).features["a"]
    return sorted(block.categorical[:, block.columns.categorical.index(column)].tolist())


def test_a_day_of_avazu_is_a_date(tmp_path):
    for test_day, past, rows in ((2, 5, 9), (3, 14, 4)):
        split = load(avazu(tmp_path, test_day=test_day))
        assert values(split.train, "C14") == list(range(past))
        assert values(split.test, "C14") == list(range(past, past + rows))


def test_a_day_of_criteo_is_a_seventh_of_the_rows(tmp_path):
    lines = [criteo_line(label=i % 2, categories={1: f"{i:08x}"}) for i in range(30)]
    path = write(tmp_path / "x", lines)
    sizes = [(len(s.train), len(s.test)) for s in (load(Criteo(path=path, test_day=d)) for d in range(2, 8))]
    assert sizes == [(5, 4), (9, 4), (13, 5), (18, 4), (22, 4), (26, 4)]
    split = load(Criteo(path=path, test_day=3))
    assert (values(split.train, "C1"), values(split.test, "C1")) == (list(range(9)), list(range(9, 13)))
    used = load(Criteo(path=path, test_day=7, rows=14))
    assert (len(used.train), len(used.test)) == (12, 2)


def test_later_days_are_in_no_vocabulary_and_validation_rows_are_from_the_past(tmp_path):
    split = avazu(tmp_path, test_day=2, validation_fraction=0.2).load(torch.Generator().manual_seed(0))
    columns = split.train.columns["a"]
    assert dict(zip(columns.categorical, columns.cardinalities, strict=True))["C14"] == 14
    assert len(split.validation) == 3
    past = sorted(values(split.train.all(), "C14") + values(split.validation.all(), "C14"))
    assert past == list(range(5))


def test_a_day_that_is_not_there_and_hours_that_can_not_be_met_are_errors(tmp_path):
    assert "dataset.test_day" in error_of(avazu(tmp_path, test_day=4))
    path = write(tmp_path / "y", [criteo_line(label=i % 2) for i in range(30)])
    assert "of 7 days" in error_of(Criteo(path=path, test_day=8))
    with pytest.raises(UserError, match=r"test_day.*hour=day_and_hour"):
        construct(Avazu, {"path": path, "test_day": 2}, "dataset")
    with pytest.raises(UserError, match="test_day"):
        construct(Criteo, {"path": path, "test_day": 1}, "dataset")
