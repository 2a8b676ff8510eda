"""Blocks of text -> typed columns.

pyarrow parses a block at once. Where it fails, or might accept more than the format allows, each line is checked by itself.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from vflbench.data.blocks import MAX_LINE_BYTES, Block
from vflbench.data.labels import label_problem
from vflbench.data.line_errors import header_error, line_error
from vflbench.data.text import TextFormat, first_names, numbered_lines, records_pattern
from vflbench.errors import UserError, shown


@dataclass(frozen=True)
class BadRow:
    """A line that does not fit the format, and the reason."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


@dataclass(frozen=True)
class Parsed:
    """One parsed block. table: the label, as a dictionary column, and the features. bad: lines that the table omits."""

    table: pa.Table
    bad: tuple[BadRow, ...] = ()


def with_columns(blocks: Iterable[Block], form: TextFormat) -> Iterator[tuple[Sequence[str], Block]]:
    """The blocks of a part that hold rows, each with the names of the columns; the header, if there is one, is read."""
    columns: Sequence[str] = form.columns
    first = True
    for block in blocks:
        if first:
            if form.header:
                columns, block = read_header(block, form)
            first = not columns
            if first or not block.data:
                continue
        yield columns, block


def read_header(block: Block, form: TextFormat) -> tuple[tuple[str, ...], Block]:
    """The names in the first line of a part, and the block after it. Raises UserError if they don't fit the format."""
    names, rest = first_names(block, form.delimiter)
    problem = names and header_error(names, form)
    if problem:
        raise UserError(f"line {rest.first_line - 1}: {problem}", key="dataset.path", value=str(block.part))
    return names, rest


def parse(
    block: Block, form: TextFormat, names: Sequence[str], limit: int | None = None, *, first_bad: bool = False
) -> Parsed:
    """Parse the rows of a block, at most the first `limit`; lines after these are not checked.

    first_bad: stop at the first line that doesn't fit, as it ends the run.

    names: the columns in the part's order. A missing integer or real is null, a missing category the empty string.
    """
    try:
        table = _arrow(block.data, form, names)
        if _is_reliable(table, block.data, form):
            return Parsed(form.finish(table.slice(0, limit)))
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
    else:
        reason = "pyarrow and the line count disagree"
    good: list[bytes] = []
    bad: list[BadRow] = []
    rows = 0
    for number, line, raw in numbered_lines(block, form.delimiter, multiline=form.multiline):
        if limit is not None and rows >= limit:
            break
        if not line:
            continue  # pyarrow skips empty lines as well
        problem = line_error(line, form, names)
        if problem:
            bad.append(BadRow(number, problem))
            if first_bad:
                break
        else:
            good.append(raw)
            rows += 1
    try:
        table = _arrow(b"\n".join(good), form, names)
        if len(table) == len(good):
            return Parsed(form.finish(table), tuple(bad))
        reason = f"{len(good)} rows were read as {len(table)}"
    except pa.ArrowException as error:
        reason = shown(" ".join(str(error).split()), 200)
    problem = f"the lines from {block.first_line} on can't be read: {reason}"
    raise UserError(problem, key="dataset.path", value=str(block.part))


def _arrow(data: bytes, form: TextFormat, names: Sequence[str]) -> pa.Table:
    wanted = [*filter(None, [form.label]), *form.features]
    if not data.strip(b"\r\n"):
        return pa.schema([(name, form.arrow_type(name)) for name in wanted]).empty_table()
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=list(names), block_size=len(data) + 1, use_threads=False),
        parse_options=csv.ParseOptions(
            delimiter=form.delimiter, quote_char='"' if form.quoted else False, newlines_in_values=form.multiline
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: form.arrow_type(name) for name in wanted},
            null_values=list(form.missing),
            strings_can_be_null=form.missing != ("",),
            include_columns=wanted,
        ),
    )
    return table.combine_chunks()


def _is_reliable(table: pa.Table, data: bytes, form: TextFormat) -> bool:
    """Whether the data holds nothing that pyarrow accepts and the format does not."""
    suspicious = [
        b"\0",
        *([b" ", b"x", b"X", b"+"] if form.integers else []),
        *([] if form.multiline or not form.quoted else [b'"']),
    ]
    if any(mark in data for mark in suspicious) or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
        return False
    if form.ignored and not _is_utf8(data):
        return False  # pyarrow does not look at columns that are left out
    half = MAX_LINE_BYTES // 2
    if any(data.find(b"\n", start, start + half) < 0 for start in range(0, len(data) - half + 1, half)):
        return False  # a line may be too long
    if not form.multiline and len(table) != data.count(b"\n") + (not data.endswith(b"\n")):
        filled = re.sub(rb"(?:\r?\n)++", b"\n", data).strip(b"\n")  # there are empty lines
        if len(table) != filled.count(b"\n") + bool(filled):
            return False
    if form.multiline and b'"' in data and records_pattern(form.delimiter).match(data).end() != len(data):  # type: ignore[union-attr]
        return False
    if form.label and not _are_labels(table.column(form.label), form):
        return False
    for name, reading in form.readings.items():
        values = _dictionary(table.column(name))
        if np.isnan(reading.numbers(values)[0]).any():
            return False
    reals = (column for name, column in zip(table.column_names, table.columns, strict=True) if name in form.reals)
    return all(pc.all(pc.is_finite(column)).as_py() is not False for column in reals)  # of missing values alone: None


def _are_labels(labels: pa.ChunkedArray, form: TextFormat) -> bool:
    if labels.null_count:
        return False
    values = _dictionary(labels).to_pylist()
    return set(values) <= {"0", "1"} if form.binary_label else not any(map(label_problem, values))


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _dictionary(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0).dictionary if column.num_chunks else pa.array([], pa.string())
