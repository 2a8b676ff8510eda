"""Dates, amounts and decimal commas: against Python's own reading of the same values."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.raw_files import error_of, in_file_order, load, write

from vflbench.data.csv import Csv
from vflbench.data.parquet import Parquet
from vflbench.data.readings import Amount, Date

N = 120
DAYS = [datetime.date(2019, 12, 1) + datetime.timedelta(days=(i * 37) % 700) for i in range(N)]
VALUES = [(i * 7919) % 5_000_000 / 100 for i in range(N)]


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def scaled(values):
    low, high = min(values), max(values)
    return [(v - low) / (high - low) for v in values]


def read(tmp_path, column, delimiter=",", **options):
    """The column x of a table as numbers, and the split."""
    quoted = [f'"{value}"' if delimiter in value else value for value in column]
    lines = [delimiter.join(("x", "k", "y")), *(delimiter.join((v, "ab"[i % 2], str(i % 2))) for i, v in enumerate(quoted))]
    split = load(Csv(path=write(tmp_path / "t.csv", lines), label="y", **options))
    return in_file_order(split)[0], split


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("written", [german, "{:,.2f}".format, " {:+.2f} ".format], ids=["german", "english", "plus"])
def test_amounts_are_numbers(tmp_path, written, delimiter):
    numeric, split = read(tmp_path, [written(v) for v in VALUES], delimiter)
    assert split.train.columns["a"].numeric == ("x",)
    assert split.facts["read_as"]["delimiter"] == delimiter
    assert numeric[:, 0].tolist() == pytest.approx(scaled(VALUES), abs=1e-6)


@pytest.mark.parametrize("style", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d"])
def test_dates_are_days_month_and_weekday(tmp_path, style):
    numeric, split = read(tmp_path, [day.strftime(style) for day in DAYS])
    assert split.train.columns["a"].numeric == ("x", "x.month", "x.weekday")
    expected = [scaled([d.toordinal() for d in DAYS]), [(d.month - 1) / 11 for d in DAYS], [d.weekday() / 6 for d in DAYS]]
    np.testing.assert_allclose(numeric.T, expected, atol=1e-6)
    assert split.facts["read_as"]["first"] == {"x": str(min(DAYS))}


def test_times_have_an_hour(tmp_path):
    times = [datetime.datetime.combine(d, datetime.time(i % 24, i % 60)) for i, d in enumerate(DAYS)]
    numeric, split = read(tmp_path, [time.isoformat(" ") for time in times])
    assert split.train.columns["a"].numeric == ("x", "x.month", "x.weekday", "x.hour")
    assert numeric[:, 3].tolist() == pytest.approx(scaled([t.hour + t.minute / 60 for t in times]), abs=1e-6)
    clocks = [time.strftime("%m/%d/%Y %I:%M %p") for time in times]
    assert read(tmp_path, clocks)[0].tolist() == numeric.tolist()
    pq.write_table(pa.table({"x": pa.array(times, pa.timestamp("us")), "y": [0, 1] * 60}), tmp_path / "t.parquet")
    theirs = in_file_order(load(Parquet(path=str(tmp_path / "t.parquet"), label="y")))[0]
    assert theirs.tolist() == numeric.tolist()


def test_what_is_no_day_is_no_date_and_what_is_no_amount_is_none():
    days = ["2021-02-29", "1900-02-29", "2020-13-01", "2020-00-10", "2020-1-32", "2020-01-01 25:00", "20-01-01"]
    assert np.isnan(Date("ymd").numbers(pa.array(days))[0]).all()
    amounts = ["", "-", "€", "1,2,3", "12,34.5", "1.2.3", "0x12", "12abc", "1 2", "--5", "1e400", "10.0.0.1", "nan", "inf"]
    assert np.isnan(Amount(".").numbers(pa.array(amounts))[0]).all()


def test_a_date_that_may_be_read_in_two_ways_stays_a_text_until_it_is_said(tmp_path):
    dates = [f"0{1 + i % 9}/0{1 + i % 7}/2020" for i in range(N)]
    _, split = read(tmp_path, dates)
    assert split.train.features["a"].columns.categorical == ("x", "k")
    assert any("day and month can't be told apart" in note and "dataset.day_first" in note for note in split.notes)
    numeric, _ = read(tmp_path, dates, day_first=True)
    assert numeric[:, 0].tolist() == pytest.approx(scaled([(1 + i % 7) * 100 + (1 + i % 9) for i in range(N)]), abs=0.15)
    assert numeric[1, 1] == pytest.approx(1 / 6)  # February
    unsaid = Csv(path=str(tmp_path / "t.csv"), label="y", types={"x": "date"})
    assert "can't be told apart, say dataset.day_first" in error_of(unsaid)


def test_a_number_that_may_be_read_in_two_ways_stays_a_text_until_it_is_said(tmp_path):
    thousands = [f"{1 + i % 9},{100 + i % 10}" for i in range(N)]
    _, split = read(tmp_path, thousands)
    assert split.train.features["a"].columns.categorical == ("x", "k")
    assert any("say dataset.decimal='.' or dataset.decimal=','" in note for note in split.notes)
    whole = [1000 * (1 + i % 9) + 100 + i % 10 for i in range(N)]
    for decimal, values in ((".", whole), (",", [value / 1000 for value in whole])):
        assert read(tmp_path, thousands, decimal=decimal)[0][:, 0].tolist() == pytest.approx(scaled(values), abs=1e-6)


def test_a_point_stands_before_thousands_where_another_column_has_a_decimal_comma(tmp_path):
    """1.234 is read as a fraction by itself: wrong by a factor of a thousand beside 812."""
    lines = ["a;b;y", *(f"{german(1000 + i * 3.5).replace(',00', '')};{1 + i % 3}.{100 + i};{i % 2}" for i in range(N))]
    numeric = in_file_order(load(Csv(path=write(tmp_path / "t", lines), label="y")))[0]
    assert numeric[:, 1].tolist() == pytest.approx(scaled([1000 * (1 + i % 3) + 100 + i for i in range(N)]), abs=1e-6)


def test_missing_dates_and_amounts_are_missing(tmp_path):
    numeric, split = read(tmp_path, ["" if i % 4 == 0 else f"{day:%d.%m.%Y}" for i, day in enumerate(DAYS)])
    assert (numeric[::4, :3] == 0).all()  # days, month and weekday; the fourth column says where they are missing
    assert numeric[:, 3].tolist() == [float(i % 4 == 0) for i in range(N)]
    assert split.facts["read_as"]["missing"] == {"x": 30}
