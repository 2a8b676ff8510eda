"""The one door to files that an option names: regular files alone are opened, and nothing is ever waited for."""

import errno
import os
import stat
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from vflbench.errors import UserError

KEY = "dataset.path"

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | Path, key: str = KEY) -> BinaryIO:
    """A regular file, or a link to one, for reading. Raises UserError with this key for anything else.

    It is looked at before it is opened, since opening a device can do something, and again afterwards, since what has the
    name may have changed. A pipe that came in between is not waited for.
    """
    refusal = why_not_regular(path)
    if refusal is not None:
        raise UserError(refusal, key=key, value=str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise UserError(f"it can't be read: {error.strerror}", key=key, value=str(path)) from error
    kind = _kind(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise UserError(_refused(kind), key=key, value=str(path))
    stream = os.fdopen(descriptor, "rb")
    if os.fstat(descriptor).st_size:
        return stream
    stream.close()  # also of the files that the system makes up, some of which wait or never end
    return BytesIO()


def why_not_regular(path: str | Path) -> str | None:
    """What is wrong with a path that names no regular file; None for one that does."""
    kind = kind_of(path)
    if kind == "nothing":
        return "there is no such file"
    return None if kind is None else _refused(kind) if kind.startswith("a ") else kind


def kind_of(path: str | Path) -> str | None:
    """None for a regular file or a link to one; else `a folder`, `a named pipe`, ..., `nothing`, or why that is unknown."""
    if not str(path).strip():
        return "it is empty and names no file"
    if "\0" in str(path):
        return "it can't be read: there is a NUL character in it"
    try:
        return _kind(os.stat(path).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return "it is a link to a file that is not there" if _is_link(path) else "nothing"
        return f"it can't be read: {error.strerror}"


def check_folder(path: str | Path, key: str = KEY) -> None:
    """Raise UserError with this key if this is not a folder that can be listed."""
    kind = kind_of(path)
    if kind != "a folder":
        problem = "a file" if kind is None else kind
        problem = "there is no such folder" if kind == "nothing" else f"it is {problem}; a folder is expected"
        raise UserError(problem if kind is None or kind.startswith(("a ", "nothing")) else kind, key=key, value=str(path))
    try:
        os.scandir(path).close()
    except OSError as error:
        raise UserError(f"the folder can't be read: {error.strerror}", key=key, value=str(path)) from error


def _is_link(path: str | Path) -> bool:
    try:
        return os.path.islink(path)
    except (OSError, ValueError):
        return False


def _kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return next((name for holds, name in _KINDS if holds(mode)), "a special file")


def _refused(kind: str) -> str:
    if kind == "a folder":
        return "this is a folder; name the file in it, or a pattern such as 'day_*'"
    return f"it is {kind}; only regular files are read"
