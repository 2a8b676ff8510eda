"""Tables are prepared once, in bounded memory, and found again until their files, options or reader are others."""

import hashlib
import importlib
import os
import resource
import stat
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.raw_files import criteo_line, write
from support.small_tables import GOOD, request

from vflbench.cli.prepare import prepare as command
from vflbench.data import file_dataset as cache_module
from vflbench.data.clicklogs import Criteo
from vflbench.data.csv import Csv
from vflbench.data.file_dataset import _foreign_code, prepare_table
from vflbench.errors import UserError

LINES = [criteo_line(i % 2, {1: i, 2: -i}, {1: f"{i % 7:08x}", 3: f"{i * 7919 % 3000:08x}"}) for i in range(3000)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def raw(tmp_path) -> str:
    return write(tmp_path / "train.txt", LINES)


def same(one, other) -> bool:
    arrays = ("numeric", "categorical", "labels")
    return all(np.array_equal(getattr(one.table, name), getattr(other.table, name)) for name in arrays)


def tables(cache) -> list[Path]:
    """Folders of tables, also of unfinished ones."""
    return [*filter(Path.is_dir, (cache / "prepared").iterdir())]


def test_a_prepared_table_is_used_again_until_its_file_is_another(tmp_path, cache, raw, capsys):
    Criteo(path=raw).read(None)
    assert "an encoded copy of the table is kept in " in capsys.readouterr().err
    first, again = Criteo(path=raw).prepare(), Criteo(path=raw).prepare()
    assert not first.made
    assert not again.made
    assert same(first, again)
    Criteo(path=raw).read(None)
    assert capsys.readouterr() == ("", "")
    os.utime(raw, (1, 1))
    assert Criteo(path=raw).prepare().made
    Path(raw).rename(tmp_path / "moved")
    assert Criteo(path=str(tmp_path / "moved")).prepare().facts["path"] == str(tmp_path / "moved")
    assert len(tables(cache)) == 3
    (cache / "prepared" / "cleaned").mkdir()
    mine = [cache / "mine", cache / "prepared" / "mine.csv", cache / "prepared" / "cleaned" / "mine.csv"]
    for path in mine:
        path.write_text("")
    command(["--clear"])
    assert "deleted: " in capsys.readouterr().out
    assert {path for path in cache.rglob("*") if path.is_file() and path.parent.name != "locks"} == {*mine}
    assert [path.name for path in tables(cache)] == ["cleaned"]


def test_files_and_folders_are_for_their_owner_alone(cache, raw):
    before = os.umask(0)
    Criteo(path=raw).prepare()
    os.umask(before)
    modes = {path.relative_to(cache): stat.S_IMODE(path.lstat().st_mode) for path in (cache, *cache.rglob("*"))}
    assert {mode & 0o077 for mode in modes.values()} == {0}, modes


def test_another_content_or_another_option_is_prepared_anew(tmp_path, raw):
    one = Criteo(path=raw).prepare()
    changed = Criteo(path=write(tmp_path / "other", [*LINES[:-1], criteo_line(1)])).prepare()
    assert not same(one, changed)
    limited = Criteo(path=raw, rows=2000).prepare()
    assert len(limited.table) == 2000
    assert all(one.made for one in (changed, limited, Criteo(path=raw, bad_rows="skip").prepare()))
    # Rows are drawn, split and encoded later.
    for later in ({"sample": 0.5}, {"min_count": 3}, {"parties": 2}, {"fit_on": "train"}, {"split": "chronological"}):
        assert not Criteo(path=raw, rows=2000, **later).prepare().made


def test_a_file_rewritten_with_the_same_size_is_detected(raw):
    before, old = Criteo(path=raw).prepare(), Path(raw).stat().st_mtime_ns
    Path(raw).write_text(Path(raw).read_text().replace("00000001", "0000000f"))
    os.utime(raw, ns=(old, old))  # as those do that keep times: cp -p, tar
    after = Criteo(path=raw).prepare()
    assert after.made
    assert before.folder != after.folder


def test_the_same_rows_have_the_same_fingerprint_however_they_are_stored(tmp_path, raw):
    zipped = Criteo(path=write(tmp_path / "z", LINES, compress=True, end="\r\n")).prepare()
    parts = [write(tmp_path / f"day_{i}", LINES[i * 1500 : (i + 1) * 1500]) for i in range(2)]
    assert same(Criteo(path=raw).prepare(), zipped)
    assert Criteo(path=raw).prepare().table.fingerprint == zipped.table.fingerprint
    joined = Criteo(path=str(tmp_path / "day_*")).prepare()
    assert same(zipped, joined)
    assert joined.facts["path"] == parts
    assert len(joined.facts["file_sha256"]) == 2


@pytest.mark.slow
def test_any_damage_is_detected_and_repaired(cache, raw, capsys):
    """A file that is gone, cut, or has a bit changed at its start, in its middle or at its end."""
    whole = Criteo(path=raw).prepare()
    kept = replace(whole, table=whole.table.take(np.arange(len(whole.table))))
    for file in (whole.folder / name for name in ("numeric", "categorical", "labels", "schema.json")):
        data = file.read_bytes()
        flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in (0, len(data) // 2, len(data) - 2)]
        for damaged in (None, data[: len(data) // 2], *flipped):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            repaired = Criteo(path=raw).prepare()
            assert repaired.made, file.name
            assert "damaged" in capsys.readouterr().out, file.name
            assert same(kept, repaired), file.name
            assert not Criteo(path=raw).prepare().made, file.name
            assert tables(cache) == [whole.folder], file.name


def test_files_left_by_a_killed_process_are_removed(cache, raw):
    folder = Criteo(path=raw).prepare().folder
    left = folder.rename(folder.with_suffix(".part"))
    (left / "0.npz").write_bytes(b"half")
    assert Criteo(path=raw).prepare().made
    assert tables(cache) == [folder]


def test_callers_that_prepare_the_same_at_once_make_it_once(raw, monkeypatch):
    """Three threads, which the lock separates like processes. The first parses only when another waits for the lock."""
    another_waits, parse = threading.Event(), cache_module.parsed

    def parse_when_another_waits(*arguments, **options):
        assert another_waits.wait(300)
        return parse(*arguments, **options)

    monkeypatch.setattr(cache_module, "parsed", parse_when_another_waits)
    monkeypatch.setattr(cache_module.tqdm, "write", lambda *_, **__: another_waits.set())
    with ThreadPoolExecutor(3) as pool:
        prepared = list(pool.map(lambda _: Criteo(path=raw).prepare(), range(3)))
    assert sorted(p.made for p in prepared) == [False, False, True]
    assert len({p.folder for p in prepared}) == 1


def test_a_full_disk_is_an_error_and_leaves_nothing(cache, raw):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # no file grows larger, as on a full disk
    try:
        with pytest.raises(UserError, match="File too large; set VFLBENCH_CACHE"):
            Criteo(path=raw).prepare()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not tables(cache)
    assert Criteo(path=raw).prepare().made


def test_a_file_that_changes_while_it_is_read_is_rejected(cache, raw, monkeypatch):
    parse = cache_module.parsed

    def append_and_parse(*arguments, **options):
        with open(raw, "a") as file:
            file.write(criteo_line() + "\n")
        return parse(*arguments, **options)

    monkeypatch.setattr(cache_module, "parsed", append_and_parse)
    with pytest.raises(UserError, match="changed while it was read"):
        Criteo(path=raw).prepare()
    assert not tables(cache)


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
    Csv(path=write(tmp_path / "first", ["y,a", "0,1.5", "1,2.5"]), label="y").prepare()  # imports, once
    peaks = []
    for rows in (4_000, 40_000):
        values = np.random.default_rng(rows).standard_normal((rows, 4)).tolist()
        path = write(tmp_path / f"{rows}", ["y,a,b,c,d", *(f"{k % 2},{str(of)[1:-1]}" for k, of in enumerate(values))])
        del values
        pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            Csv(path=path, label="y").prepare()
            peaks.append(tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0))
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_facts_hold_the_whole_path_and_the_hash_of_the_bytes_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "x", GOOD, compress=True)
    sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
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


def test_an_edited_reader_of_a_user_s_own_prepares_its_tables_again(tmp_path, monkeypatch):
    assert _foreign_code(Csv) == {}
    monkeypatch.syspath_prepend(tmp_path)
    digests = set()
    for name in ("own_reader", "edited_reader"):
        (tmp_path / f"{name}.py").write_text(f"from vflbench.data.csv import Csv\nclass Own(Csv):\n    name = '{name}'\n")
        digests.add(_foreign_code(importlib.import_module(name).Own)["code"])
    assert len(digests) == 2
