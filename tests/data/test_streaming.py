import hashlib
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from support.raw_files import write
from support.small_tables import GOOD, request

from vflbench.data.csv import Csv
from vflbench.data.file_dataset import prepare_table
from vflbench.errors import UserError


@pytest.mark.parametrize("waiting", [0, 70, 1 << 22])
def test_one_vocabulary_covers_all_blocks(waiting, tmp_path, monkeypatch):
    """However many values of blocks wait until they join those of the blocks before."""
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 200)
    monkeypatch.setattr("vflbench.data.file_dataset._WAITING", waiting)
    monkeypatch.setattr("vflbench.data.file_dataset._REPLACED_ROWS", 7)
    for length in (3, 12):
        words = [f"w{(i * 7) % 110:03d}".ljust(length if i % 2 else 3, "~") for i in range(300)]
        path = write(tmp_path / f"{length}", [f"{i % 2}\t{i}\t{w}" for i, w in enumerate(words)])
        for rows in (None, 250):
            table = prepare_table(request(path, rows=rows)).table
            kept = words[:rows]
            ranks = {word: rank for rank, word in enumerate(sorted(set(kept)))}
            assert table.categorical[:, 0].tolist() == [ranks[word] for word in kept], (length, rows)
            assert table.numeric[:, 0].tolist() == list(range(len(kept)))


def test_numbers_that_all_differ_take_no_more_memory_in_a_longer_file(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 1 << 14)
    peaks = []
    for rows in (4_000, 40_000):
        values = np.random.default_rng(rows).standard_normal((rows, 4)).tolist()
        lines = ["y,a,b,c,d", *(",".join([str(k % 2), *map(repr, of)]) for k, of in enumerate(values))]
        path = write(tmp_path / f"{rows}", lines)
        del values, lines
        Csv(path=str(write(tmp_path / f"first-{rows}", ["y,a", "0,1.5", "1,2.5"])), label="y").prepare()  # imports, once
        pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            Csv(path=str(path), label="y").prepare()
            peaks.append(tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0))
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_facts_hold_the_whole_path_and_the_hash_of_the_bytes_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x", GOOD, compress=True)
    sha256 = hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()
    path = str((tmp_path / "x").resolve())
    assert prepare_table(request("x")).facts == {"path": path, "file_sha256": sha256, "class_rows": {"0": 2, "1": 2}}


def test_bad_rows_are_counted_and_shown_and_too_many_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 64)
    lines = [f"{i % 2}\t{i}\tw{i}" if i % 4 else f"{i % 2}\tword\t{i}" for i in range(100)]
    path = write(tmp_path / "x", lines)
    prepared = prepare_table(request(path, bad_rows="skip", max_bad_fraction=0.25))
    assert prepared.table.numeric[:, 0].tolist() == [i for i in range(100) if i % 4]
    assert prepared.facts["bad_rows"]["count"] == 25
    expected = [f"row {i}: column n: it holds numbers, and 'word' can't be read as one" for i in (1, 5, 9, 13, 17)]
    assert prepared.facts["bad_rows"]["first"] == expected
    with pytest.raises(UserError, match=r"25 of 100 rows are bad \(25.00%\), more than allowed") as error:
        prepare_table(request(path, bad_rows="skip", max_bad_fraction=0.24))
    assert (error.value.key, error.value.value) == ("dataset.max_bad_fraction", 0.24)
    with pytest.raises(UserError, match="all 2 rows are bad"):
        prepare_table(request(write(tmp_path / "y", ["x", "y"]), bad_rows="skip", max_bad_fraction=1.0))


def test_a_limit_counts_good_rows_and_parses_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", 64)
    path = write(tmp_path / "x", [*GOOD, "bad", *GOOD, "worse"] * 3)
    prepared = prepare_table(request(path, rows=6, bad_rows="skip", max_bad_fraction=1.0))
    assert (len(prepared.table), prepared.facts["bad_rows"]["count"]) == (6, 1)
    assert prepared.facts["file_sha256"] is None  # the file was not read to its end
    assert len(prepare_table(request(path, rows=4)).table) == 4
