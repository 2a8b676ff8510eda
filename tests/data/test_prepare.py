import os
import resource
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.raw_files import criteo_line, write

from vflbench.cli.prepare import prepare as command
from vflbench.data import file_dataset as cache_module
from vflbench.data.clicklogs import Criteo
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
    for mine in (cache / "mine", cache / "prepared" / "mine.csv", cache / "prepared" / "cleaned" / "mine.csv"):
        mine.write_text("")
    command(["--clear"])
    assert "deleted: " in capsys.readouterr().out
    assert {path.name for path in cache.rglob("*") if path.is_file() and path.parent.name != "locks"} == {"mine", "mine.csv"}
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
    assert changed.made
    assert not same(one, changed)
    assert Criteo(path=raw, bad_rows="skip").prepare().made
    limited = Criteo(path=raw, rows=2000).prepare()
    assert limited.made
    assert len(limited.table) == 2000
    assert not Criteo(path=raw, rows=2000).prepare().made
    # Rows are drawn, split and encoded later.
    for options in ({"sample": 0.5}, {"min_count": 3}, {"parties": 2}, {"fit_on": "train"}, {"split": "chronological"}):
        assert not Criteo(path=raw, **options).prepare().made


def test_a_file_rewritten_with_the_same_size_is_detected(raw):
    before = Criteo(path=raw).prepare()
    text, old = Path(raw).read_text(), Path(raw).stat().st_mtime_ns
    Path(raw).write_text(text.replace("00000001", "0000000f"))
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


def damages():
    for name in ("numeric", "categorical", "labels", "schema.json"):
        yield f"{name} gone", lambda folder, name=name: (folder / name).unlink()
        yield f"{name} cut", lambda folder, name=name: os.truncate(folder / name, (folder / name).stat().st_size // 2)
        for place in (0, 0.5, 1):
            yield f"{name} flipped at {place}", lambda folder, name=name, place=place: flip(folder / name, place)


def flip(file: Path, place: float) -> None:
    data = bytearray(file.read_bytes())
    data[round(place * (len(data) - 2))] ^= 1
    file.write_bytes(data)


@pytest.mark.slow
def test_any_damage_is_detected_and_repaired(cache, raw, capsys):
    whole = Criteo(path=raw).prepare()
    kept = replace(whole, table=whole.table.take(np.arange(len(whole.table))))
    for name, damage in damages():
        damage(whole.folder)
        repaired = Criteo(path=raw).prepare()
        assert repaired.made, name
        assert "damaged" in capsys.readouterr().out, name
        assert same(kept, repaired), name
        assert not Criteo(path=raw).prepare().made, name
        assert tables(cache) == [whole.folder], name


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


FULL_DISK_BYTES = 100_000
"""The operating system keeps any file from growing larger, as a full disk would."""


def test_a_full_disk_is_an_error_and_leaves_nothing(cache, raw):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, hard))
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
