"""Reads files that others may have written: regular files alone, of bounded size and depth, as plain values.

A folder of results is exchanged like a document, so nothing in it is trusted: no link is followed, no pipe is waited for, no
file is read whole before its size is known, and nothing that it holds is ever code. What is wrong ends in `Unreadable`,
whose text is one printable line.
"""

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vflbench.errors import UserError

MEGA = 1_000_000
MOST_TEXT = 20_000
"""Characters of one text."""
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")


class Unreadable(UserError):  # noqa: N818
    """A file that can't be read, and why. kind: `torn` for one that may just be incomplete, else `foreign`."""

    def __init__(self, path: Path, reason: object, *, kind: str = "foreign"):
        super().__init__(
            f"{shown(path.name)} can't be read: {shown(reason, 300)}", key="folder", value=shown(path.parent, 300)
        )
        self.kind = kind


def shown(value: object, most: int = 200) -> str:
    """As one line of printable text for pages, tables and terminals, cut to so many characters.

    Line ends become spaces; control characters, marks that change the direction of text, halves of surrogate pairs and bytes
    that are no UTF-8 are escaped, as `\\x1b`.
    """
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= most else f"{text[: max(most - 3, 0)]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in _SPACES.sub(" ", text))


def open_plain(path: Path) -> BinaryIO:
    """For reading, unbuffered. Raises ValueError for anything but a regular file, and never waits for one."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        raise ValueError("it is a link, and only plain files are read" if stat.S_ISLNK(mode) else "it is no plain file")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced in between
        os.close(descriptor)
        raise ValueError("it is no plain file")
    return os.fdopen(descriptor, "rb", buffering=0)


def no_link(path: str, flags: int) -> int:
    """As `opener` of `open`: what is there is written to only if it is a regular file. Raises UserError."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UserError("it is a link or a pipe, and only plain files are written to", key="file", value=path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError("it is no plain file", key="file", value=path)
    return descriptor


def open_new(path: Path) -> BinaryIO:
    """For writing, empty; what was there under this name, a link too, is replaced and not written to."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def read_bytes(path: Path, most: int) -> bytes:
    """The whole file. Raises FileNotFoundError, and Unreadable for anything but a regular file of at most so many bytes."""
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise ValueError(f"it has {size:,} bytes, and at most {most:,} are read")
            return _read(file, most)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(path, getattr(error, "strerror", None) or error) from error


def _read(file: BinaryIO, most: int) -> bytes:
    """What is written while it is read is left out."""
    parts, left = [], most
    while left and (part := file.read(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_head(path: Path, most: int) -> str:
    """The first so many bytes of a file as text, whatever they are. Raises OSError, and Unreadable as `read_bytes`."""
    try:
        with open_plain(path) as file:
            return _read(file, most).decode(errors="replace")
    except ValueError as error:
        raise Unreadable(path, error) from error
