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


@pytest.fixture
def run(tmp_path):
    """A run on 50 of 60 rows in the folder `mine`: the dataset, and training rows."""
    write_mnist(tmp_path / "mine", seed=1)
    dataset = Mnist(path=str(tmp_path / "mine"), rows=50)
    return dataset, dataset.load(rng()).train


def rows_at(path, run):
    return rows_of_another_source(run[0], str(path), run[1], rng())


def test_rows_of_another_folder_are_read_by_the_same_loader_and_encoded_alike(tmp_path, run):
    pixels, labels = write_mnist(tmp_path / "other", rows=70, seed=2)
    others = rows_at(tmp_path / "other", run)
    assert len(others) == 70
    drawn = auxiliary_rows(others, 70, 0)
    assert drawn.columns["a"].numeric.shape == (70, 100)
    expected = torch.as_tensor(pixels).flatten(1).float() / 255
    place = torch.cdist(drawn.columns["a"].numeric, expected).argmin(dim=1)
    torch.testing.assert_close(drawn.columns["a"].numeric, expected[place])
    assert drawn.labels.tolist() == [int(labels[row]) for row in place]
    assert place.tolist() != sorted(place.tolist())


def test_rows_of_the_run_among_others_are_left_out(tmp_path, run):
    """Wherever they stand in the file: an attacker must not hold rows that it is graded on."""
    both = zip(write_mnist(tmp_path / "mixed", rows=90, seed=2), write_mnist(tmp_path / "mine", seed=1), strict=True)
    for name, parts in zip(("images-idx3", "labels-idx1"), both, strict=True):
        write_idx(tmp_path / "mixed" / f"t10k-{name}-ubyte", np.concatenate(parts))
    others = rows_at(tmp_path / "mixed", run)
    drawn = auxiliary_rows(others, 1000, 0)
    trained = {row.numpy().tobytes() for row in run[1].all().features["a"].numeric}
    assert len(drawn.labels) == len(others) == 100  # and ten that the run does not read
    assert not any(row.numpy().tobytes() in trained for row in drawn.columns["a"].numeric)


def test_rows_of_the_run_other_columns_and_a_source_that_is_not_there_are_refused(tmp_path, run):
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    write_mnist(tmp_path / "other", side=12, seed=2)
    problems = {"mine": "rows of the run itself", "copy": "rows of the run itself", "other": "the dataset's columns"}
    for source, problem in (problems | {"nowhere": "it can't be read"}).items():
        with pytest.raises(UserError, match=f"audit.auxiliary_path.*{problem}"):
            rows_at(tmp_path / source, run)
    with pytest.raises(UserError, match="reads no path"):
        rows_at(tmp_path, (Digits(), run[1]))
