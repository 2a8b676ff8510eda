import gzip

import pytest
import torch

from vflbench.data.binary import Binary


def load(path, **options):
    return Binary(path=str(path), **{"test_fraction": 0.25, **options}).load(torch.Generator().manual_seed(0))


def rows_of(data):
    both = [part.all() for part in (data.train, data.test)]
    rows = {}
    for part in both:
        for row, x, y in zip(part.ids.tolist(), part.features["a"].numeric.tolist(), part.labels.tolist(), strict=True):
            rows[row] = (x, y)
    return [rows[row] for row in sorted(rows)]


def test_libsvm_counts_from_one_and_may_be_compressed(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"1 1:1 3:1\n-1 2:1 # a comment\n1 3:1\n\n-1 1:1 2:1\n"))
    assert rows_of(load(path)) == [([1, 0, 1], 1), ([0, 1, 0], 0), ([0, 0, 1], 1), ([1, 1, 0], 0)]


def test_csv_finds_its_label_and_reads_y_and_n(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("V1,Class,V2\ny,democrat,n\nn,republican,\ny,democrat,y\nn,democrat,y\n")
    assert rows_of(load(path)) == [([1, 0], 0), ([0, 0], 1), ([1, 1], 0), ([0, 1], 0)]
    assert [y for _, y in rows_of(load(path, positive="democrat"))] == [1, 0, 1, 1]
    assert rows_of(load(path, columns=["V2"]))[2] == ([1], 0)
    assert len(rows_of(load(path, columns=1))[0][0]) == 1


def test_other_numbers_are_min_max_normalised_and_constant_bits_stay(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("label,a,b\n0,1,10\n1,1,20\n0,1,15\n1,1,10\n")
    assert [x for x, _ in rows_of(load(path))] == [[1, 0], [1, 1], [1, 0.5], [1, 0]]


@pytest.mark.slow
@pytest.mark.data
def test_the_real_tables_load(data_folder):
    data = load(data_folder / "mushroom" / "agaricus.txt.gz")
    assert data.train.all().features["a"].numeric.sum(dim=1).unique().tolist() == [22]
    assert len(data.train.columns["a"].numeric) == 126
    assert data.train.positive_ratio == pytest.approx(0.48, abs=0.02)
    assert load(data_folder / "dna" / "dna.csv.gz", positive="n").train.classes == 2
    assert load(data_folder / "dna" / "dna.csv.gz").train.classes == 3
    assert len(load(data_folder / "housevotes" / "house_votes_84.csv.gz").train.columns["a"].numeric) == 16
