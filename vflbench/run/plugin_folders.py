"""What the folders given as --plugins DIR contain: for the manifest, so that a result says which code made it."""

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_FILES = 1000
MOST_BYTES = 50_000_000
_MOST_SEEN = 20_000  # entries of a folder that are looked at
_FIRST = (".py", ".so", ".pyd", ".yaml")  # code and configs are listed before data


def plugin_folders(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """For each folder: its path, the SHA-256 of every file by its name relative to it, and how many files were left out.

        {"folder": "/home/a/mine", "files": {"attack/loud.yaml": "9f86d0...", "loud.py": "60303a..."}, "left_out": 0}

    Modules and configs come first, by name. Files beyond 1,000, and those with which a folder has more than 50 MB, are left
    out and counted. Links are not followed: `link to TARGET` stands in place of a digest, and `no regular file` for a pipe
    or a device. Python's `__pycache__` is left out without a count: plug-ins are compiled from their source each time.
    """
    return [_listing(folder) for folder in folders]


def _listing(folder: Path) -> dict[str, Any]:
    names, left_out = _names(folder)
    files: dict[str, str] = {}
    room = MOST_BYTES
    for name in sorted(names, key=lambda name: (Path(name).suffix not in _FIRST, name)):
        text, size = _digest(folder / name, room) if len(files) < MOST_FILES else (None, 0)
        if text is None:
            left_out += 1
        else:
            files[name] = text
            room -= size
    return {"folder": str(folder), "files": dict(sorted(files.items())), "left_out": left_out}


def _names(folder: Path) -> tuple[list[str], int]:
    """Names of all that is no folder, relative and with slashes, and how many were not looked at."""
    names: list[str] = []
    left_out = 0
    for place, below, files in os.walk(folder):  # follows no links to folders
        links = [name for name in below if os.path.islink(os.path.join(place, name))]
        below[:] = sorted(name for name in below if name not in links and name != "__pycache__")
        here = [Path(place, name).relative_to(folder).as_posix() for name in (*files, *links)]
        names += here[: max(0, _MOST_SEEN - len(names))]
        if len(names) >= _MOST_SEEN:
            left_out += 1
            break
    return names, left_out


def _digest(file: Path, room: int) -> tuple[str | None, int]:
    """The text for a file, and its size; None if it is larger than what is left of the room."""
    try:
        if file.is_symlink():
            return f"link to {os.readlink(file)}", 0
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as opened:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                return "no regular file", 0
            content = opened.read(room + 1)
    except OSError as error:
        return f"can't be read: {error.strerror}", 0
    if len(content) > room:
        return None, 0
    return hashlib.sha256(content).hexdigest(), len(content)
