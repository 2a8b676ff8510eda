"""A cache that is damaged, somebody else's, or full of traps: nothing outside is touched, nothing foreign is believed."""

import json
import os
import random
import shutil
import stat
import zlib
from pathlib import Path

import numpy as np
import pytest
from raw_files import criteo_line, write

from vflbench.data.criteo import Criteo
from vflbench.errors import UserError

LINES = [criteo_line(i % 2, {1: i}, {1: f"{i % 7:08x}"}) for i in range(300)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def raw(tmp_path) -> str:
    return write(tmp_path / "train.txt", LINES)


@pytest.fixture
def victim(tmp_path) -> Path:
    """A folder and a file of the user's that no trap may touch."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis").write_text("ten years")
    return tmp_path / "victim"


def unharmed(victim) -> bool:
    return (victim / "thesis").read_text() == "ten years" and [f.name for f in victim.iterdir()] == ["thesis"]


def known(cache) -> Path:
    (file,) = (cache / "known").iterdir()
    return file


TRAPS = {
    "empty": "",
    "a line end": "\n",
    "a dot": ".\n",
    "two dots": "..\n",
    "a folder outside": "../../victim\n",
    "an absolute path": "{victim}\n",
    "upper case": "{upper}\n",
    "a line more": "{key}\n..\n",
    "a blank": " {key}\n",
    "an end of another kind": "{key}\r\n",
    "NUL": "{key}\0",
    "much": "0" * 10**6,
    "unknown": "0" * 32 + "\n",
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_is_known_of_a_text_must_be_a_digest(cache, raw, victim, trap):
    first = Criteo(path=raw).prepare()
    beside = first.folder.parent / "notes"
    beside.mkdir()
    known(cache).write_text(trap.format(victim=victim, key=first.folder.name, upper=first.folder.name.upper()))
    again = Criteo(path=raw).prepare()
    assert not again.made  # found by its content
    assert again.folder == first.folder
    assert beside.exists()
    assert unharmed(victim)
    assert known(cache).read_text() == f"{first.folder.name}\n"


def test_a_link_is_neither_believed_nor_followed_nor_deleted_through(cache, raw, victim):
    first = Criteo(path=raw).prepare()
    (victim / "key").write_text(f"{first.folder.name}\n")
    known(cache).unlink()
    (cache / "known" / signature_of(cache)).symlink_to(victim / "key")
    assert not Criteo(path=raw).prepare().made
    assert not known(cache).is_symlink()
    (victim / "key").unlink()
    shutil.rmtree(first.folder)
    first.folder.symlink_to(victim)
    with pytest.raises(UserError, match="VFLBENCH_CACHE=.*: this folder holds files that vflbench has not put there"):
        Criteo(path=raw).prepare()
    assert unharmed(victim)


def signature_of(cache) -> str:
    (lock,) = (cache / "locks").iterdir()
    return lock.name


@pytest.mark.parametrize("name", ["locks", "known", "prepared", "building"])
def test_no_part_of_the_cache_may_be_a_link(cache, raw, victim, name):
    cache.mkdir(mode=0o700)
    (cache / name).symlink_to(victim)
    with pytest.raises(UserError, match=f"VFLBENCH_CACHE=.*{name}: it is a link"):
        Criteo(path=raw).prepare()
    assert unharmed(victim)


def test_only_files_of_ours_are_deleted_from_a_damaged_table(cache, raw, capsys):
    folder = Criteo(path=raw).prepare().folder
    (folder / "notes.txt").write_text("mine")
    (folder / "labels").write_bytes(b"")
    with pytest.raises(UserError, match="left as it is"):
        Criteo(path=raw).prepare()
    (kept,) = (cache / "prepared").rglob("notes.txt")
    assert kept.read_text() == "mine"
    assert "damaged" in capsys.readouterr().out
    assert kept.parent == folder
    assert (folder / "numeric").exists()
    kept.unlink()
    assert Criteo(path=raw).prepare().made


def test_a_folder_without_our_mark_is_no_table_and_stays(raw):
    folder = Criteo(path=raw).prepare().folder
    (folder / ".vflbench").unlink()
    with pytest.raises(UserError, match="left as it is"):
        Criteo(path=raw).prepare()
    assert (folder / "labels").exists()


def test_files_and_folders_are_for_their_owner_alone(cache, raw):
    before = os.umask(0)
    try:
        Criteo(path=raw).prepare()
    finally:
        os.umask(before)
    modes = {path.relative_to(cache): stat.S_IMODE(path.lstat().st_mode) for path in (cache, *cache.rglob("*"))}
    assert {mode & 0o077 for mode in modes.values()} == {0}, modes


def test_a_cache_that_others_can_write_to_is_refused(cache, raw):
    for mode in (0o777, 0o1777, 0o702):
        cache.mkdir(exist_ok=True)
        cache.chmod(mode)
        with pytest.raises(UserError, match="VFLBENCH_CACHE=.*: others can write to it, .*chmod go-w"):
            Criteo(path=raw).prepare()
        assert not list(cache.iterdir())
    cache.chmod(0o700)
    Criteo(path=raw).prepare()
    (cache / "prepared").chmod(0o777)
    with pytest.raises(UserError, match="prepared: others can write to it"):
        Criteo(path=raw).prepare()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_cache_or_a_file_in_it_that_belongs_to_somebody_else_is_refused(cache, raw):
    folder = Criteo(path=raw).prepare().folder
    os.chown(folder / "categorical", 12345, -1)
    assert Criteo(path=raw).prepare().made
    os.chown(cache, 12345, -1)
    with pytest.raises(UserError, match="belongs to another user"):
        Criteo(path=raw).prepare()
    os.chown(cache, 0, -1)
    elsewhere = cache.with_name("elsewhere")
    cache.rename(elsewhere)
    cache.symlink_to(elsewhere)
    assert not Criteo(path=raw).prepare().made  # a link of the user's own will do
    os.lchown(cache, 12345, -1)
    with pytest.raises(UserError, match="somebody else's link"):
        Criteo(path=raw).prepare()


@pytest.mark.parametrize("name", ["schema.json", "labels", "counts", "checksums"])
def test_a_pipe_in_place_of_a_file_makes_nobody_wait(cache, raw, name):
    folder = Criteo(path=raw).prepare().folder
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert Criteo(path=raw).prepare().made
    known(cache).unlink()
    os.mkfifo(cache / "known" / signature_of(cache))
    assert not Criteo(path=raw).prepare().made


ODD = [None, True, -1, 0, 10**30, 1e400, "", "x" * 1000, "../..", [], [[]], {}, {"a": 1}, "object", "float16", float("nan")]


def write_schema(folder: Path, schema: object) -> None:
    text = json.dumps(schema, indent=1)
    (folder / "schema.json").write_text(f"{text}\n{zlib.crc32(text.encode()):08x}\n")


@pytest.mark.slow
def test_a_schema_with_odd_values_and_a_right_checksum_is_damage(raw):
    """Every value at every place: the table is the same afterwards, prepared again or not."""
    folder = Criteo(path=raw).prepare().folder
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    schema = json.loads(whole["schema.json"].decode().rsplit("\n", 2)[0])
    places = [(key,) for key in schema] + [("arrays", k, d) for k in schema["arrays"] for d in ("dtype", "width")]
    places += [("checksums", k) for k in schema["checksums"]] + [("facts", k) for k in schema["facts"]]
    rng = random.Random(0)
    for place in places:
        for odd in rng.sample(ODD, 2):
            changed = json.loads(json.dumps(schema))
            node = changed
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = odd
            write_schema(folder, changed)
            again = Criteo(path=raw).prepare()
            assert len(again.table) == 300, (place, odd)
            assert len(again.table.take(slice_of(again.table)).labels) == 300
            assert again.folder == folder
            if (folder / "schema.json").read_bytes() != whole["schema.json"]:
                assert place[0] in ("facts", "low", "high", "raw_bytes", "names", "fingerprint"), (place, odd)
                write_schema(folder, schema)
    write_schema(folder, json.loads("[" * 500 + "]" * 500))
    assert Criteo(path=raw).prepare().made
    (folder / "schema.json").write_text("[" * 100_000)
    assert Criteo(path=raw).prepare().made


def test_arrays_with_right_checksums_that_name_no_category_or_class_are_damage(raw):
    folder = Criteo(path=raw).prepare().folder
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    schema = json.loads(whole["schema.json"].decode().rsplit("\n", 2)[0])
    for name, kind, value in (
        ("categorical", np.int32, 10**8),
        ("categorical", np.int32, -1),
        ("labels", np.uint8, 200),
        ("labels", np.uint8, 2),
        ("counts", np.int64, -5),
        ("counts", np.int64, 10**12),
    ):
        values = np.frombuffer(whole[name], kind).copy()
        values[1] = value
        (folder / name).write_bytes(values.tobytes())
        if name == "counts":
            sums = {"counts": zlib.crc32(values.tobytes()), "checksums": schema["checksums"]["checksums"]}
        else:
            place = ("numeric", "categorical", "labels").index(name)
            checksums = np.frombuffer(whole["checksums"], np.uint32).reshape(3, -1).copy()
            checksums[place, 0] = zlib.crc32(values.tobytes())
            (folder / "checksums").write_bytes(checksums.tobytes())
            sums = {"counts": schema["checksums"]["counts"], "checksums": zlib.crc32(checksums.tobytes())}
        write_schema(folder, {**schema, "checksums": sums})
        assert Criteo(path=raw).prepare().made, (name, value)


def slice_of(table):
    return np.arange(len(table))
