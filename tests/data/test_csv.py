import pytest
from support.raw_files import in_file_order, load, write

from vflbench.data.csv import Csv

LINES = ["age,city,device,member,clicked"]
for i in range(40):
    city, member, clicked = "Rome" if i % 3 else "Oslo", "true" if i % 2 else "false", "no" if i % 5 else "yes"
    LINES.append(f"{20 + i},{city},{i % 4},{member},{clicked}")


def table(tmp_path, **options):
    return load(Csv(**{"path": write(tmp_path / "t.csv", LINES), "label": "clicked", **options}))


def test_numbers_are_numeric_and_the_rest_categorical(tmp_path):
    split = table(tmp_path)
    compressed = load(Csv(path=write(tmp_path / "t", LINES, compress=True), label="clicked"))
    assert compressed.fingerprint == split.fingerprint
    columns = split.train.features["a"].columns
    assert columns.numeric == ("age", "device")
    assert (columns.categorical, columns.cardinalities) == (("city", "member"), (2, 2))
    numeric, categorical, labels = in_file_order(split)
    assert numeric[:, 0].tolist() == pytest.approx([i / 39 for i in range(40)])
    assert categorical[:, 0].tolist() == [0 if i % 3 == 0 else 1 for i in range(40)]  # Oslo before Rome
    assert labels.tolist() == [int(i % 5 == 0) for i in range(40)]  # no before yes
    assert split.facts["classes_are"] == ["no", "yes"]


def test_types_can_be_overridden_and_columns_given_to_parties(tmp_path):
    split = table(
        tmp_path, types={"device": "categorical", "member": "ignore"}, parties={"a": ["age", "city"], "b": ["dev*"]}
    )
    assert split.train.features["a"].columns.numeric == ("age",)
    assert split.train.features["b"].columns.cardinalities == (4,)


def test_missing_is_zero_in_numbers_and_a_category_of_its_own_elsewhere(tmp_path):
    lines = ["x,c,y", "4,a,0", ",,1", "NA,b,0", "8,null,1", "?,a,1"]
    options = {"path": write(tmp_path / "t", lines), "label": "y", "test_fraction": 0.2}
    numeric, categorical, _ = in_file_order(load(Csv(**options)))
    assert numeric.tolist() == [[0.5, 0], [0, 1], [0, 1], [1, 0], [0, 1]]
    assert categorical[:, 0].tolist() == [1, 0, 2, 0, 1]
    assert in_file_order(load(Csv(**options, missing_as="zero")))[0].tolist() == numeric[:, :1].tolist()


@pytest.mark.parametrize(("choice", "missing", "there"), [(None, 2, False), (None, 3, True), ("indicator", 1, True)])
def test_few_missing_numbers_and_dates_have_no_indicator(tmp_path, choice, missing, there):
    lines = [
        f"{'' if i < missing else i % 9},{'' if i < missing else f'2020-01-{1 + i % 28:02}'},{i % 2}" for i in range(200)
    ]
    path = write(tmp_path / "t", ["x,day,y", *lines])
    parties = load(Csv(path=path, label="y", missing_as=choice, parties={"a": ["x"], "b": ["day"]})).train.columns
    indicated = [*parties["a"].numeric, *parties["b"].numeric]
    assert ("x.missing" in indicated) is ("day.missing" in indicated) is there
    numeric, _, _ = in_file_order(load(Csv(path=path, label="y", missing_as=choice)))
    if there:
        assert numeric[:, 1].tolist() == [1.0] * missing + [0.0] * (200 - missing)


def test_the_positive_value_can_be_named(tmp_path):
    _, _, labels = in_file_order(table(tmp_path, positive="no"))
    assert labels.tolist() == [int(i % 5 != 0) for i in range(40)]
    several = ["x,y", *(f"{i},{'abc'[i % 3]}" for i in range(30))]
    path = write(tmp_path / "several", several)
    assert load(Csv(path=path, label="y")).train.classes == 3
    _, _, labels = in_file_order(load(Csv(path=path, label="y", positive="b")))
    assert labels.tolist() == [0, 1, 0] * 10


def test_types_come_from_the_file_and_not_from_the_rows_asked_for(tmp_path, monkeypatch):
    """A text far below makes a column of numbers one of categories, whether its row is used or not."""
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 200)
    path = write(tmp_path / "x", ["a,b,y", *(f"{i % 7},{i % 3}.5,{i % 2}" for i in range(300)), "none,1,0"])
    for rows in (50, 301, 10**7, None):
        table, _ = Csv(path=path, label="y", rows=rows).read(None)
        assert (table.numeric_names, table.categorical_names) == (("b",), ("a",)), rows
        assert len(table) == min(rows or 301, 301)
