"""What lies in the folders given as --plugins DIR: every file counts, because code there may read or import any of them."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.results.files import CONFIG, LOCK, MANIFEST, MARKS, METRICS

MOST_FILES = 2_000
MOST_BYTES = 256 << 20
_BLOCK = 1 << 20
_TOO_MANY = (
    f"it holds more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MB, all of which would count as parts of plug-ins; name "
    "a folder that holds nothing else"
)

_in_use: list[Path] = []
_read: dict[Path, dict[str, str]] = {}


def use(folders: Sequence[Path]) -> None:
    """Modules of these folders can be imported from now on, in this process. Called before they are put on Python's path."""
    _in_use.extend(folder for folder in folders if folder not in _in_use)


def in_use(folders: Sequence[Path] = ()) -> tuple[Path, ...]:
    """All folders whose modules this process can import, in the order in which it looks in them, and then `folders`.

    A run counts all of them: a module of one may import what lies in another.
    """
    return tuple(dict.fromkeys([*_in_use, *folders]))


def listing(folder: Path) -> Mapping[str, str]:
    """Path within the folder -> SHA-256 of the file, as it was when this process first asked. Raises UserError if too many.

    Left out: names that begin with a dot or # or end with ~, `__pycache__` (never used: see `plugin_modules`), and folders
    of runs and of their sweeps.
    """
    folder = folder.resolve()
    if folder not in _read:
        _read[folder] = read_listing(folder)
    return _read[folder]


def described(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """For the manifest: each folder, and its listing.

    [{"folder": "/home/a/mine", "files": {"attack/loud.yaml": "9f86d0...", "loud.py": "60303a..."}}]
    """
    return [{"folder": str(folder), "files": dict(listing(folder))} for folder in folders]


def edited(folder: Path) -> list[str]:
    """The files that differ from `listing`, or are new or gone, by name."""
    before, now = listing(folder), read_listing(folder.resolve())
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def read_listing(folder: Path) -> dict[str, str]:
    """`listing` as it is now."""
    found: dict[str, str] = {}
    total = 0
    for file in _files(folder):
        state = file.stat()
        total += state.st_size
        if len(found) == MOST_FILES or total > MOST_BYTES:
            raise UserError(_TOO_MANY, key="--plugins", value=folder)
        found[file.relative_to(folder).as_posix()] = sha256(file)
    return found


def sha256(file: Path) -> str:
    """Of its content."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Regular files in the order of their paths. Links are followed, as Python does; no folder counts twice."""
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        state = os.stat(place)
        again = (state.st_dev, state.st_ino) in seen
        seen.add((state.st_dev, state.st_ino))
        is_output = Path(place) != folder and (_is_run(files) or any(_is_run(_names(Path(place) / f)) for f in folders))
        if again or is_output:
            folders[:] = []
            continue
        if len(seen) > MOST_FILES:
            raise UserError(_TOO_MANY, key="--plugins", value=folder)
        folders[:] = sorted(name for name in folders if _counts(name))
        for name in sorted(files):
            file = Path(place) / name
            if _counts(name) and _is_regular(file):
                yield file


def _is_run(files: Sequence[str]) -> bool:
    """Whether a folder with these files is a run's."""
    return {CONFIG, MANIFEST, METRICS} <= set(files) or (LOCK in files and MARKS.issuperset({*files} - {LOCK}))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _counts(name: str) -> bool:
    return not (name.startswith((".", "#")) or name.endswith("~") or name == "__pycache__")


def _is_regular(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except OSError:
        return False
