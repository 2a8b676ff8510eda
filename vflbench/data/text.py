"""Delimited text: its layout, its lines and their fields."""

import codecs
import csv
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from vflbench.data.blocks import Block


@dataclass(frozen=True)
class TextFormat:
    """The layout of one kind of file.

    name: what error messages call the format.
    columns: all names in order. Each is `label`, in `integers`, in `reals`, in `ignored`, or else categorical.
    header: whether the first line must hold these names. binary_label: labels are 0 and 1; otherwise any text.
    missing: the words that stand for a missing value. multiline: whether quoted values may hold line ends.
    finish: derives the final columns from the parsed ones.
    """

    name: str
    columns: tuple[str, ...]
    label: str
    delimiter: str
    header: bool
    integers: frozenset[str] = frozenset()
    reals: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    binary_label: bool = True
    missing: tuple[str, ...] = ("",)
    multiline: bool = False
    finish: Callable[[pa.Table], pa.Table] = field(default=lambda table: table, compare=False)

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c != self.label and c not in self.ignored)

    def arrow_type(self, column: str) -> pa.DataType:
        if column in self.integers:
            return pa.int64()
        return pa.float64() if column in self.reals else pa.dictionary(pa.int32(), pa.string())


def without_byte_order_mark(block: Block) -> Block:
    """The first block of a part without its byte-order mark."""
    return Block(block.part, block.first_line, block.data.removeprefix(codecs.BOM_UTF8))


def first_names(block: Block, delimiter: str) -> tuple[tuple[str, ...], Block]:
    """The fields of the first line that is not empty, and the block after it; no fields if every line is empty."""
    for number, line, _ in numbered_lines(block, multiline=False):
        if line:
            names = tuple(f.decode("utf-8", "replace") for f in fields_of(line, delimiter, quotes=True))
            end = _end_of_line(block.data, number - block.first_line)
            return names, Block(block.part, number + 1, block.data[end:])
    return (), Block(block.part, block.first_line, b"")


def numbered_lines(block: Block, *, multiline: bool) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, content, content with a final carriage return) of each line; with `multiline`, of each record."""
    if not (multiline and b'"' in block.data):
        for number, raw in enumerate(block.data.split(b"\n"), block.first_line):
            yield number, raw.removesuffix(b"\r"), raw
        return
    text = block.data.decode("utf-8", "surrogateescape")
    lines = io.StringIO(text, newline="").readlines()
    start = 0
    while start < len(lines):
        stop, quotes = start + 1, lines[start].count('"')
        while quotes % 2 and stop < len(lines):
            quotes += lines[stop].count('"')
            stop += 1
        raw = "".join(lines[start:stop]).encode("utf-8", "surrogateescape").removesuffix(b"\n")
        yield block.first_line + start, raw.removesuffix(b"\r"), raw
        start = stop


def complete_records(block: Block, delimiter: str, count: int) -> Iterator[bytes]:
    """The records of a block that are valid UTF-8 and have `count` fields."""
    for _, line, raw in numbered_lines(block, multiline=True):
        with suppress(UnicodeDecodeError):
            raw.decode("utf-8")
            if line.count(b'"') % 2 == 0 and len(fields_of(line, delimiter, quotes=True)) == count:
                yield raw


def fields_of(line: bytes, delimiter: str, *, quotes: bool) -> list[bytes]:
    """The fields of one line. With `quotes`, a field may be quoted."""
    if not (quotes and b'"' in line):
        return line.split(delimiter.encode())
    text = io.StringIO(line.decode("utf-8", "surrogateescape"), newline="")
    quoted = next(csv.reader(text, delimiter=delimiter))
    return [f.encode("utf-8", "surrogateescape") for f in quoted]


def _end_of_line(data: bytes, number: int) -> int:
    """Where line `number`, counted from 0, ends."""
    end = 0
    for _ in range(number + 1):
        end = data.find(b"\n", end) + 1 or len(data)
    return end
