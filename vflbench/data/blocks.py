"""Texts, plain or compressed, read in blocks of whole lines."""

import bz2
import gzip
import hashlib
import io
import lzma
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from vflbench.data.archives import open_members, read_errors
from vflbench.data.encodings import UTF8, as_utf8, without_mark
from vflbench.data.files import Part
from vflbench.data.opening import open_regular
from vflbench.errors import UserError, shown

MAX_LINE_BYTES = 1 << 20
_NO_LINE_BYTES = 64 << 20  # what is longer is no line of text, and isn't read to its end
_PIECE_BYTES = 1 << 16
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
        self._head += self._from_stream(count - len(self._head))
        return self._head

    def _from_stream(self, size: int) -> bytes:
        data: bytes | None = self._stream.read(size)
        if data is None:  # of a file that pretends to be regular and would wait
            raise OSError("it gives no data")
        return data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            data, self._head = self._head + self._from_stream(size), b""
        elif self._head:
            data, self._head = self._head[:size], self._head[size:]
        else:
            data = self._from_stream(size)
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

    def sha256(self) -> str:
        """Digest of the whole part as stored, which is read to its end."""
        try:
            return self.raw.hexdigest()
        except read_errors() as error:
            problem = f"it can't be read: {_one_line(error)}"
            raise UserError(problem, key="dataset.path", value=str(self.part)) from error


def open_parts(parts: Sequence[Part]) -> Iterator[OpenPart]:
    """Open the parts one after another. Each is closed when the next is requested.

    Raises UserError for a damaged archive.
    """
    waiting = list(parts)
    while waiting:
        file = waiting[0].file
        same = {str(part.member): part for part in waiting if part.file == file}
        first, waiting = waiting[0], [part for part in waiting if part.file != file]
        with open_regular(file) as stream:
            try:
                if first.member is None:
                    yield _open(first, stream, stream.tell)
                    continue
                for name, content in open_members(stream, list(same)):
                    yield _open(same[name], content, stream.tell)
            except read_errors() as error:
                if isinstance(error, UserError):
                    raise
                problem = f"it can't be read: {_one_line(error)}"
                raise UserError(problem, key="dataset.path", value=str(first)) from error


def _open(part: Part, stream: Any, position: Callable[[], int]) -> OpenPart:
    raw: Any = HashingStream(stream)
    head = raw.peek(6)
    text = raw
    if head.startswith(b"\x1f\x8b"):  # the content decides, not the file's name
        text = gzip.GzipFile(fileobj=raw, mode="rb")
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa

        text = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    elif head.startswith(b"BZh"):
        text = bz2.BZ2File(raw)
    elif head.startswith(b"\xfd7zXZ\x00"):
        text = lzma.LZMAFile(raw)  # noqa: SIM115 (closed by read_blocks)
    return OpenPart(part, text, raw, position)


def read_whole(parts: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
    """All of each part; members of one archive in its order, as it is read once."""
    for opened in open_parts(parts):
        try:
            yield opened.part, opened.text.read()
        except read_errors() as error:
            raise UserError(f"it breaks off: {_one_line(error)}", key="dataset.path", value=str(opened.part)) from error


def read_blocks(opened: OpenPart, *, quotes: bool, encoding: str = UTF8) -> Iterator[Block]:
    """Read a part in blocks that end at line ends. With `quotes`, line ends within double quotes don't count.

    The blocks are in UTF-8, whatever the encoding of the part, and a byte-order mark at the start is left out. Raises
    UserError if the file is truncated or damaged, is no such text by its first bytes, or expands without end.
    """
    line, rest, skipped, size = 1, b"", 0, 0
    with closing(as_utf8(opened.text, encoding)) as text:
        while True:
            try:
                chunk = text.read(BLOCK_BYTES)
                if not size and len(chunk) < BLOCK_BYTES:  # what was read in advance comes by itself
                    chunk += text.read(BLOCK_BYTES - len(chunk))
            except read_errors() as error:
                problem = f"the file breaks off after line {line + rest.count(10) - 1}: {_one_line(error)}"
                raise UserError(problem, key="dataset.path", value=str(opened.part)) from error
            if not size:
                chunk = without_mark(chunk, opened.part)
            size += len(chunk)
            if skipped:  # the rest of a line that is too long
                end = chunk.find(b"\n")
                if end < 0 and chunk:
                    skipped += len(chunk)
                    if skipped > _NO_LINE_BYTES:
                        problem = f"line {line + rest.count(10)} goes on for more than {skipped >> 20} MB; it is no text"
                        raise UserError(problem, key="dataset.path", value=str(opened.part))
                    continue
                rest, chunk, skipped = rest + chunk[end : end + 1], chunk[end + 1 :] if end >= 0 else b"", 0
                if not rest.endswith(b"\n"):
                    rest += b"\n"
            data, rest = _whole_lines(rest, chunk, quotes)
            if data:
                yield Block(opened.part, line, data)
                line += line_ends(data)
            if not chunk and not rest:
                return
            if quotes and len(rest) > 2 * BLOCK_BYTES:
                what = f"a quote opened after line {line} is not closed" if b'"' in rest else f"line {line} doesn't end"
                problem = f"{what} within {len(rest) >> 20} MB"
                raise UserError(problem, key="dataset.path", value=str(opened.part))
            if not quotes and len(rest) > MAX_LINE_BYTES:
                rest, skipped = rest[: MAX_LINE_BYTES + 1], 1


def line_ends(data: bytes) -> int:
    """How many line ends there are; twice as quick as `bytes.count`."""
    signs = np.frombuffer(data, np.uint8)
    pieces = (signs[start : start + _PIECE_BYTES] for start in range(0, len(signs), _PIECE_BYTES))
    return sum(int(np.count_nonzero(piece == ord("\n"))) for piece in pieces)


def _whole_lines(rest: bytes, chunk: bytes, quotes: bool) -> tuple[bytes, bytes]:
    """The whole lines of a text that was read up to the end of `chunk`, and what is left; all of it, if that is empty."""
    end = chunk.rfind(b"\n") + 1
    if chunk and end and not quotes:
        return b"".join((rest, memoryview(chunk)[:end])), chunk[end:]  # copied once
    data = rest + chunk
    cut = _last_line_end(data, quotes) if chunk else len(data)
    return data[:cut], data[cut:]


def _last_line_end(data: bytes, quotes: bool) -> int:
    """Position after the last line end that is not within quotes; 0 if there is none."""
    end = data.rfind(b"\n")
    if not quotes or end < 0:
        return end + 1
    if data.count(b'"', 0, end) % 2 == 0:
        return end + 1
    signs = np.frombuffer(data, np.uint8, end + 1)
    inside = np.bitwise_xor.accumulate((signs == ord('"')).view(np.uint8))
    ends = np.flatnonzero((signs == ord("\n")) & (inside == 0))
    return int(ends[-1]) + 1 if len(ends) else 0


def _one_line(error: BaseException) -> str:
    return shown(" ".join(str(error).split()) or type(error).__name__, 200)
