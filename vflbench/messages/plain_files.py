"""Opens files of a folder that others have made: plain files alone, no links, pipes or devices."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: Path) -> BinaryIO:
    """For reading, unbuffered. Raises ValueError for anything but a plain file, and never waits for one."""
    check_plain(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
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


def in_a_line(reason: object, most: int = 500) -> str:
    """What is wrong, as one line of printable text: names in a hostile file can't write to the terminal."""
    if isinstance(reason, OSError) and reason.strerror:
        reason = reason.strerror
    text = f"there is no {reason}" if isinstance(reason, KeyError) else " ".join(str(reason).split())
    text = text[:most] or type(reason).__name__
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
