"""Delimited text, read by pyarrow in bounded memory: all values as texts first, then those of number columns as numbers."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from vflbench.data.files import Part, damaged, open_parts
from vflbench.data.readings import MISSING_PART, ColumnReading, Plain, label_problem, numeric_columns
from vflbench.errors import shown

BLOCK_BYTES = 12 << 20  # some 50,000 rows of Criteo; no row is longer
_LONGEST_NAME = 200
_NOT_ENCODED = "\uffff"  # stands for bytes that the encoding of a text doesn't have
_UNCLOSED = "\ufffe"  # stands for a line in which a quote is opened and not closed


@dataclass(frozen=True)
class TextFormat:
    """The layout of one kind of file.

    columns: all names in order; empty: not known yet.
    label: the column of labels; empty: there is none, as in the file of a party that is not the label party.
    header: whether the first row must hold the names. binary_label: labels are 0 and 1; otherwise any text.
    id: the column of identifiers, which are kept beside the columns; empty: there is none.
    readings: columns of numbers, and how they are read. ignored: columns that are not
    read. The others are categorical. indicators: columns of numbers beside which one says where a value is missing.
    missing: words that stand for a missing value. quotes: whether values may be quoted, and then hold line ends.
    encoding: of the bytes. skip_lines, comment, trim: as options of `dataset=csv`. typed: whether columns have types, so
    that texts of digits are texts. read_as: what a person may want to know of this. finish: derives the final columns from
    the parsed ones.
    """

    columns: tuple[str, ...] = ()
    label: str = ""
    delimiter: str = ","
    header: bool = True
    id: str = ""
    readings: Mapping[str, ColumnReading] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    indicators: frozenset[str] = frozenset()
    binary_label: bool = True
    missing: tuple[str, ...] = ("",)
    quotes: bool = True
    encoding: str = "utf-8"
    skip_lines: int = 0
    comment: str = ""
    trim: bool = False
    typed: bool = False
    read_as: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[pa.Table], pa.Table] | None = None

    @property
    def cleaned(self) -> bool:
        """Whether lines, or blanks in them, are left out before the text is read."""
        return self.trim or bool(self.comment)


@dataclass(frozen=True, order=True)
class BadRow:
    """A row that does not fit the format, and the reason. row: from 1 on, the header and not empty lines among them."""

    row: int
    problem: str

    def __str__(self) -> str:
        return f"row {self.row:,}: {self.problem}"


@dataclass(frozen=True)
class TextRows:
    """Rows of a part. table: as texts, or parsed. numbers: (n,) of the rows. bad: rows among them that are left out."""

    table: pa.Table
    numbers: np.ndarray
    bad: list[BadRow]

    def first(self, rows: int | None) -> "TextRows":
        """At most so many of the rows, and what is bad before the last of them."""
        if rows is None or rows > len(self.table):
            return self
        numbers = self.numbers[:rows]
        return TextRows(
            self.table.slice(0, rows), numbers, [one for one in self.bad if len(numbers) and one.row < numbers[-1]]
        )


def column_names(part: Part, form: TextFormat) -> tuple[str, ...]:
    """The columns of a part: of its header; else those that are known, or c1, c2, ... Raises UserError for a bad header."""
    if not form.header and form.columns:
        return form.columns
    names: list[str] = []
    for _, stream in open_parts([part]):
        with damaged(part), _reader(part, stream, form, []) as reader:
            names = reader.schema.names
    if not form.header:
        return tuple(f"c{number}" for number, _ in enumerate(names, 1))
    problem = names_error(names)
    if problem:
        raise part.error(f"row {form.skip_lines + 1}: {problem}")
    return tuple(names)


def names_error(names: Sequence[str]) -> str | None:
    """What is wrong with the names of columns, whatever the table; None if nothing is."""
    for number, name in enumerate(names, 1):
        if _NOT_ENCODED in name:
            return f"the header names column {number} {_shown(name)}, which is {_not_encoded()}"
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            what = f"at most {_LONGEST_NAME} printable characters"
            return f"the header names column {number} {_shown(name)}; a name has {what}"
    repeated = [name for name, count in Counter(names).items() if count > 1]
    return f"the header names {shown(repeated[0]) or 'the empty name'} twice" if repeated else None


def first_text(part: Part, form: TextFormat) -> str:
    """The first 256 KiB of a part."""
    for _, stream in open_parts([part]):
        with damaged(part):
            return _file_of(_utf8(part, stream, form.encoding)).read(1 << 18).decode(errors="replace").lstrip("\ufeff")
    return ""


def texts(part: Part, stream: Any, form: TextFormat) -> Iterator[TextRows]:
    """The rows of a part, block by block. Columns of plain numbers are strings, others dictionaries; null where missing.

    form: with all columns, in any order if there is a header. Rows with too few or too many fields are left out. Raises
    UserError for a file that can't be read.
    """
    number, at = form.skip_lines * (not form.cleaned) + form.header, 0
    bad: list[BadRow] = []
    with damaged(part), _reader(part, stream, form, bad) as reader:
        for batch in reader:
            table, waiting = pa.Table.from_batches([batch]), bad[at:]
            several = np.arange(number + 1, number + 1 + len(batch) + len(waiting))
            numbers = np.setdiff1d(several, [one.row for one in waiting], assume_unique=True)[: len(batch)]
            number = int(numbers[-1]) if len(numbers) else number
            before = [one for one in waiting if one.row < number]
            at += len(before)
            yield TextRows(table, numbers, before)
        if bad[at:]:
            yield TextRows(reader.schema.empty_table(), np.empty(0, np.int64), bad[at:])


def parsed(rows: TextRows, form: TextFormat) -> TextRows:
    """Rows of texts with numbers in columns of numbers, NaN where one is missing, without the rows that don't fit."""
    columns: dict[str, pa.Array] = {}
    problems: dict[int, str] = {}
    for name in rows.table.column_names:
        column = rows.table[name].combine_chunks()
        reading = form.readings.get(name)
        if reading is None:
            columns[name], wrong = column, _wrong_texts(column, form, name)
        else:
            made = numeric_columns(column, reading)
            wrong = ~np.isfinite(made[""]) & column.is_valid().to_numpy(zero_copy_only=False)
            if name in form.indicators:
                made[MISSING_PART] = column.is_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
            columns |= {
                name + end: pa.array(made[end]) for end in made if not end or name + end not in rows.table.column_names
            }
        for place in np.flatnonzero(wrong).tolist():
            problems.setdefault(place, f"column {shown(name)}: {_problem(str(column[place].as_py() or ''), form, name)}")
    table, numbers = pa.table(columns), rows.numbers
    table = form.finish(table) if form.finish else table
    if not problems:
        return TextRows(table, numbers, rows.bad)
    bad = [BadRow(int(numbers[place]), problem) for place, problem in problems.items()]
    good = np.ones(len(numbers), dtype=bool)
    good[list(problems)] = False
    return TextRows(table.filter(pa.array(good)), numbers[good], sorted([*rows.bad, *bad]))


def _wrong_texts(column: pa.DictionaryArray, form: TextFormat, name: str) -> np.ndarray:
    """(n,) bool: values that can't be a category, or a class; a missing category is one, and a missing label none."""
    values, is_label = column.dictionary, name == (form.label or None)
    if not is_label and not pc.any(pc.match_substring_regex(values, f"[\0{_NOT_ENCODED}]")).as_py():
        return np.zeros(len(column), dtype=bool)
    wrong = [_problem(text, form, name) is not None for text in values.to_pylist()]
    return np.array([*wrong, is_label])[column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]


def _problem(text: str, form: TextFormat, name: str) -> str | None:
    """Why this can't be a value of a column; None if it can be one of texts."""
    if _NOT_ENCODED in text:
        return f"{_shown(text)} is {_not_encoded(form.encoding)}"
    if name in form.readings:
        return f"it holds {form.readings[name].words}, and {_shown(text)} can't be read as one"
    if name != (form.label or None):
        return f"{_shown(text)} holds a NUL byte" if "\0" in text else None
    if form.binary_label:
        return None if text in ("0", "1") else f"the label is {_shown(text)}; it must be 0 or 1"
    return label_problem(text)


@contextmanager
def _reader(part: Part, stream: Any, form: TextFormat, bad: list[BadRow]) -> Iterator[csv.CSVStreamingReader]:
    """Of the columns of the format, or of all if these aren't known. bad: gets the rows of other lengths."""

    def skip(row: csv.InvalidRow) -> str:
        problem = f"Expected {row.expected_columns} columns, got {row.actual_columns}: {shown(row.text, 60)}"
        if row.text and row.text.startswith(_UNCLOSED):
            problem = f"a quote is opened and not closed: {shown(row.text.strip(_UNCLOSED + form.delimiter), 60)}"
        if form.label and not form.header and row.actual_columns == row.expected_columns - 1:
            problem += f"; is its {form.label} missing? Rows without a label can't be used"
        bad.append(BadRow(row.number, problem))
        return "skip"

    names = [name for name in form.columns if name not in form.ignored]
    plain = {name for name, reading in form.readings.items() if isinstance(reading, Plain)}
    category = pa.dictionary(pa.int32(), pa.string())
    pieces = _utf8(part, stream, form.encoding)
    pieces = _cleaned(pieces, form) if form.cleaned else pieces
    with _file_of(_closed(part, pieces, form) if form.quotes else pieces) as source:
        yield csv.open_csv(
            pa.PythonFile(source, mode="r"),
            read_options=csv.ReadOptions(
                column_names=None if form.header else form.columns or None,
                autogenerate_column_names=not form.header and not form.columns,
                skip_rows=0 if form.cleaned else form.skip_lines,
                block_size=BLOCK_BYTES,
                use_threads=False,  # else no row that is wrong has a number
            ),
            parse_options=csv.ParseOptions(
                delimiter=form.delimiter,
                quote_char='"' if form.quotes else False,
                newlines_in_values=form.quotes,
                invalid_row_handler=skip,
            ),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() if name in plain else category for name in names},
                null_values=list(form.missing),
                strings_can_be_null=True,
                include_columns=names,
                check_utf8=False,
            ),
        )


class _Pieces(io.RawIOBase):
    """A text that comes in pieces."""

    def __init__(self, pieces: Iterator[bytes]):
        self._pieces, self._ready = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (piece := next(self._pieces, None)) is not None:
            self._ready = memoryview(piece)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _file_of(pieces: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Pieces(pieces), BLOCK_BYTES)


def _utf8(part: Part, stream: Any, encoding: str) -> Iterator[bytes]:
    """A text as UTF-8. What its encoding does not have becomes a character that no text has."""
    decoder = codecs.getincrementaldecoder(encoding)("vflbench")
    is_first, data = True, b"first"
    while data:
        data = stream.read(BLOCK_BYTES)
        if is_first and data.startswith(b"PAR1"):
            raise part.error("it is a Parquet file; read it with dataset=parquet")
        marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if is_first and encoding == "utf-8" and (marked or b"\0" in data[:4096].partition(b"\n")[0]):
            problem = "it is UTF-16 or UTF-32 text; save it as UTF-8 (or, of CSV, say dataset.encoding), or it is no text"
            raise part.error(f"row 1: {problem}; a table is expected, as CSV or Parquet (export an Excel workbook as CSV)")
        yield decoder.decode(data, final=not data).encode("utf-8", "vflbench")
        is_first = False


def _cleaned(pieces: Iterator[bytes], form: TextFormat) -> Iterator[bytes]:
    """The text without its first lines, comments, and blanks around values."""
    rows = islice(io.TextIOWrapper(_file_of(pieces), "utf-8-sig", newline=""), form.skip_lines, None)
    kept: Iterator[str] = (row for row in rows if not (form.comment and row.startswith(form.comment)))
    kept = map(_trimmer(form.delimiter), kept) if form.trim else kept
    while some := "".join(islice(kept, 1 << 14)):
        yield some.encode()


def _closed(part: Part, pieces: Iterator[bytes], form: TextFormat) -> Iterator[bytes]:
    """The whole records of a text, with a field too many, and a mark, in place of each line in which a quoted value is not
    closed, or goes on after its quote: pyarrow would take the lines that follow for a part of the value. Raises UserError
    for such a line among the first, which names columns.
    """
    mark = re.escape(form.delimiter.encode())
    quoted = rb'"(?:[^"]++|"")*+' if not form.trim else rb'"(?:[^"\r\n]++|"")*+'
    plain = rb'[^"%s\r\n][^%s\r\n]*+' % (mark, mark)
    value = rb'(?:%s"|%s)?+' % (quoted, plain)
    whole = re.compile(rb"(?:%s(?:%s%s)*+(?:\r\n?|\n))*+" % (value, mark, value))
    begun = re.compile(rb'(?:%s%s)*+(?:%s"?+|%s)?+\Z' % (value, mark, quoted, plain))
    rest, is_first = b"", form.header or not form.columns
    for data in chain(filter(None, pieces), [b""]):
        text, at = rest + (data or b"\n" * bool(rest)), 0
        while at < len(text):
            end = whole.match(text, at).end() if b'"' in text else text.rfind(b"\n") + 1  # type: ignore[union-attr]
            yield text[at:end]
            at, is_first = end, is_first and not end
            if at == len(text) or b'"' not in text:
                break
            line = re.compile(rb"\r\n?|\n").search(text, at)
            if data and (line is None or (begun.match(text, at) and len(text) - at < BLOCK_BYTES)):
                break
            if is_first:
                raise part.error(f"row {form.skip_lines + 1}: a quote is opened and not closed")
            end = line.start() if line else len(text)
            shown_as = text[at:end].replace(form.delimiter.encode(), b" ").replace(b'"', b"'")
            yield _UNCLOSED.encode() + shown_as + form.delimiter.encode() * max(1, len(form.columns)) + b"\n"
            at = line.end() if line else len(text)
        rest = text[at:]


codecs.register_error("vflbench", lambda error: (_NOT_ENCODED, getattr(error, "end")))  # noqa: B009 (of all its kinds)


def _trimmer(delimiter: str) -> Callable[[str], str]:
    """A line -> the line without blanks around values, outside quotes; where the delimiter is a blank, several are one."""
    if delimiter == " ":
        value = re.compile(r'"(?:[^"]|"")*+"[^ \t]*|[^ \t]+')
        return lambda row: " ".join(value.findall(row.strip(" \t\r\n"))) + "\n"
    blanks = " " if delimiter == "\t" else " \t"
    around = re.compile(rf'("(?:[^"]|"")*+")|[{blanks}]*({re.escape(delimiter)}|$)[{blanks}]*')
    return lambda row: around.sub(r"\1\2", row.strip(f"{blanks}\r\n")) + "\n"


def _shown(text: str) -> str:
    text = text.replace(_NOT_ENCODED, "\ufffd")
    return shown(repr(text) if text.isprintable() else ascii(text), 80)


def _not_encoded(encoding: str = "utf-8") -> str:
    return f"not valid {encoding}; for Latin-1 or Windows-1252, say dataset.encoding=cp1252"
