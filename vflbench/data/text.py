"""Delimited text -> typed columns, through pyarrow; where that fails, the very lines, columns and values that are wrong."""

import codecs
import csv as stdlib_csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from vflbench.data.files import MAX_LINE_BYTES, Block
from vflbench.errors import UserError

_SHOWN = 60  # bytes of a wrong value


@dataclass(frozen=True)
class TextFormat:
    """How one kind of file is laid out.

    name: what the format is called in an error, with its field count. columns: all names in order; each is `label`, in
    `integers`, in `reals`, in `ignored`, or else categorical. header: whether the first line must hold these names.
    binary_label: labels are 0 and 1; otherwise any text. missing: the words that stand for a missing value.
    multiline: quoted values may hold line ends. finish: makes other columns of the parsed ones.
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


@dataclass(frozen=True)
class BadRow:
    """A line that can't be read, and why."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


@dataclass(frozen=True)
class Parsed:
    """One block. table: the label (a dictionary column) and the features; bad: lines that were left out of it."""

    table: pa.Table
    bad: tuple[BadRow, ...] = ()


def header_of(block: Block, form: TextFormat) -> tuple[tuple[str, ...], Block]:
    """The names in a part's first line, and the block without it. Raises UserError if it is not the format's header."""
    names, rest = first_names(block, form.delimiter)
    problem = names and _wrong_header(names, form)
    if problem:
        raise UserError(f"line {rest.first_line - 1}: {problem}", key="dataset.path", value=str(block.part))
    return names, rest


def first_names(block: Block, delimiter: str) -> tuple[tuple[str, ...], Block]:
    """The fields of the first line that is not empty, and what follows it; no fields if there is no such line."""
    for number, line, _ in _lines(block, multiline=False):
        if line:
            names = tuple(f.decode("utf-8", "replace") for f in _fields(line, delimiter, quotes=True))
            end = _end_of_line(block.data, number - block.first_line)
            return names, Block(block.part, number + 1, block.data[end:])
    return (), Block(block.part, block.first_line, b"")


def _end_of_line(data: bytes, number: int) -> int:
    """Where line `number`, counted from 0, ends."""
    end = 0
    for _ in range(number + 1):
        end = data.find(b"\n", end) + 1 or len(data)
    return end


def without_mark(block: Block) -> Block:
    """A part's first block without its byte-order mark."""
    return Block(block.part, block.first_line, block.data.removeprefix(codecs.BOM_UTF8))


def parse(block: Block, form: TextFormat, names: Sequence[str], limit: int | None = None) -> Parsed:
    """The rows of a block, the first `limit` at most; what follows them is not looked at.

    names: the columns in the part's order. A missing integer or real is null, a missing category the empty string. Fast
    where pyarrow and a few looks at the bytes agree that all is well, line by line where not.
    """
    try:
        table = _arrow(block.data, form, names)
        if _looks_right(table, block.data, form):
            return Parsed(form.finish(table.slice(0, limit)))
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
    else:
        reason = "pyarrow and the line count disagree"
    good, bad, rows = [], [], 0
    for number, line, raw in _lines(block, multiline=form.multiline):
        if limit is not None and rows >= limit:
            break
        if not line:
            continue  # pyarrow skips empty lines as well
        problem = _wrong_line(line, form, names)
        if problem:
            bad.append(BadRow(number, problem))
        else:
            good.append(raw)
            rows += 1
    try:
        table = _arrow(b"\n".join(good), form, names)
        if len(table) == len(good):
            return Parsed(form.finish(table), tuple(bad))
        reason = f"{len(good)} rows were read as {len(table)}"
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
    problem = f"lines {block.first_line} and following can't be read: {reason}"
    raise UserError(problem, key="dataset.path", value=str(block.part))


def _arrow(data: bytes, form: TextFormat, names: Sequence[str]) -> pa.Table:
    wanted = [form.label, *form.features]
    if not data.strip(b"\r\n"):
        return pa.schema([(name, form.arrow_type(name)) for name in wanted]).empty_table()
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=list(names), block_size=len(data) + 1, use_threads=False),
        parse_options=csv.ParseOptions(
            delimiter=form.delimiter, quote_char='"' if form.header else False, newlines_in_values=form.multiline
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: form.arrow_type(name) for name in wanted},
            null_values=list(form.missing),
            strings_can_be_null=form.missing != ("",),
            include_columns=wanted,
        ),
    )
    return table.combine_chunks()


def _looks_right(table: pa.Table, data: bytes, form: TextFormat) -> bool:
    """Whether nothing is there that pyarrow reads more generously than we do."""
    odd = [
        b"\0",
        *([b" ", b"x", b"X", b"+"] if form.integers else []),
        *([] if form.multiline or not form.header else [b'"']),
    ]
    if any(mark in data for mark in odd) or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
        return False
    half = MAX_LINE_BYTES // 2
    if any(data.find(b"\n", start, start + half) < 0 for start in range(0, len(data) - half + 1, half)):
        return False  # a line that may be too long
    if not form.multiline and len(table) != data.count(b"\n") + (not data.endswith(b"\n")):
        count = sum(1 for line in data.split(b"\n") if line.rstrip(b"\r"))  # there are empty lines
        if len(table) != count:
            return False
    labels = table.column(form.label)
    if labels.null_count:
        return False
    if form.binary_label and not set(_dictionary(labels).to_pylist()) <= {"0", "1"}:
        return False
    return not any(pc.any(pc.is_inf(table.column(name))).as_py() for name in form.reals if name in table.column_names)


def _dictionary(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0).dictionary if column.num_chunks else pa.array([], pa.string())


def _lines(block: Block, *, multiline: bool) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, content, content as it stands) line by line; with `multiline`, record by record."""
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


def complete_lines(block: Block, delimiter: str, count: int) -> Iterator[bytes]:
    """The records of a block with so many fields, in UTF-8."""
    for _, line, raw in _lines(block, multiline=True):
        with suppress(UnicodeDecodeError):
            raw.decode("utf-8")
            if line.count(b'"') % 2 == 0 and len(_fields(line, delimiter, quotes=True)) == count:
                yield raw


def _wrong_header(names: Sequence[str], form: TextFormat) -> str | None:
    missing = [name for name in form.columns if name not in names]
    if missing == [form.label]:
        return f"the header has no column {form.label}: these rows carry no label, and training needs one"
    if missing:
        return f"the header must name the {len(form.columns)} columns of {form.name}; missing: {', '.join(missing)}"
    surplus = list((Counter(names) - Counter(form.columns)).elements())
    return f"the header names columns that {form.name} does not have: {', '.join(surplus)}" if surplus else None


def _fields(line: bytes, delimiter: str, *, quotes: bool) -> list[bytes]:
    """Fields of one line; quoted ones where the format has quotes."""
    if not (quotes and b'"' in line):
        return line.split(delimiter.encode())
    text = io.StringIO(line.decode("utf-8", "surrogateescape"), newline="")
    quoted = next(stdlib_csv.reader(text, delimiter=delimiter))
    return [f.encode("utf-8", "surrogateescape") for f in quoted]


def _wrong_line(line: bytes, form: TextFormat, names: Sequence[str]) -> str | None:
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES:,} bytes"
    if form.header and line.count(b'"') % 2:
        return "a quote is opened and not closed"
    fields = _fields(line, form.delimiter, quotes=form.header)
    if len(fields) == len(names) - 1 and not form.header:
        return (
            f"{len(fields)} fields where {form.name} has {len(names)}: "
            f"a row without its {form.label}? Unlabelled rows can't be trained on or scored"
        )
    if len(fields) != len(names):
        return f"{len(fields)} fields where {form.name} has {len(names)}"
    return next(filter(None, map(_wrong_field, names, fields, [form] * len(fields))), None)


def _wrong_field(column: str, value: bytes, form: TextFormat) -> str | None:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"column {column}: {_shown(value)} is not valid UTF-8"
    if "\0" in text:
        return f"column {column}: {_shown(value)} holds a NUL byte"
    if "\r" in text and not form.multiline:
        return f"column {column}: {_shown(value)} holds a carriage return"
    if column == form.label:
        if form.binary_label and text not in ("0", "1"):
            return f"column {column}: the label is {_shown(value)}; it must be 0 or 1"
        return f"column {column}: the row has no label" if text in form.missing else None
    if column in form.integers and text not in form.missing and not _is_integer(text):
        return f"column {column}: {_shown(value)} is not an integer"
    if column in form.reals and text not in form.missing and not _is_real(text):
        return f"column {column} is numeric, and {_shown(value)} is not a finite number"
    return None


def _is_integer(text: str) -> bool:
    found = re.fullmatch(r"(-?)0*([0-9]{1,19})", text)
    return found is not None and -(2**63) <= int(found[1] + found[2]) < 2**63


def _is_real(text: str) -> bool:
    try:
        return "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _shown(value: bytes) -> str:
    return repr(value[:_SHOWN].decode("utf-8", "backslashreplace")) + ("..." if len(value) > _SHOWN else "")
