"""Texts, plain or compressed, read in blocks of whole lines."""

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from vflbench.data.files import READ_ERRORS, Part
from vflbench.errors import UserError

MAX_LINE_BYTES = 1 << 20
BLOCK_BYTES = 12 << 20  # some 50,000 rows of Criteo


@dataclass(frozen=True)
class Block:
    """Consecutive whole lines of a part.

    first_line: number of the first of them. A line that is too long is truncated just after the limit.
    """

    part: Part
    first_line: int
    data: bytes


class HashingStream(io.RawIOBase):
    """A binary stream that computes the SHA-256 of everything read from it. Its first bytes can be read in advance."""

    def __init__(self, stream: IO[bytes]):
        self._stream, self._digest, self._head = stream, hashlib.sha256(), b""

    def peek(self, count: int) -> bytes:
        self._head += self._stream.read(count - len(self._head))
        return self._head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
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
        """SHA-256 of the whole stream. Reads it to the end."""
        while self.read(1 << 20):
            pass
        return self._digest.hexdigest()


@dataclass
class OpenPart:
    """A part that is being read.

    text: stream of decompressed bytes. raw: stream of the bytes as stored. position: current offset in the file.
    """

    part: Part
    text: Any
    raw: HashingStream
    position: Callable[[], int]


def open_parts(parts: Sequence[Part]) -> Iterator[OpenPart]:
    """Open the parts one after another. Each is closed when the next is requested."""
    waiting = list(parts)
    while waiting:
        file = waiting[0].file
        same = [part for part in waiting if part.file == file]
        waiting = [part for part in waiting if part.file != file]
        with file.open("rb") as stream:
            if same[0].member is None:
                yield _open(same[0], stream, stream.tell)
            elif zipfile.is_zipfile(file):
                with zipfile.ZipFile(stream) as archive:
                    for part in same:
                        with archive.open(str(part.member)) as member:
                            yield _open(part, member, stream.tell)
            else:
                by_name = {part.member: part for part in same}
                with tarfile.open(fileobj=stream, mode="r|*") as archive:
                    for info in archive:
                        if info.isfile() and info.name in by_name:
                            yield _open(by_name.pop(info.name), archive.extractfile(info), stream.tell)


def _open(part: Part, stream: Any, position: Callable[[], int]) -> OpenPart:
    raw: Any = HashingStream(stream)
    head = raw.peek(6)
    text = raw
    if head.startswith(b"\x1f\x8b"):  # the content decides, not the file's name
        text = gzip.GzipFile(fileobj=raw, mode="rb")
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        text = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    elif head.startswith(b"BZh"):
        text = bz2.BZ2File(raw)
    elif head.startswith(b"\xfd7zXZ\x00"):
        text = lzma.LZMAFile(raw)  # noqa: SIM115 (closed by read_blocks)
    return OpenPart(part, text, raw, position)


def read_blocks(opened: OpenPart, *, quotes: bool) -> Iterator[Block]:
    """Read a part in blocks that end at line ends. With `quotes`, line ends within double quotes don't count.

    Raises UserError if the file is truncated or damaged.
    """
    line, rest, skipping = 1, b"", False
    with closing(opened.text):
        while True:
            try:
                chunk = opened.text.read(BLOCK_BYTES)
            except READ_ERRORS as error:
                problem = f"the file breaks off after line {line + rest.count(10) - 1}: {_one_line(error)}"
                raise UserError(problem, key="dataset.path", value=str(opened.part)) from error
            if skipping:  # the rest of a line that is too long
                end = chunk.find(b"\n")
                if end < 0 and chunk:
                    continue
                rest, chunk, skipping = rest + chunk[end : end + 1], chunk[end + 1 :] if end >= 0 else b"", False
                if not rest.endswith(b"\n"):
                    rest += b"\n"
            data = rest + chunk
            cut = _last_line_end(data, quotes) if chunk else len(data)
            if cut:
                yield Block(opened.part, line, data[:cut])
                line += data.count(b"\n", 0, cut)
            rest = data[cut:]
            if not chunk and not rest:
                return
            if quotes and len(rest) > 2 * BLOCK_BYTES:
                problem = f"a quote opened after line {line} is not closed within {len(rest) >> 20} MB"
                raise UserError(problem, key="dataset.path", value=str(opened.part))
            if not quotes and len(rest) > MAX_LINE_BYTES:
                rest, skipping = rest[: MAX_LINE_BYTES + 1], True


def _last_line_end(data: bytes, quotes: bool) -> int:
    """Position after the last line end that is not within quotes; 0 if there is none."""
    end = data.rfind(b"\n")
    if not quotes or end < 0:
        return end + 1
    open_quotes = data.count(b'"', 0, end)
    while open_quotes % 2 and end >= 0:
        before = data.rfind(b"\n", 0, end)
        open_quotes -= data.count(b'"', max(before, 0), end)
        end = before
    return end + 1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
