"""Paths that are no regular files: nothing hangs, and each is called what it is."""

import io
import os
import re
import signal
import tarfile

import numpy as np
import pytest
from PIL import Image
from support.raw_files import criteo_line, write

from vflbench.data.binary import Binary
from vflbench.data.clicklogs import Criteo
from vflbench.data.csv import Csv
from vflbench.data.pictures import ImageFolder, Mnist
from vflbench.errors import UserError

READERS = {
    "binary": lambda path: Binary(path=path),
    "csv": lambda path: Csv(path=path, label="y"),
    "criteo": lambda path: Criteo(path=path),
    "idx": lambda path: Mnist(images=path, labels=path),
    "mnist": lambda path: Mnist(path=path),
    "pictures": lambda path: ImageFolder(path=path),
}
LINES = [criteo_line(i % 2) for i in range(12)]


def problem_of(dataset) -> str:
    with pytest.raises(UserError) as error:
        dataset.read(None)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000
    return str(error.value)


@pytest.fixture
def odd(tmp_path):
    """Name -> path and what it must be called."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_pipe").symlink_to(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("x")
    return {
        str(tmp_path / "pipe"): "named pipe",
        str(tmp_path / "to_pipe"): "named pipe",
        "/dev/null": "device",
        str(tmp_path / "dangling"): "a link to a file that is not there",
        str(tmp_path / "loop"): "it can't be read: Too many levels",
    }


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_called_what_it_is(odd, reader):
    signal.alarm(60)  # which ends a process that waits for a pipe
    try:
        for path, expected in odd.items():
            assert expected in problem_of(READERS[reader](path)), path
    finally:
        signal.alarm(0)


def test_an_empty_path_a_folder_and_an_empty_file(tmp_path):
    for reader in ("binary", "csv", "criteo"):
        assert "it is empty and names no file" in problem_of(READERS[reader](""))
        assert "this is a folder; name the file in it" in problem_of(READERS[reader](str(tmp_path)))
        (tmp_path / "empty").write_bytes(b"")
        assert re.search("Empty CSV file|is empty|holds no rows", problem_of(READERS[reader](str(tmp_path / "empty"))))
        (tmp_path / "empty").unlink()
    for reader in ("mnist", "pictures"):
        (tmp_path / "file").write_text("x")
        assert "it is a file; a folder is expected" in problem_of(READERS[reader](str(tmp_path / "file")))


def test_a_pattern_names_what_is_no_file_and_leaves_out_folders(tmp_path):
    (tmp_path / "day_1").mkdir()
    assert "only folders match this pattern" in problem_of(Criteo(path=str(tmp_path / "day_*")))
    write(tmp_path / "day_2", LINES)
    assert len(Criteo(path=str(tmp_path / "day_*")).prepare().table) == 12
    os.mkfifo(tmp_path / "day_3")
    assert "day_3 matches: it is a named pipe" in problem_of(Criteo(path=str(tmp_path / "day_*")))


def test_members_that_are_links_or_devices_are_not_read(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (
            ("link", tarfile.SYMTYPE),
            ("hard", tarfile.LNKTYPE),
            ("pipe", tarfile.FIFOTYPE),
            ("d", tarfile.CHRTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert "the archive holds 0 files" in problem_of(Criteo(path=str(tmp_path / "a.tar")))


def test_pictures_start_no_program(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / name / "1.png")
    eps = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(eps, "EPS")
    (tmp_path / "b" / "2.png").write_bytes(eps.getvalue())
    assert "it is not a picture" in problem_of(ImageFolder(path=str(tmp_path)))
    (tmp_path / "b" / "2.png").unlink()
    (tmp_path / "b" / "2").mkdir()
    assert "a folder within a class" in problem_of(ImageFolder(path=str(tmp_path)))
    (tmp_path / "b" / "2").rmdir()
