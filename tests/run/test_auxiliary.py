"""Auxiliary rows: never those that are trained on or graded; from another source where asked to."""

import shutil

import numpy as np
import pytest
import torch
from support.picture_files import write_idx, write_mnist

from vflbench.data.pictures import Digits, Mnist
from vflbench.errors import UserError
from vflbench.run.attackers import auxiliary_rows, rows_of_another_source


def rng():
    return torch.Generator().manual_seed(0)


def own(folder, **options):
    """A dataset of idx files, and its rows."""
    folder.mkdir()
    write_mnist(folder, seed=1, **options)
    dataset = Mnist(path=str(folder), rows=50)
    return dataset, dataset.load(rng())


def test_rows_of_another_folder_are_read_by_the_same_loader_and_encoded_alike(tmp_path):
    dataset, data = own(tmp_path / "own")
    (tmp_path / "other").mkdir()
    pixels, labels = write_mnist(tmp_path / "other", rows=70, seed=2)
    others = rows_of_another_source(dataset, str(tmp_path / "other"), data.train, rng())
    assert len(others) == 70
    drawn = auxiliary_rows(others, 70, 0)
    assert drawn.columns["a"].numeric.shape == (70, 100)
    expected = torch.as_tensor(pixels).flatten(1).float() / 255
    assert float(drawn.columns["a"].numeric.sum()) == pytest.approx(float(expected.sum()), rel=1e-5)
    assert sorted(drawn.labels.tolist()) == sorted(labels.tolist())


def test_rows_of_the_run_under_another_name_are_refused(tmp_path):
    dataset, data = own(tmp_path / "own")
    shutil.copytree(tmp_path / "own", tmp_path / "copy")
    for path in (tmp_path / "own", tmp_path / "copy"):
        with pytest.raises(UserError, match="rows of the run itself"):
            rows_of_another_source(dataset, str(path), data.train, rng())


def test_rows_of_the_run_among_others_are_left_out(tmp_path):
    """Wherever they stand in the file: an attacker must not hold rows that it is graded on."""
    dataset, data = own(tmp_path / "own")
    (tmp_path / "mixed").mkdir()
    pixels, labels = write_mnist(tmp_path / "mixed", rows=90, seed=2)
    mine, own_labels = write_mnist(tmp_path / "own", seed=1)
    write_idx(tmp_path / "mixed" / "t10k-images-idx3-ubyte", np.concatenate([pixels, mine]))
    write_idx(tmp_path / "mixed" / "t10k-labels-idx1-ubyte", np.concatenate([labels, own_labels]))
    others = rows_of_another_source(dataset, str(tmp_path / "mixed"), data.train, rng())
    drawn = auxiliary_rows(others, 1000, 0)
    trained = {row.numpy().tobytes() for row in data.train.all().features["a"].numeric}
    assert len(drawn.labels) == len(others) == 100  # and ten that the run does not read
    assert not any(row.numpy().tobytes() in trained for row in drawn.columns["a"].numeric)


def test_other_columns_and_a_source_that_is_not_there_are_refused(tmp_path):
    dataset, data = own(tmp_path / "own")
    (tmp_path / "other").mkdir()
    write_mnist(tmp_path / "other", side=12, seed=2)
    for source, problem in (("other", "audit.auxiliary_path.*dataset's columns"), ("nowhere", "audit.auxiliary_path")):
        with pytest.raises(UserError, match=problem):
            rows_of_another_source(dataset, str(tmp_path / source), data.train, rng())
    with pytest.raises(UserError, match="reads no path"):
        rows_of_another_source(Digits(), str(tmp_path), data.train, rng())
