"""Input files of a dataset: plain paths, patterns and members of archives."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from vflbench.data.archives import member_names, read_errors
from vflbench.data.opening import kind_of, open_regular, why_not_regular
from vflbench.errors import UserError, shown

_MOST_FILES = 100_000  # that a pattern may match


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
    exactly one file. Raises UserError if no file matches, and for anything but regular files and links to them; folders
    that match a pattern are left out.
    """
    files = [file for word in ([path] if isinstance(path, str) else path) for file in _files(word)]
    if not files:
        raise UserError("it names no file", key="dataset.path", value=path)
    parts = [part for file in files for part in _parts(file, members)]
    if len(set(parts)) < len(parts):
        repeated = next(part for part in parts if parts.count(part) > 1)
        problem = f"{shown(repeated, 200)} is named twice, so its rows would count double"
        raise UserError(problem, key="dataset.path", value=path)
    return parts


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names for an error message, each of a bounded length and at most so many."""
    some = [shown(name, 40) for name in islice(names, most + 1)]
    return ", ".join(some[:most]) + (", ..." if len(some) > most else "")


def _files(word: str) -> list[Path]:
    try:
        file = Path(os.path.expanduser(word))
    except RuntimeError as error:  # ~nobody
        raise UserError("there is no such user", key="dataset.path", value=word) from error
    kind = kind_of(file) if word.strip() else kind_of(word)
    if kind is None:
        return [file]
    if kind != "nothing" or not glob.has_magic(word):
        where = f" (looked in {shown(Path.cwd(), 200)})" if kind == "nothing" else ""
        raise UserError(f"{why_not_regular(file) if word.strip() else kind}{where}", key="dataset.path", value=word)
    try:
        names = list(islice(glob.iglob(str(file), recursive=True), _MOST_FILES + 1))
    except (re.error, ValueError, OSError) as error:
        raise UserError(f"this is no pattern of file names: {error}", key="dataset.path", value=word) from error
    if len(names) > _MOST_FILES:
        raise UserError(f"more than {_MOST_FILES:,} files match this pattern", key="dataset.path", value=word)
    kinds = {name: kind_of(name) for name in names}
    for name in sorted(kinds):
        if kinds[name] not in (None, "a folder"):
            raise UserError(f"{shown(name, 200)} matches: {why_not_regular(name)}", key="dataset.path", value=word)
    matches = [Path(name) for name, kind in kinds.items() if kind is None]
    if not matches:
        what = "only folders match" if names else "no file matches"
        raise UserError(f"{what} this pattern (looked in {shown(Path.cwd(), 200)})", key="dataset.path", value=word)
    return sorted(matches, key=_natural_order)


def _natural_order(file: Path) -> list[tuple[int, int, str]]:
    """Sort key that compares digits as numbers."""
    runs = [run for run in re.split(r"([0-9]+)", str(file)) if run]
    return [(0, len(run.lstrip("0")), run.lstrip("0")) if run[0] in "0123456789" else (1, 0, run) for run in runs]


def archived_parts(file: Path) -> list[Part] | None:
    """The files in an archive. None if it is no archive."""
    with open_regular(file) as stream:
        try:
            names = member_names(stream)
        except read_errors() as error:
            problem = f"the archive is damaged: {shown(str(error) or type(error).__name__, 200)}"
            raise UserError(problem, key="dataset.path", value=str(file)) from error
    return None if names is None else [Part(file, name) for name in names]


def _parts(file: Path, members: Sequence[str] | None) -> list[Part]:
    parts = archived_parts(file)
    if parts is None:
        if members:
            raise UserError(f"{shown(file, 200)} is not a .zip or .tar archive", key="dataset.members", value=list(members))
        return [Part(file)]
    names = [str(part.member) for part in parts]
    if "xl/workbook.xml" in names:
        problem = "it is an Excel workbook; export its sheet as CSV (in Excel: save as CSV UTF-8)"
        raise UserError(problem, key="dataset.path", value=str(file))
    if not members:
        if len(names) != 1:
            choices = listed(names) or "none"
            problem = f"the archive holds {len(names)} files; choose from them with dataset.members: {choices}"
            raise UserError(problem, key="dataset.path", value=str(file))
        return parts
    for pattern in members:
        if not any(_matches(name, pattern) for name in names):
            problem = f"no file in {shown(file, 200)} matches; it holds {listed(names) or 'none'}"
            raise UserError(problem, key="dataset.members", value=pattern)
    return [part for part in parts if any(_matches(str(part.member), pattern) for pattern in members)]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
