"""Reads files that others may have written: plain files alone, of bounded size. What is wrong ends in `Unreadable`."""

import os
import re
from pathlib import Path

from vflbench import errors
from vflbench.errors import UserError
from vflbench.plain_files import open_plain

MOST_BYTES = 256_000_000
"""Of any file of a run: some 3 million rows of metrics.csv."""
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")


class Unreadable(UserError):  # noqa: N818
    """A file that can't be read, and why."""

    def __init__(self, path: Path, reason: object):
        super().__init__(
            f"{shown(path.name)} can't be read: {shown(reason, 300)}", key="folder", value=shown(path.parent, 300)
        )


def shown(value: object, most: int = 200) -> str:
    """`errors.shown`, for pages, tables and terminals: line ends become spaces."""
    return errors.shown(_SPACES.sub(" ", value) if isinstance(value, str) else value, most)


def read_bytes(path: Path, most: int = MOST_BYTES, *, whole: bool = True) -> bytes:
    """The file, or if `whole` is False its first `most` bytes. Raises FileNotFoundError, and Unreadable for anything but a
    plain file, and for a whole one that has more bytes.
    """
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if whole and size > most:
                raise ValueError(f"it has {size:,} bytes, and at most {most:,} are read")
            with open(os.dup(file.fileno()), "rb") as buffered:
                return buffered.read(most)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(path, getattr(error, "strerror", None) or error) from error


def read_head(path: Path, most: int) -> str:
    """The first so many bytes of a file as text, whatever they are. Raises as `read_bytes`."""
    return read_bytes(path, most, whole=False).decode(errors="replace")
