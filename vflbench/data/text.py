"""Delimited text: its layout, its lines and their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from vflbench.data.blocks import Block
from vflbench.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from vflbench.data.readings import Reading

T = TypeVar("T")


def unchanged(value: T) -> T:
    """The value as it is."""
    return value


@dataclass(frozen=True)
class TextFormat:
    """The layout of one kind of file.

    name: what error messages call the format.
    label: the column of labels; empty: there is none, as in the file of a party that is not the label party.
    columns: all names in order. Each is `label`, in `integers`, in `reals`, in `ignored`, or else categorical.
    header: whether the first line must hold these names. binary_label: labels are 0 and 1; otherwise any text.
    missing: the words that stand for a missing value. multiline: whether quoted values may hold line ends.
    quotes: whether values may be quoted; null: where there is a header. clean: leaves something out of each block.
    encoding: of the bytes. readings: columns of texts that stand for numbers, and how they are read; finish makes numbers of
    them. read_as: what a person may want to know of this. finish: derives the final columns from the parsed ones.
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
    quotes: bool | None = None
    encoding: str = "utf-8"
    readings: Mapping[str, Reading] = field(default_factory=dict, compare=False)
    read_as: Mapping[str, Any] = field(default_factory=dict, compare=False)
    clean: Callable[[Block], Block] = field(default=unchanged, compare=False)
    finish: Callable[[pa.Table], pa.Table] = field(default=unchanged, compare=False)

    @property
    def quoted(self) -> bool:
        """Whether values may be quoted."""
        return self.header if self.quotes is None else self.quotes

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if (c != self.label or not c) and c not in self.ignored)

    def arrow_type(self, column: str) -> pa.DataType:
        import pyarrow as pa

        if column in self.integers:
            return pa.int64()
        return pa.float64() if column in self.reals else pa.dictionary(pa.int32(), pa.string())


def first_names(block: Block, delimiter: str) -> tuple[tuple[str, ...], Block]:
    """The fields of the first line that is not empty, and the block after it; no fields if every line is empty.

    Raises UserError for a header that can't be split into fields.
    """
    start = len(block.data) - len(block.data.lstrip(b"\r\n"))
    end = block.data.find(b"\n", start) + 1 or len(block.data)
    line = block.data[start:end].removesuffix(b"\n").removesuffix(b"\r")
    number = block.first_line + block.data.count(b"\n", 0, start) + 1
    rest = Block(block.part, number, block.data[end:])
    if not line:
        return (), rest
    fields = fields_of(line, delimiter, quotes=True)
    if fields is None or b"\r" in line:
        what = "a misplaced quote" if b"\r" not in line else "a carriage return; lines end with a line feed"
        raise UserError(f"line {number - 1}: the header holds {what}", key="dataset.path", value=str(block.part))
    return tuple(field.decode("utf-8", "surrogateescape") for field in fields), rest


def numbered_lines(block: Block, delimiter: str, *, multiline: bool) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, content, content with a final carriage return) of each line that is not empty; with `multiline`, of each
    record. A record with a misplaced quote ends with its line.
    """
    data, number, place = block.data, block.first_line, 0
    record = record_pattern(delimiter) if multiline and b'"' in data else None
    for start in _starts(data):
        if start < place:
            continue  # within a record of several lines
        number += data.count(b"\n", place, start)
        match = record.match(data, start) if record else None
        end = match.end() if match else data.find(b"\n", start)
        raw = data[start : len(data) if end < 0 else end].removesuffix(b"\n")
        place = start + len(raw)
        yield number, raw.removesuffix(b"\r"), raw
        number += raw.count(b"\n")


def _starts(data: bytes) -> Iterator[int]:
    """Where each line that is not empty starts."""
    return (match.start() for match in re.finditer(rb"[^\n]+", data))


def complete_records(block: Block, delimiter: str, count: int) -> Iterator[bytes]:
    """The records of a block that are valid UTF-8 and have `count` fields."""
    for _, line, raw in numbered_lines(block, delimiter, multiline=True):
        with suppress(UnicodeDecodeError):
            raw.decode("utf-8")
            fields = fields_of(line, delimiter, quotes=True)
            if fields is not None and len(fields) == count:
                yield raw


def fields_of(line: bytes, delimiter: str, *, quotes: bool) -> list[bytes] | None:
    """The fields of one line. With `quotes`, a field may be quoted; None if a quote is misplaced."""
    if not (quotes and b'"' in line):
        return line.split(delimiter.encode())
    match = record_pattern(delimiter).match(line)
    if match is None or match.end() != len(line):
        return None
    fields, place, pattern = [], 0, re.compile(_FIELD % re.escape(delimiter.encode()))
    while place <= len(line):
        found = pattern.match(line, place)
        assert found is not None  # as the whole record matched
        fields.append(found[0][1:-1].replace(b'""', b'"') if found[0][:1] == b'"' else found[0])
        place = found.end() + 1
    return fields


_FIELD = rb'(?:"(?:[^"]++|"")*+"|[^"%s\r\n]*+)'


@cache
def record_pattern(delimiter: str) -> re.Pattern[bytes]:
    """A record whose quotes are where RFC 4180 has them, up to its line end or with it."""
    mark = re.escape(delimiter.encode())
    field = _FIELD % mark
    return re.compile(rb"%s(?:%s%s)*+(?:\r?\n|\r?\Z)" % (field, mark, field))


@cache
def records_pattern(delimiter: str) -> re.Pattern[bytes]:
    """Nothing but such records."""
    return re.compile(rb"(?:%s)*+" % record_pattern(delimiter).pattern)
