"""Paths, patterns and archives; what is no regular file is called what it is, and nothing hangs."""

import io
import os
import re
import signal
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from support.raw_files import criteo_line, refusal_of, write
from support.small_tables import GOOD, GOOD_NUMBERS, problem_of, request, table_of

from vflbench.data.binary import Binary
from vflbench.data.clicklogs import Criteo
from vflbench.data.csv import Csv
from vflbench.data.file_dataset import prepare_table
from vflbench.data.files import Part, find_parts
from vflbench.data.pictures import ImageFolder, Mnist


def test_a_tilde_is_the_home_folder_and_a_pattern_takes_its_files_in_natural_order(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "x", GOOD)
    assert find_parts("~/x") == [Part(tmp_path / "x")]
    for number in (10, 9, 1):
        write(tmp_path / f"day_{number}", [f"0\t{number}\tx"], compress=number == 9)
    assert table_of(str(tmp_path / "day_*"))["n"] == [1, 9, 10]
    assert table_of([str(tmp_path / "day_10"), str(tmp_path / "day_1")])["n"] == [10, 1]
    assert "no file matches" in refusal_of(Criteo(path=str(tmp_path / "night_*")))
    assert "names no file" in refusal_of(Criteo(path=[]))
    assert "named twice" in refusal_of(Criteo(path=[str(tmp_path / "day_1")] * 2))


def archive(path, kind, members):
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, lines in members.items():
                file.writestr(name, "\n".join(lines))
        return str(path)
    with tarfile.open(path, f"w:{kind}") as file:
        for name, lines in members.items():
            info, data = tarfile.TarInfo(name), "\n".join(lines).encode()
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.mark.parametrize("kind", ["zip", "", "gz", "xz"])
def test_members_of_an_archive(tmp_path, kind):
    two = archive(tmp_path / "two", kind, {"readme.txt": ["hello"], "d/day_1": GOOD[:2], "d/day_2": GOOD[2:]})
    assert [str(p) for p in find_parts(two, ["d/*"])] == [f"{two}::d/day_1", f"{two}::d/day_2"]
    choose = "holds 3 files; choose from them with dataset.members: readme.txt, d/day_1, d/day_2"
    assert choose in refusal_of(Criteo(path=two))
    assert re.search("no file in .* matches", refusal_of(Criteo(path=two, members=["nothing"])))
    one = archive(tmp_path / "one", kind, {"train.txt": GOOD})
    assert table_of(one)["n"] == GOOD_NUMBERS
    bad = archive(tmp_path / "bad", kind, {"train.txt": [*GOOD, "x"]})
    assert problem_of(bad).startswith("row 5: Expected 3 columns, got 1")
    assert "not a .zip or .tar" in refusal_of(Criteo(path=write(tmp_path / "plain", GOOD), members=["x"]))


def test_the_rows_of_all_parts_follow_one_another(tmp_path):
    both = archive(tmp_path / "both.tar.gz", "gz", {"a": GOOD[:1], "b": GOOD[1:]})
    assert [part.member for part in find_parts(both, ["*"])] == ["a", "b"]
    table = prepare_table(replace(request(str(write(tmp_path / "x", GOOD))), parts=find_parts(both, ["b", "a"]))).table
    assert table.numeric[:, 0].tolist() == pytest.approx([-7, np.nan, 12, 3], nan_ok=True)


READERS = {
    "binary": lambda path: Binary(path=path),
    "csv": lambda path: Csv(path=path, label="y"),
    "criteo": lambda path: Criteo(path=path),
    "idx": lambda path: Mnist(images=path, labels=path),
    "mnist": lambda path: Mnist(path=path),
    "pictures": lambda path: ImageFolder(path=path),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_called_what_it_is(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe")
    for name, target in (("to_pipe", "pipe"), ("dangling", "absent"), ("loop", "loop")):
        (tmp_path / name).symlink_to(tmp_path / target)
    odd = {"pipe": "named pipe", "to_pipe": "named pipe", "/dev/null": "device", "loop": "it can't be read: Too many levels"}
    signal.alarm(60)  # which ends a process that waits for a pipe
    try:
        for name, expected in {**odd, "dangling": "a link to a file that is not there"}.items():
            assert expected in refusal_of(READERS[reader](str(tmp_path / name))), name
    finally:
        signal.alarm(0)


def test_an_empty_path_a_folder_and_an_empty_file(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    for reader in ("binary", "csv", "criteo"):
        assert "it is empty and names no file" in refusal_of(READERS[reader](""))
        assert "this is a folder; name the file in it" in refusal_of(READERS[reader](str(tmp_path / "folder")))
        assert re.search("Empty CSV file|is empty|holds no rows", refusal_of(READERS[reader](str(tmp_path / "empty"))))
    for reader in ("mnist", "pictures"):
        assert "it is a file; a folder is expected" in refusal_of(READERS[reader](str(tmp_path / "empty")))


def test_a_pattern_names_what_is_no_file_and_leaves_out_folders(tmp_path):
    days = Criteo(path=str(tmp_path / "day_*"))
    (tmp_path / "day_1").mkdir()
    assert "only folders match this pattern" in refusal_of(days)
    write(tmp_path / "day_2", [criteo_line(i % 2) for i in range(12)])
    assert len(days.prepare().table) == 12
    os.mkfifo(tmp_path / "day_3")
    assert "day_3 matches: it is a named pipe" in refusal_of(days)


def test_members_that_are_links_or_devices_are_not_read(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo(f"member {kind}")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert "the archive holds 0 files" in refusal_of(Criteo(path=str(tmp_path / "a.tar")))
