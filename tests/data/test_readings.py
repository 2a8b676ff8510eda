"""Dates, amounts and decimal commas, against Python's own reading of them; and columns of Parquet by their types."""

import datetime
import decimal
import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from support.raw_files import error_of, in_file_order, load, refusal_of, write

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
def test_dates_are_days_month_and_weekday(tmp_path, style, monkeypatch):
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 200)  # the first day is that of all blocks
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
    parquet.write_table(pa.table({"x": pa.array(times, pa.timestamp("us")), "y": [0, 1] * 60}), tmp_path / "t.parquet")
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
    dotted = [date.replace("/", ".") for date in dates]
    assert read(tmp_path, dotted)[0].tolist() == numeric.tolist()  # between points the day is first


def test_a_number_that_may_be_read_in_two_ways_stays_a_text_until_it_is_said(tmp_path):
    thousands = [f"{1 + i % 9},{100 + i % 10}" for i in range(N)]
    _, split = read(tmp_path, thousands)
    assert split.train.features["a"].columns.categorical == ("x", "k")
    assert any("say dataset.decimal='.' or dataset.decimal=','" in note for note in split.notes)
    whole = [1000 * (1 + i % 9) + 100 + i % 10 for i in range(N)]
    for mark, values in ((".", whole), (",", [value / 1000 for value in whole])):
        assert read(tmp_path, thousands, decimal=mark)[0][:, 0].tolist() == pytest.approx(scaled(values), abs=1e-6)


def test_a_point_stands_before_thousands_where_another_column_has_a_decimal_comma(tmp_path):
    """1.234 is read as a fraction by itself: wrong by a factor of a thousand beside 812."""
    whole = [1000 * (i % 3) + 100 + i for i in range(N)]
    lines = ["a;b;y", *(f"{german(1000 + i * 3.5)};{german(b).removesuffix(',00')};{i % 2}" for i, b in enumerate(whole))]
    numeric = in_file_order(load(Csv(path=write(tmp_path / "t", lines), label="y")))[0]
    assert numeric[:, 1].tolist() == pytest.approx(scaled(whole), abs=1e-6)


def test_missing_dates_and_amounts_are_missing(tmp_path):
    numeric, split = read(tmp_path, ["" if i % 4 == 0 else f"{day:%d.%m.%Y}" for i, day in enumerate(DAYS)])
    assert (numeric[::4, :3] == 0).all()  # days, month and weekday; the fourth column says where they are missing
    assert numeric[:, 3].tolist() == [float(i % 4 == 0) for i in range(N)]
    assert split.facts["read_as"]["missing"] == {"x": 30}


ROWS = 60
COLUMNS = {
    "small": pa.array([i % 7 for i in range(ROWS)], pa.int8()),
    "large": pa.array([i * 10**9 if i % 4 else None for i in range(ROWS)], pa.int64()),
    "real": pa.array([i / 7 if i % 5 else (None if i % 2 else float("nan")) for i in range(ROWS)], pa.float32()),
    "exact": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
    "nothing": pa.nulls(ROWS),
    "text": pa.array([("pear", "fig", None)[i % 3] for i in range(ROWS)]),
    "long": pa.array([f"w{i % 9}" for i in range(ROWS)], pa.large_string()),
    "coded": pa.array([("x", "y", "z")[i % 3] for i in range(ROWS)]).dictionary_encode(),
    "flag": pa.array([i % 2 == 0 for i in range(ROWS)]),
    "day": pa.array([datetime.date(2020, 1, 1 + i % 3) for i in range(ROWS)]),
    "target": pa.array(["yes" if i % 3 == 0 else "no" for i in range(ROWS)]),
}
DAY = ("day", "day.month", "day.weekday")
NUMERIC, CATEGORICAL = ("small", "large", "real", "exact", "nothing", *DAY), ("text", "long", "coded", "flag")


def stored(folder, name="rows.parquet", **changes) -> str:
    parquet.write_table(pa.table({**COLUMNS, **changes}), folder / name, row_group_size=25)
    return str(folder / name)


def test_types_decide_what_is_numeric_and_what_is_missing(tmp_path):
    path = stored(tmp_path)
    data = load(Parquet(path=path, label="target", missing_as="zero"))
    columns = data.train.features["a"].columns
    assert (columns.numeric, columns.categorical, columns.cardinalities) == (NUMERIC, CATEGORICAL, (3, 9, 3, 2))
    numeric, categorical, labels = in_file_order(data)
    i = np.arange(ROWS)
    assert np.allclose(numeric[:, 1], np.where(i % 4, i, 0) / 59)
    assert np.allclose(numeric[:, 2], np.where(i % 5, i, 0) / 59, atol=1e-6)
    assert not numeric[:, 4].any()
    assert torch.equal(numeric[:6, 5], torch.tensor([0, 0.5, 1] * 2))  # days
    assert not numeric[:, 6].any()  # one month
    assert torch.allclose(numeric[:3, 7], torch.tensor([0, 0.5, 1]))  # Wednesday to Friday
    assert categorical[:6, 0].tolist() == [2, 1, 0] * 2  # "" < fig < pear
    assert categorical[:4, 3].tolist() == [1, 0, 1, 0]  # false < true
    assert labels.tolist() == [int(k % 3 == 0) for k in i]
    assert data.facts["classes_are"] == ["no", "yes"]
    with open(path, "rb") as stream:
        assert data.facts["file_sha256"] == hashlib.file_digest(stream, "sha256").hexdigest()


def test_types_can_be_overridden(tmp_path):
    years = pa.array([str(1990 + i % 4) for i in range(ROWS)])
    types = {"small": "categorical", "years": "numeric", "flag": "numeric", "day": "ignore"}
    path = stored(tmp_path, years=years, nested=pa.array([[i] for i in range(ROWS)]))
    columns = load(Parquet(path=path, label="target", types={**types, "nested": "ignore"})).train.features["a"].columns
    assert columns.numeric == ("large", "large.missing", "real", "real.missing", "exact", "nothing", "flag", "years")
    assert columns.categorical == ("small", "text", "long", "coded")


def test_a_folder_is_the_rows_of_its_files_by_name(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    table = pa.table(COLUMNS)
    for number in range(3):
        parquet.write_table(table.slice(20 * number, 20), folder / f"part-{number}.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.parquet").write_text("no table")
    one, whole = (load(Parquet(path=path, label="target")) for path in (str(folder), stored(tmp_path)))
    assert len(one.facts["file_sha256"]) == 3
    assert all(map(torch.equal, in_file_order(one), in_file_order(whole)))
    some = load(Parquet(path=str(folder), label="target", rows=30, test_fraction=0.5))
    assert sorted([*some.train.ids.tolist(), *some.test.ids.tolist()]) == list(range(30))
    parquet.write_table(table.select(["small", "target"]), folder / "part-9.parquet")
    problem = refusal_of(Parquet(path=str(folder), label="target"))
    assert "part-9.parquet: its columns are not those of part-0.parquet" in problem


def test_what_is_no_table_is_refused_in_a_paragraph(tmp_path):
    (tmp_path / "cut").write_bytes(Path(stored(tmp_path)).read_bytes()[:-100])
    (tmp_path / "empty").mkdir()
    parquet.write_table(pa.table(COLUMNS).slice(0, 0), tmp_path / "no_rows")
    stored(tmp_path, "label", target=pa.array(["a", "b", None, *"ab" * 28, "a"]))
    stored(tmp_path, "inf", real=pa.array([1.0, float("inf"), *[2.0] * (ROWS - 2)]))
    stored(tmp_path, "name", **{"\x1b[31m": COLUMNS["small"]})
    wrong = {
        "cut": "it can't be read: ",
        "x": "there is no such file",
        "empty": "the folder holds no files NAME.parquet",
        "no_rows": "the file is empty or holds no rows",
        "label": "row 3: column target: the row has no label",
        "inf": "row 2: column real: it holds numbers, and 'inf'",
        "name": "it names column 12 ",
    }
    for name, problem in wrong.items():
        assert f"dataset.path={tmp_path / name}: {problem}" in refusal_of(Parquet(path=str(tmp_path / name), label="target"))


@pytest.mark.parametrize("seed", range(15))
def test_a_damaged_file_is_read_as_it_is_or_refused(seed, tmp_path):
    """Whatever bytes have changed."""
    draw = np.random.default_rng(seed)
    content = bytearray((tmp_path / stored(tmp_path)).read_bytes())
    for place in draw.integers(0, len(content), 1 + seed % 5):
        content[place] = draw.integers(256)
    (tmp_path / "rows.parquet").write_bytes(content)
    text = error_of(Parquet(path=str(tmp_path / "rows.parquet"), label="target"))
    assert text == "no error" or (text.startswith("dataset") and text.isprintable())


def test_identifiers_are_texts_or_whole_numbers(tmp_path):
    def files(ids, other):
        parquet.write_table(pa.table({"key": ids, "small": COLUMNS["small"]}), tmp_path / "a.parquet")
        parquet.write_table(pa.table({"key": other, "target": COLUMNS["target"]}), tmp_path / "label.parquet")
        paths = {party: str(tmp_path / f"{party}.parquet") for party in ("label", "a")}
        return Parquet(label="target", id="key", party_files=paths)

    numbers, texts = pa.array(range(ROWS)), pa.array([str(i) if i % 2 else f"0{i}" for i in range(ROWS)])
    for ids, other, shared in (
        (numbers, numbers, ROWS),
        (numbers, texts, ROWS // 2),
        (texts, texts.dictionary_encode(), ROWS),
    ):
        assert load(files(ids, other)).facts["party_rows"]["a"] == {"rows": ROWS, "shared": shared}  # 7 is '7', and not '07'
    assert "column key is of type double" in error_of(files(numbers, numbers.cast("double")))
