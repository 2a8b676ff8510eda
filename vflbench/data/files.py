"""Where rows come from: files, patterns and archives, plain or compressed, cut into blocks of whole lines."""

import bz2
import glob
import gzip
import hashlib
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from vflbench.errors import UserError

MAX_LINE_BYTES = 1 << 20
BLOCK_BYTES = 12 << 20  # some 50,000 rows of Criteo

_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True)
class Part:
    """One text: a file, or a member of an archive."""

    file: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.file) if self.member is None else f"{self.file}::{self.member}"


@dataclass(frozen=True)
class Block:
    """Some whole lines of a part. first_line: the number of the first one. A line too long is cut off after its limit."""

    part: Part
    first_line: int
    data: bytes


def find_parts(path: str | Sequence[str], members: Sequence[str] | None = None) -> list[Part]:
    """The texts of `dataset.path`: one file, a pattern (its matches in natural order: day_2 before day_10), or several.

    A .zip or .tar archive (also .tar.gz and the like) gives those of its members that `members` names, patterns allowed, in
    the archive's order; without `members` it must hold exactly one file. Raises UserError if there is nothing there.
    """
    files = [file for word in ([path] if isinstance(path, str) else path) for file in _files(word)]
    if not files:
        raise UserError("it names no file", key="dataset.path", value=path)
    parts = [part for file in files for part in _parts(file, members)]
    twice = {str(part) for part in parts if parts.count(part) > 1}
    if twice:
        raise UserError(f"{min(twice)} is named twice: its rows would count double", key="dataset.path", value=path)
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
    found = [Path(name) for name in glob.glob(str(file), recursive=True) if Path(name).is_file()]
    if not found:
        raise UserError(f"no file matches this pattern (looked in {Path.cwd()})", key="dataset.path", value=word)
    return sorted(found, key=_natural)


def _natural(file: Path) -> list[tuple[int, int | str]]:
    """Digits compare as numbers."""
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
            problem = f"the archive holds {len(names)} files; name those to read in dataset.members: {listed or 'none'}"
            raise UserError(problem, key="dataset.path", value=str(file))
        return [Part(file, names[0])]
    for pattern in members:
        if not any(_matches(name, pattern) for name in names):
            raise UserError(f"no file in {file} matches; it holds {listed}", key="dataset.members", value=pattern)
    return [Part(file, name) for name in names if any(_matches(name, pattern) for pattern in members)]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _member_names(file: Path) -> list[str] | None:
    """None if it is no archive, or none that can be read: reading it as a text will tell."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return [info.filename for info in archive.infolist() if not info.is_dir()]
        if tarfile.is_tarfile(file):
            with tarfile.open(file) as archive:
                return [info.name for info in archive.getmembers() if info.isfile()]
    except _BROKEN:
        pass
    return None


class Hashed(io.RawIOBase):
    """A stream that hashes what is read of it, and can look at its first bytes."""

    def __init__(self, stream: BinaryIO):
        self._stream, self._digest, self._head = stream, hashlib.sha256(), b""

    def peek(self, count: int) -> bytes:
        self._head += self._stream.read(count - len(self._head))
        return self._head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if self._head:
            data, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        else:
            data = self._stream.read(size)
        self._digest.update(data)
        return data

    def hexdigest(self) -> str:
        """SHA-256 of everything, after reading what is left."""
        while self.read(1 << 20):
            pass
        return self._digest.hexdigest()


@dataclass
class Opened:
    """A part while it is read. text: its decompressed bytes; raw: the bytes as they are stored; position: in the file."""

    part: Part
    text: BinaryIO
    raw: Hashed
    position: Callable[[], int]


def open_parts(parts: Sequence[Part]) -> Iterator[Opened]:
    """Each part in turn; it is closed when the next is asked for."""
    waiting = list(parts)
    while waiting:
        file = waiting[0].file
        same = [part for part in waiting if part.file == file]
        waiting = [part for part in waiting if part.file != file]
        with file.open("rb") as stream:
            if same[0].member is None:
                yield _opened(same[0], stream, stream.tell)
            elif zipfile.is_zipfile(file):
                with zipfile.ZipFile(stream) as archive:
                    for part in same:
                        with archive.open(part.member) as member:
                            yield _opened(part, member, stream.tell)
            else:
                by_name = {part.member: part for part in same}
                with tarfile.open(fileobj=stream, mode="r|*") as archive:
                    for info in archive:
                        if info.isfile() and info.name in by_name:
                            yield _opened(by_name.pop(info.name), archive.extractfile(info), stream.tell)


def _opened(part: Part, stream: BinaryIO, position: Callable[[], int]) -> Opened:
    raw = Hashed(stream)
    head = raw.peek(6)
    text: BinaryIO = raw
    if head.startswith(b"\x1f\x8b"):  # by content, not by name
        text = gzip.GzipFile(fileobj=raw, mode="rb")
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        text = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    elif head.startswith(b"BZh"):
        text = bz2.BZ2File(raw)
    elif head.startswith(b"\xfd7zXZ\x00"):
        text = lzma.open(raw)  # noqa: SIM115 (closed by read_blocks)
    return Opened(part, text, raw, position)


def read_blocks(opened: Opened, *, quotes: bool) -> Iterator[Block]:
    """The part's lines, cut at line ends; with `quotes`, not at those inside of double quotes.

    Raises UserError where the file breaks off.
    """
    line, rest, skipping = 1, b"", False
    with closing(opened.text):
        while True:
            try:
                chunk = opened.text.read(BLOCK_BYTES)
            except _BROKEN as error:
                problem = f"the file breaks off after line {line + rest.count(10) - 1}: {_reason(error)}"
                raise UserError(problem, key="dataset.path", value=str(opened.part)) from error
            if skipping:  # the end of a line that is too long already
                end = chunk.find(b"\n")
                if end < 0 and chunk:
                    continue
                rest, chunk, skipping = rest + chunk[end : end + 1], chunk[end + 1 :] if end >= 0 else b"", False
                if not rest.endswith(b"\n"):
                    rest += b"\n"
            data = rest + chunk
            cut = _cut(data, quotes) if chunk else len(data)
            if cut:
                yield Block(opened.part, line, data[:cut])
                line += data.count(b"\n", 0, cut)
            rest = data[cut:]
            if not chunk and not rest:
                return
            if quotes and len(rest) > 2 * BLOCK_BYTES:
                problem = f"a quote opened after line {line} is not closed in {len(rest) >> 20} MB"
                raise UserError(problem, key="dataset.path", value=str(opened.part))
            if not quotes and len(rest) > MAX_LINE_BYTES:
                rest, skipping = rest[: MAX_LINE_BYTES + 1], True


def _cut(data: bytes, quotes: bool) -> int:
    """Just behind the last line end that is not inside of quotes; 0 if there is none."""
    end = data.rfind(b"\n")
    if not quotes or end < 0:
        return end + 1
    open_quotes = data.count(b'"', 0, end)
    while open_quotes % 2 and end >= 0:
        before = data.rfind(b"\n", 0, end)
        open_quotes -= data.count(b'"', max(before, 0), end)
        end = before
    return end + 1


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
