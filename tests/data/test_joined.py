"""Several files of one owner, joined on an identifier: against pandas-like joins by hand."""

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from support.raw_files import error_of, in_file_order, load, write

from vflbench.data.csv import Csv
from vflbench.data.parquet import Parquet

N = 60
PEOPLE = {f"p{i}": (str(i % 7), "ab"[i % 2], "yes" if i % 3 else "no") for i in range(N)}
ORDERS = {f"p{(i * 17) % N}": (f"{i}.5", "xyz"[i % 3]) for i in range(5, N)}


def stored(folder, **changes):
    people = ["age,id,sort,y", *(f"{age},{key},{sort},{y}" for key, (age, sort, y) in PEOPLE.items())]
    orders = [changes.get("header", "id;sum;what"), *(f"{key};{total};{what}" for key, (total, what) in ORDERS.items())]
    orders += changes.get("more", [])
    return [write(folder / "people.csv", people), write(folder / "orders.csv", orders)]


def by_hand(folder):
    rows = [f"{age},{sort},{','.join(ORDERS[key])},{y}" for key, (age, sort, y) in PEOPLE.items() if key in ORDERS]
    return write(folder / "joined.csv", ["age,sort,sum,what,y", *rows])


def same(ours, theirs):
    return all(map(torch.equal, in_file_order(ours), in_file_order(theirs)))


def test_files_are_joined_on_an_identifier(tmp_path):
    ours = load(Csv(path=stored(tmp_path), id="id", label="y"))
    theirs = load(Csv(path=by_hand(tmp_path), label="y"))
    assert same(ours, theirs)
    assert "2 files joined: 55 rows whose identifier is in all of them (people.csv 60, orders.csv 55)" in ours.notes
    assert ours.facts["class_rows"] == theirs.facts["class_rows"]
    first = load(Csv(path=stored(tmp_path), id="id", label="y", rows=20))
    assert len(first.train) + len(first.test) == 20


def test_parquet_files_are_joined_in_the_same_way(tmp_path):
    people, orders = tmp_path / "people.parquet", tmp_path / "orders.parquet"
    ages, sort, y = zip(*PEOPLE.values(), strict=True)
    parquet.write_table(pa.table({"age": [*map(int, ages)], "id": list(PEOPLE), "sort": sort, "y": y}), people)
    sums, what = zip(*ORDERS.values(), strict=True)
    parquet.write_table(pa.table({"id": list(ORDERS), "sum": [float(v) for v in sums], "what": what}), orders)
    ours = load(Parquet(path=[str(people), str(orders)], id="id", label="y"))
    assert same(ours, load(Csv(path=by_hand(tmp_path), label="y")))
    named_first = load(Parquet(path=str(tmp_path / "*.parquet"), id="id", label="y"))  # orders before people
    assert set(named_first.train.columns["a"].numeric) == {"age", "sum"}


def test_files_of_the_same_columns_follow_one_another(tmp_path):
    header, *rows = ["id,x,y", *(f"k{i},{i % 7},{i % 2}" for i in range(40))]
    paths = [write(tmp_path / "1.csv", [header, *rows[:20]]), write(tmp_path / "2.csv", [header, *rows[20:]])]
    whole = load(Csv(path=write(tmp_path / "whole.csv", [header, *rows]), label="y"))
    for path in (paths, str(tmp_path / "?.csv")):
        assert same(load(Csv(path=path, label="y", id="id")), whole)


@pytest.mark.parametrize(
    ("changes", "options", "problem"),
    [
        ({}, {"id": None}, "to join the files side by side, name the column that they share: dataset.id=id"),
        ({}, {"id": "key"}, "it has no column key, which dataset.id names"),
        ({}, {"label": "z"}, "none of them has the column z"),
        ({"header": "id;age;what"}, {}, "both people.csv and orders.csv have the column age; rename it in one of them"),
        ({"header": "id;y;what"}, {}, "2 of them have the column y; of files that are joined, one holds the labels"),
        ({"more": ["p1;1.5;x"]}, {}, "column id has the identifier 'p1' more than once"),
        ({"more": [";1.5;x"]}, {}, "column id has no identifier"),
    ],
)
def test_what_can_not_be_joined(tmp_path, changes, options, problem):
    assert problem in error_of(Csv(**{"path": stored(tmp_path, **changes), "id": "id", "label": "y", **options}))
