"""Input files of a dataset: plain paths, patterns and members of archives. Nothing is unpacked to disk."""

import bz2
import glob
import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, BinaryIO

from tqdm.utils import CallbackIOWrapper

from vflbench.errors import UserError, shown
from vflbench.files import in_a_line

KEY = "dataset.path"
NOTHING, FOLDER = "there is no such file", "this is a folder; name the file in it, or a pattern such as 'day_*'"


@dataclass(frozen=True)
class Part:
    """One text: a file, or a member of an archive."""

    file: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.file) if self.member is None else f"{self.file}::{self.member}"

    def error(self, problem: str) -> UserError:
        """The error that names this part."""
        return UserError(problem, key=KEY, value=str(self))


def find_parts(path: str | Sequence[str], members: Sequence[str] | None = None) -> list[Part]:
    """The texts that `dataset.path` names: a file, a pattern, or several of them.

    Files that match a pattern come in natural order (day_2 before day_10). From a .zip or .tar archive (also .tar.gz and
    the like) come the members that match `members`, in the archive's order. Without `members`, the archive must hold
    exactly one file. Raises UserError if no file matches, and for anything but regular files and links to them; folders
    that match a pattern are left out.
    """
    parts = [part for word in ([path] if isinstance(path, str) else path) for part in _parts_of(word, members)]
    if not parts:
        raise UserError("it names no file", key=KEY, value=path)
    if len(set(parts)) < len(parts):
        repeated = next(part for part in parts if parts.count(part) > 1)
        raise UserError(f"{shown(repeated, 200)} is named twice, so its rows would count double", key=KEY, value=path)
    return parts


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names for an error message, each of a bounded length and at most so many."""
    some = [shown(name, 40) for name in islice(names, most + 1)]
    return ", ".join(some[:most]) + (", ..." if len(some) > most else "")


def open_regular(path: str | Path, key: str = KEY) -> BinaryIO:
    """A regular file, or a link to one, for reading. Raises UserError with this key for anything else."""
    problem = refusal(path)
    if problem:
        raise UserError(problem, key=key, value=str(path))
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(f"it can't be read: {error.strerror}", key=key, value=str(path)) from error


def refusal(path: str | Path) -> str | None:
    """Why this is no regular file that can be read, nor a link to one: NOTHING, FOLDER or other words; None if it is."""
    if not str(path).strip():
        return "it is empty and names no file"
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "it is a link to a file that is not there" if os.path.islink(path) else NOTHING
    except (OSError, ValueError) as error:
        return f"it can't be read: {in_a_line(error)}"
    if stat.S_ISDIR(mode):
        return FOLDER
    return None if stat.S_ISREG(mode) else "it is a named pipe, a socket or a device; only regular files are read"


def check_folder(path: str | Path, key: str = KEY) -> None:
    """Raise UserError with this key if this is not a folder that can be listed."""
    problem = refusal(path)
    if problem != FOLDER:
        others = {None: "it is a file; a folder is expected", NOTHING: "there is no such folder"}
        raise UserError(others.get(problem, str(problem)), key=key, value=str(path))
    try:
        os.scandir(path).close()
    except OSError as error:
        raise UserError(f"the folder can't be read: {error.strerror}", key=key, value=str(path)) from error


@contextmanager
def damaged(part: object) -> Iterator[None]:
    """Whatever a damaged file or archive raises while it is read becomes a UserError that names it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of zlib, lzma, tarfile, zipfile, pyarrow, ...
        raise UserError(f"it can't be read: {in_a_line(error, 300)}", key=KEY, value=str(part)) from error


def open_parts(parts: Sequence[Part], count: Callable[[int], object] = int) -> Iterator[tuple[Part, Any]]:
    """Each part and its decompressed bytes; it is closed when the next is requested. count: is told how many stored bytes
    were read.
    """
    for file, same in groupby(parts, lambda part: part.file):
        part_of = {part.member: part for part in same}
        with open_regular(file) as stream, damaged(next(iter(part_of.values()))):
            for member, content in _contents(stream, list(part_of)):
                yield part_of[member], _decompressed(content, count)


def read_whole(parts: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
    """All of each part; members of one archive in its order, as it is read once."""
    for part, text in open_parts(parts):
        with damaged(part):
            yield part, text.read()


def _decompressed(content: Any, count: Callable[[int], object]) -> Any:
    head, stream = content.peek(6)[:6], CallbackIOWrapper(count, content, "read")
    if head.startswith(b"\x1f\x8b"):  # the content decides, not the file's name
        return gzip.GzipFile(fileobj=stream)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
    return bz2.BZ2File(stream) if head[:3] == b"BZh" else lzma.LZMAFile(stream) if head == b"\xfd7zXZ\x00" else stream


def archived_parts(file: Path) -> list[Part] | None:
    """The files in an archive. None if it is no archive."""
    with open_regular(file) as stream, damaged(file):
        if zipfile.is_zipfile(stream):
            infos = zipfile.ZipFile(stream).infolist()
            return [Part(file, one.filename) for one in infos if not one.is_dir()]
        stream.seek(0)
        try:
            tar = tarfile.open(fileobj=stream, mode="r:*")  # noqa: SIM115 (closed below)
        except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            return None
        with tar:
            members = tar.getmembers()
    return [Part(file, one.name) for one in members if one.isreg()] if members else None  # zeros alone hold none


def _contents(stream: BinaryIO, names: Sequence[str | None]) -> Iterator[tuple[str | None, IO[bytes]]]:
    """Name and content of these members, or of the file itself. Those of a .tar come in the archive's order."""
    if names == [None]:
        yield None, stream
    elif zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            for name in names:
                with archive.open(str(name)) as content:
                    yield name, content
    else:
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r|*") as tar:
            for info in tar:
                member = tar.extractfile(info) if info.isreg() and info.name in names else None
                if member is not None:
                    yield info.name, member


def _parts_of(word: str, members: Sequence[str] | None) -> list[Part]:
    """Of one path or pattern."""
    file = os.path.expanduser(word)
    problem, files = refusal(file), [Path(file)]
    if problem == NOTHING and glob.has_magic(word):
        problems = {name: refusal(name) for name in sorted(glob.iglob(file, recursive=True))}
        odd = next((name for name, problem in problems.items() if problem not in (None, FOLDER)), None)
        if odd is not None:
            raise UserError(f"{shown(odd, 200)} matches: {problems[odd]}", key=KEY, value=word)
        files = sorted((Path(name) for name in problems if problems[name] is None), key=_natural_order)
        what = "only folders match" if problems else "no file matches"
        problem = None if files else f"{what} this pattern (looked in {shown(Path.cwd(), 200)})"
    elif problem == NOTHING:
        problem += f" (looked in {shown(Path.cwd(), 200)})"
    if problem:
        raise UserError(problem, key=KEY, value=word)
    return [part for file in files for part in _members(file, members)]


def _natural_order(file: Path) -> list[tuple[int, int, str]]:
    """Sort key that compares digits as numbers."""
    return [(0, int(run), "") if run[0] in "0123456789" else (1, 0, run) for run in re.findall("[0-9]+|[^0-9]+", str(file))]


def _members(file: Path, patterns: Sequence[str] | None) -> list[Part]:
    """The file itself, or those of its members that a pattern matches."""
    parts = archived_parts(file)
    if parts is None:
        if patterns:
            problem = f"{shown(file, 200)} is not a .zip or .tar archive"
            raise UserError(problem, key="dataset.members", value=list(patterns))
        return [Part(file)]
    names = [str(part.member) for part in parts]
    if "xl/workbook.xml" in names:
        raise Part(file).error("it is an Excel workbook; export its sheet as CSV (in Excel: save as CSV UTF-8)")
    if not patterns:
        if len(names) != 1:
            choices = listed(names) or "none"
            problem = f"the archive holds {len(names)} files; choose from them with dataset.members: {choices}"
            raise Part(file).error(problem)
        return parts
    chosen = {pattern: [name for name in names if name == pattern or fnmatchcase(name, pattern)] for pattern in patterns}
    for pattern, matches in chosen.items():
        if not matches:
            problem = f"no file in {shown(file, 200)} matches; it holds {listed(names) or 'none'}"
            raise UserError(problem, key="dataset.members", value=pattern)
    return [part for part in parts if any(part.member in matches for matches in chosen.values())]
