import pytest
import torch
from raw_files import avazu_line, in_file_order, load, write

from vflbench.data.avazu import FORMAT, Avazu
from vflbench.errors import UserError

HEADER = ",".join(FORMAT.columns)
ROWS = [avazu_line(click=str(i % 2), C20=str(i % 4 - 1), device_ip=f"{i:08x}", hour=f"141021{i:02d}") for i in range(20)]


def test_every_column_is_categorical_and_the_id_is_dropped(tmp_path):
    split = load(Avazu(path=write(tmp_path / "x.csv", [HEADER, *ROWS])))
    columns = split.train.features["a"].columns
    assert columns.numeric == ()
    assert columns.categorical == tuple(c for c in FORMAT.columns if c not in ("id", "click"))
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


def test_the_header_tells_the_order_of_the_columns(tmp_path):
    turned = FORMAT.columns[::-1]
    rows = [avazu_line(turned, click=str(i % 2), hour=f"141021{i:02d}") for i in range(10)]
    plain = [avazu_line(click=str(i % 2), hour=f"141021{i:02d}") for i in range(10)]
    one = load(Avazu(path=write(tmp_path / "a", [",".join(turned), *rows])))
    other = load(Avazu(path=write(tmp_path / "b", [HEADER, *plain])))
    assert all(map(torch.equal, in_file_order(one), in_file_order(other)))
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize(
    ("header", "rows", "told"),
    [
        (HEADER.replace("click,", ""), ["x"], ["line 1", "click", "no label"]),
        (HEADER.replace("C14", "D14"), ROWS, ["line 1", "missing: C14"]),
        (HEADER, [*ROWS, "1,2,3"], ["line 22", "3 fields", "24"]),
        (HEADER, [*ROWS, avazu_line(click="yes")], ["line 22", "column click", "'yes'"]),
        (HEADER + ",C21", [row + ",7" for row in ROWS], ["line 1", "does not have: C21"]),
        (HEADER, [], ["no rows"]),
    ],
)
def test_a_wrong_header_or_row_is_named(tmp_path, header, rows, told):
    with pytest.raises(UserError) as error:
        load(Avazu(path=write(tmp_path / "bad.csv", [header, *rows])))
    for words in told:
        assert words in str(error.value), str(error.value)


@pytest.mark.data
@pytest.mark.parametrize(("name", "rows", "ratio"), [("train", 8000, 0.1615), ("train_head", 7199, 0.1738)])
def test_both_real_files_are_read(data_folder, name, rows, ratio):
    split = load(Avazu(path=str(data_folder / "avazu" / f"{name}.csv.gz")))
    labels = torch.cat([split.train.labels, split.test.labels])
    assert len(labels) == rows
    assert labels.double().mean().item() == pytest.approx(ratio, abs=5e-5)
    if name == "train":
        sizes = dict(
            zip(split.train.features["a"].columns.categorical, split.train.features["a"].columns.cardinalities, strict=True)
        )
        assert (sizes["hour"], sizes["site_id"], sizes["device_ip"], sizes["C20"]) == (240, 549, 7250, 116)
