"""Input files of a dataset: plain paths, patterns and members of archives."""

import glob
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa

from vflbench.errors import UserError

READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, zipfile.BadZipFile, tarfile.TarError)
"""What reading a damaged file or archive raises."""


@dataclass(frozen=True)
class Part:
    """One text: a file, or a member of an archive."""

    file: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.file) if self.member is None else f"{self.file}::{self.member}"


def find_parts(path: str | Sequence[str], members: Sequence[str] | None = None) -> list[Part]:
    """The texts that `dataset.path` names: a file, a pattern, or several of them.

    Files that match a pattern come in natural order (day_2 before day_10). From a .zip or .tar archive (also .tar.gz and
    the like) come the members that match `members`, in the archive's order. Without `members`, the archive must hold
    exactly one file. Raises UserError if no file matches.
    """
    files = [file for word in ([path] if isinstance(path, str) else path) for file in _files(word)]
    if not files:
        raise UserError("it names no file", key="dataset.path", value=path)
    parts = [part for file in files for part in _parts(file, members)]
    repeated = {str(part) for part in parts if parts.count(part) > 1}
    if repeated:
        problem = f"{min(repeated)} is named twice, so its rows would count double"
        raise UserError(problem, key="dataset.path", value=path)
    return parts


def _files(word: str) -> list[Path]:
    file = Path(word).expanduser()
    if file.is_dir():
        raise UserError(
            "this is a folder; name the file in it, or a pattern such as 'day_*'", key="dataset.path", value=word
        )
    if file.exists():
        return [file]
    if not glob.has_magic(word):
        raise UserError(f"there is no such file (looked in {Path.cwd()})", key="dataset.path", value=word)
    matches = [Path(name) for name in glob.glob(str(file), recursive=True) if Path(name).is_file()]
    if not matches:
        raise UserError(f"no file matches this pattern (looked in {Path.cwd()})", key="dataset.path", value=word)
    return sorted(matches, key=_natural_order)


def _natural_order(file: Path) -> list[tuple[int, int | str]]:
    """Sort key that compares digits as numbers."""
    return [(0, int(run)) if run.isdigit() else (1, run) for run in re.split(r"(\d+)", str(file)) if run]


def _parts(file: Path, members: Sequence[str] | None) -> list[Part]:
    names = _member_names(file)
    if names is None:
        if members:
            raise UserError(f"{file} is not a .zip or .tar archive", key="dataset.members", value=list(members))
        return [Part(file)]
    listed = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
    if not members:
        if len(names) != 1:
            problem = f"the archive holds {len(names)} files; choose from them with dataset.members: {listed or 'none'}"
            raise UserError(problem, key="dataset.path", value=str(file))
        return [Part(file, names[0])]
    for pattern in members:
        if not any(_matches(name, pattern) for name in names):
            raise UserError(f"no file in {file} matches; it holds {listed}", key="dataset.members", value=pattern)
    return [Part(file, name) for name in names if any(_matches(name, pattern) for pattern in members)]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _member_names(file: Path) -> list[str] | None:
    """The files in an archive. None if it is no archive, or a damaged one: reading it as text then reports the damage."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return [info.filename for info in archive.infolist() if not info.is_dir()]
        if tarfile.is_tarfile(file):
            with tarfile.open(file) as archive:
                return [info.name for info in archive.getmembers() if info.isfile()]
    except READ_ERRORS:
        pass
    return None
