"""The benchmark's stand-in for the real file has the shape that it claims."""

import numpy as np
import pytest
from support.raw_files import load
from support.script_runs import load as load_script
from support.script_runs import run

from vflbench.data.clicklogs import Criteo

ROWS, IDS = 30_000, 12_000


@pytest.fixture(scope="module")
def script():
    """With blocks so small that the file has four."""
    module = load_script("make_criteo")
    module._BLOCK_ROWS = 1 << 13
    return module


def made(script, path, *options):
    assert run(script, "--out", path, "--rows", ROWS, "--ids", IDS, *options).returncode == 0
    return path


@pytest.fixture(scope="module")
def file(script, tmp_path_factory):
    return made(script, tmp_path_factory.mktemp("criteo") / "train.txt")


@pytest.fixture(scope="module")
def fields(file):
    """(rows, 40) texts."""
    return np.array([line.split("\t") for line in file.read_text().splitlines()])


@pytest.mark.slow
def test_it_has_as_many_rows_and_ids_as_were_asked_for(fields):
    assert fields.shape == (ROWS, 40)
    distinct = [len(set(column) - {""}) for column in fields.T[14:]]
    assert sum(distinct) == IDS
    assert min(distinct) == 3
    largest = [f"C{column + 1}" for column in np.argsort(distinct)[::-1][:6]]
    assert largest == ["C3", "C12", "C21", "C16", "C4", "C24"]  # as in the real data
    assert distinct[2] / distinct[11] == pytest.approx(10131226 / 8351592, rel=0.01)


@pytest.mark.slow
def test_every_field_is_spelled_as_in_the_real_file(fields):
    assert set(fields[:, 0]) == {"0", "1"}
    categories = fields[:, 14:]
    assert {len(word) for word in np.unique(categories)} == {0, 8}
    assert set("".join(np.unique(categories))) == set("0123456789abcdef")
    assert min(int(word) for word in fields[:, 2] if word) == -2
    assert min(int(word) for j in (1, *range(3, 14)) for word in np.unique(fields[:, j]) if word) == 0


def test_positives_and_missing_values_have_the_real_shares(fields):
    assert (fields[:, 0] == "1").mean() == pytest.approx(0.256, abs=0.005)
    shares = {1: 0.4511, 2: 0.0, 12: 0.7645, 14: 0.0, 16: 0.0346, 35: 0.7605, 39: 0.4421}
    missing = (fields == "").mean(axis=0)
    assert {column: missing[column] for column in shares} == pytest.approx(shares, abs=0.006)


def test_vflbench_reads_it(file):
    split = load(Criteo(path=str(file)))
    assert len(split.train) + len(split.test) == ROWS
    columns = split.train.features["a"].columns
    sizes = np.array(columns.cardinalities)
    assert len(columns.numeric) == 13
    assert sizes.sum() == IDS + 12  # columns with missing values, which are a value


def test_same_seed_same_file(script, file, tmp_path):
    assert made(script, tmp_path / "again.txt").read_bytes() == file.read_bytes()
    assert made(script, tmp_path / "other.txt", "--seed", 1).read_bytes() != file.read_bytes()


def test_more_ids_than_the_rows_have_room_for_are_refused(tmp_path):
    refused = run("make_criteo", "--out", tmp_path / "x", "--rows", 100, "--ids", 10_000)
    assert refused.returncode == 1
    assert refused.stderr.startswith("make_criteo: 10000 ids put")
