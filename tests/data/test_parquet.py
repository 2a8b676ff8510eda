"""dataset=parquet: columns by their types (test_readings.py: the same as of a csv file)."""

import datetime
import decimal
import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from support.raw_files import error_of, in_file_order, load, refusal_of

from vflbench.data.parquet import Parquet

N = 60
COLUMNS = {
    "small": pa.array([i % 7 for i in range(N)], pa.int8()),
    "large": pa.array([i * 10**9 if i % 4 else None for i in range(N)], pa.int64()),
    "real": pa.array([i / 7 if i % 5 else (None if i % 2 else float("nan")) for i in range(N)], pa.float32()),
    "exact": pa.array([decimal.Decimal(i) / 4 for i in range(N)], pa.decimal128(9, 2)),
    "nothing": pa.nulls(N),
    "text": pa.array([("pear", "fig", None)[i % 3] for i in range(N)]),
    "long": pa.array([f"w{i % 9}" for i in range(N)], pa.large_string()),
    "coded": pa.array([("x", "y", "z")[i % 3] for i in range(N)]).dictionary_encode(),
    "flag": pa.array([i % 2 == 0 for i in range(N)]),
    "day": pa.array([datetime.date(2020, 1, 1 + i % 3) for i in range(N)]),
    "target": pa.array(["yes" if i % 3 == 0 else "no" for i in range(N)]),
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
    i = np.arange(N)
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
    years = pa.array([str(1990 + i % 4) for i in range(N)])
    types = {"small": "categorical", "years": "numeric", "flag": "numeric", "day": "ignore"}
    path = stored(tmp_path, years=years, nested=pa.array([[i] for i in range(N)]))
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
    stored(tmp_path, "inf", real=pa.array([1.0, float("inf"), *[2.0] * (N - 2)]))
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

    numbers, texts = pa.array(range(N)), pa.array([str(i) if i % 2 else f"0{i}" for i in range(N)])
    for ids, other, shared in ((numbers, numbers, N), (numbers, texts, N // 2), (texts, texts.dictionary_encode(), N)):
        assert load(files(ids, other)).facts["party_rows"]["a"] == {"rows": N, "shared": shared}  # 7 is '7', and not '07'
    assert "column key is of type double" in error_of(files(numbers, numbers.cast("double")))
