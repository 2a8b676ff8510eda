"""Reads files that others may have written: regular files alone, of bounded size and depth, as plain values.

A folder of results is exchanged like a document, so nothing in it is trusted: no link is followed, no pipe is waited for, no
file is read whole before its size is known, and nothing that it holds is ever code. What is wrong ends in `Unreadable`,
whose text is one printable line.
"""

import os
import re
from pathlib import Path
from typing import BinaryIO

from vflbench import errors
from vflbench.errors import UserError
from vflbench.plain_files import open_plain

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
    """`errors.shown`, for pages, tables and terminals: line ends become spaces."""
    return errors.shown(_SPACES.sub(" ", value) if isinstance(value, str) else value, most)


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
