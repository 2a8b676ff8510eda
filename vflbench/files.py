"""Files: where vflbench's own are, and those in folders that others may have made, of which plain files alone are read, no
links, pipes or devices. What is written is written whole.
"""

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO

from vflbench.errors import printable

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


@cache
def config_folder() -> Path:
    """The configs in the installed package, or else those of the checkout."""
    packaged = Path(__file__).resolve().parent / "configs"
    return packaged if packaged.is_dir() else packaged.parent.parent / "configs"


def open_plain(path: Path) -> BinaryIO:
    """For reading, unbuffered. Raises ValueError for anything but a plain file, and never waits for one."""
    check_plain(path)
    descriptor = os.open(path, os.O_RDONLY | _NO_LINKS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is no plain file")
    return os.fdopen(descriptor, "rb", buffering=0)


def check_plain(path: Path, *, links: bool = False) -> None:
    """Raises ValueError for anything but a plain file. links: whether a link to one will do."""
    mode = (os.stat if links else os.lstat)(path).st_mode
    if not stat.S_ISREG(mode):
        raise ValueError("it is a link, and only plain files are read" if stat.S_ISLNK(mode) else "it is no plain file")


def is_there(path: Path) -> bool:
    """Whether anything has this name, a broken link too."""
    return os.path.lexists(path)


def open_to_write(path: Path, mode: str, *, private: bool = False, **how: Any) -> IO[Any]:
    """The built-in `open`. Raises OSError where the last part of the path is a link, or a pipe that nobody reads.

    private: a file that is made is for its owner alone.
    """
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | _NO_LINKS, 0o600 if private else 0o666), **how)


@contextmanager
def written_whole(path: Path, mode: str = "wb", *, private: bool = False, **how: Any) -> Iterator[IO[Any]]:
    """A new file that takes the place of `path` when the block ends, and is gone if it raises.

    Until then its name is one that nobody can guess, and no link is followed. It is on disk before it is renamed, and its
    folder is when this returns; a link at `path` is itself replaced. private: only its owner may read it.
    """
    with replaced(path, private=private) as temporary, open_to_write(temporary, mode, **how) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def replaced(path: Path, *, private: bool = False) -> Iterator[Path]:
    """The same for a writer that takes a path, and without waiting for the disk: yields the path to write to, a new empty
    file `.NAME.RANDOM.tmp` in the same folder.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    open_to_write(temporary, "xb", private=private).close()
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_temporaries(folder: Path, names: Iterable[str]) -> None:
    """Delete what killed processes have left in a folder while they wrote files of these names."""
    wanted = tuple(f".{name}." for name in names)
    for file in folder.glob(".*.tmp"):
        if file.name.startswith(wanted):
            with suppress(OSError):
                file.unlink()


def sync_folder(folder: Path) -> None:
    """A rename is on disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def in_a_line(reason: object, most: int = 500) -> str:
    """What is wrong, as one line of printable text: names in a hostile file can't write to the terminal."""
    if isinstance(reason, OSError) and reason.strerror:
        reason = reason.strerror
    text = f"there is no {reason}" if isinstance(reason, KeyError) else " ".join(str(reason).split())
    text = text[:most] or type(reason).__name__
    return printable(text)
