"""Binary tables as libsvm text and as CSV."""

import pytest
from support.raw_files import in_file_order, load, refusal_of, write

from vflbench.data.binary import Binary


def rows_of(path, **options):
    """The columns of all rows, and their classes."""
    x, _, labels = in_file_order(load(Binary(path=str(path), test_fraction=0.25, **options)))
    return x.tolist(), labels.tolist()


def test_libsvm_counts_from_one_or_zero_and_may_be_compressed(tmp_path):
    path = write(tmp_path / "a.txt.gz", b"1 1:1 3:1\n-1 2:1 # a comment\n1 3:1\n\n-1 1:1 2:1\n", compress=True)
    assert rows_of(path) == ([[1, 0, 1], [0, 1, 0], [0, 0, 1], [1, 1, 0]], [1, 0, 1, 0])
    assert rows_of(write(tmp_path / "zero", ["1 0:1", "0 2:1"] * 2))[0] == [[1, 0, 0], [0, 0, 1]] * 2


def test_csv_finds_its_label_and_reads_y_and_n(tmp_path):
    path = write(tmp_path / "v.csv", ["V1,Class,V2", "y,democrat,n", "n,republican,", "y,democrat,y", "n,democrat,y"])
    assert rows_of(path) == ([[1, 0], [0, 0], [1, 1], [0, 1]], [0, 1, 0, 0])
    assert rows_of(path, positive="democrat", columns=["V2"]) == ([[0], [0], [1], [1]], [1, 0, 1, 1])
    assert len(rows_of(path, columns=1)[0][0]) == 1


def test_other_numbers_are_min_max_normalised_and_constant_bits_stay(tmp_path):
    path = write(tmp_path / "m.csv", ["label,a,b", "0,1,10", "1,1,20", "0,1,15", "1,1,10"])
    assert rows_of(path)[0] == [[1, 0], [1, 1], [1, 0.5], [1, 0]]


def test_files_of_a_binary_table_do_not_run_into_one_another(tmp_path):
    write(tmp_path / "1", b"1 1:1\n0 2:1")
    write(tmp_path / "2", b"\xef\xbb\xbf1 2:1\n0 1:1")
    assert rows_of(tmp_path / "[12]") == ([[1, 0], [0, 1], [0, 1], [1, 0]], [1, 0, 1, 0])
    for name, header in (("a1", "class,a,b"), ("a2", "class,a,b"), ("b1", "class,b,a")):
        write(tmp_path / name, [header, "1,0,1", "0,1,1"])
    assert rows_of(tmp_path / "a?") == ([[0, 1], [1, 1]] * 2, [1, 0, 1, 0])
    assert "its header is not that of" in refusal_of(Binary(path=str(tmp_path / "?1")))


def test_labels_of_libsvm_text_are_numbers_however_spelled(tmp_path):
    assert rows_of(write(tmp_path / "x", ["-1 1:1", "1 1:1", "+1 1:1", "1.0 1:1", "-1 # no feature"]))[1] == [0, 1, 1, 1, 0]
    facts = Binary(path=write(tmp_path / "k", [f"{1 + i % 3} 1:1" for i in range(9)])).read(None)[1]
    assert facts["classes_are"] == ["1", "2", "3"]


@pytest.mark.slow
@pytest.mark.data
def test_mushrooms_are_of_22_values_among_126(data_folder):
    mushrooms = load(Binary(path=str(data_folder / "mushroom" / "agaricus.txt.gz"))).train
    assert mushrooms.features["a"].numeric.sum(dim=1).unique().tolist() == [22]
    assert len(mushrooms.columns["a"].numeric) == 126
    assert mushrooms.labels.double().mean() == pytest.approx(0.48, abs=0.02)
