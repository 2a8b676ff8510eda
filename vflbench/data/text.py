"""Delimited text -> columns, through pyarrow; and, when that fails, the exact line, column and value that are wrong."""

import codecs
import csv as stdlib_csv
import gzip
import hashlib
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from vflbench.data.encode import RawCategorical, RawNumeric, RawTable
from vflbench.errors import UserError

_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class TextFormat:
    """How one kind of file is laid out.

    columns: all names in order; every one is `label`, in `integers`, in `ignored`, or else categorical.
    header: whether the first line must hold exactly these names.
    name: what the format is called in an error, with its field count.
    """

    name: str
    columns: tuple[str, ...]
    label: str
    delimiter: str
    header: bool
    integers: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c != self.label and c not in self.ignored)

    def arrow_type(self, column: str) -> pa.DataType:
        if column == self.label or column in self.integers:
            return pa.int64()
        if column in self.ignored:
            return pa.string()
        return pa.dictionary(pa.int32(), pa.string())


def read_text(path: str, form: TextFormat, rows: int | None) -> pa.Table:
    """The first `rows` rows (all, if None) of a plain or gzip-compressed file; what follows them is not looked at.

    A missing integer is null, a missing category the empty string. Raises UserError naming file, line, column and value.
    """
    file = existing_file(path)
    try:
        with pa.input_stream(str(file), compression="gzip" if is_gzip(file) else None) as stream:
            table = _read_arrow(stream, form, rows)
    except (pa.ArrowException, OSError, EOFError) as error:
        table = _read_again(file, form, rows, error)
    if not len(table):
        raise UserError(f"the file holds no rows of {form.name}", key="dataset.path", value=path)
    labels = table.column(form.label)
    if labels.null_count or not pc.all(pc.is_in(labels, value_set=pa.array([0, 1]))).as_py():
        raise _diagnose(file, form, rows) or UserError("has labels other than 0 and 1", key="dataset.path", value=path)
    return table


def raw_table(table: pa.Table, label: str) -> RawTable:
    """Integer columns are numeric, dictionary columns categorical; labels are 0 and 1."""
    columns = tuple(_raw_column(name, table.column(name).combine_chunks()) for name in table.column_names if name != label)
    return RawTable(columns, table.column(label).to_numpy())


def existing_file(path: str) -> Path:
    """The file of `dataset.path`; UserError if there is none."""
    file = Path(path).expanduser()
    if not file.exists():
        raise UserError(f"there is no such file (looked in {Path.cwd()})", key="dataset.path", value=path)
    if file.is_dir():
        raise UserError("this is a folder; name the file in it", key="dataset.path", value=path)
    return file


def is_gzip(file: Path) -> bool:
    """By content, not by name."""
    with file.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def file_facts(path: str) -> dict[str, str]:
    """Where the file lies, and the SHA-256 of what lies there."""
    file = existing_file(path).resolve()
    with file.open("rb") as stream:
        return {"path": str(file), "file_sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _read_arrow(stream: pa.NativeFile, form: TextFormat, rows: int | None) -> pa.Table:
    read = csv.ReadOptions(column_names=None if form.header else list(form.columns), block_size=_BLOCK_BYTES)
    parse = csv.ParseOptions(delimiter=form.delimiter, quote_char='"' if form.header else False)
    convert = csv.ConvertOptions(
        column_types={name: form.arrow_type(name) for name in form.columns},
        null_values=[""],
        strings_can_be_null=False,
    )
    reader = csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
    if form.header and (problem := _wrong_header(reader.schema.names, form)):
        raise pa.ArrowInvalid(problem)
    batches, count = [], 0
    for batch in reader:
        batches.append(batch.select([form.label, *form.features]))
        count += len(batch)
        if rows is not None and count >= rows:
            break
    if not count:
        return reader.schema.empty_table()
    return pa.Table.from_batches(batches).slice(0, rows).unify_dictionaries()


def _read_again(file: Path, form: TextFormat, rows: int | None, error: Exception) -> pa.Table:
    """After a failure: raise for a wrong line among the first `rows`; a block that went wrong behind them is cut off."""
    problem = _diagnose(file, form, rows)
    if problem is None and rows is not None:
        wanted = b"\n".join(line for _, line in _lines(file, form, rows))
        return _read_arrow(pa.BufferReader(wanted), form, rows)
    reason = " ".join(str(error).split())
    raise problem or UserError(f"can't be read: {reason}", key="dataset.path", value=str(file)) from error


def _raw_column(name: str, column: pa.Array) -> RawNumeric | RawCategorical:
    if not pa.types.is_dictionary(column.type):
        return RawNumeric(name, column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    # Ids follow the order of the values, so that they don't depend on the order of the rows.
    order = pc.sort_indices(column.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return RawCategorical(name, rank[column.indices.to_numpy()], len(order))


def _diagnose(file: Path, form: TextFormat, rows: int | None) -> UserError | None:
    """The first line that is wrong, found by reading slowly; None if every line that is wanted looks right."""
    line_number, awaits_header = 0, form.header
    try:
        for line_number, line in _lines(file, form, rows):
            if not line:
                continue  # pyarrow skips empty lines as well
            fields = _fields(line, form)
            problem = _wrong_header([_text(f) for f in fields], form) if awaits_header else _wrong_row(fields, form)
            if problem:
                return UserError(f"line {line_number}: {problem}", key="dataset.path", value=str(file))
            awaits_header = False
    except (OSError, EOFError, zlib.error) as error:
        return UserError(f"the file breaks off after line {line_number}: {error}", key="dataset.path", value=str(file))
    if not line_number:
        return UserError(f"the file is empty; {form.name} was expected", key="dataset.path", value=str(file))
    return None


def _lines(file: Path, form: TextFormat, rows: int | None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines up to the last one that holds a wanted row, header and empty lines included."""
    left = math.inf if rows is None else rows + form.header
    with gzip.open(file) if is_gzip(file) else file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            content = line.rstrip(b"\r\n").removeprefix(codecs.BOM_UTF8 if number == 1 else b"")
            yield number, content
            left -= bool(content)
            if left <= 0:
                return


def _wrong_header(names: Sequence[str], form: TextFormat) -> str | None:
    missing = [name for name in form.columns if name not in names]
    if missing == [form.label]:
        return f"the header has no column {form.label}: these rows carry no label, and training needs one"
    if missing:
        return f"the header must name the {len(form.columns)} columns of {form.name}; missing: {', '.join(missing)}"
    surplus = list((Counter(names) - Counter(form.columns)).elements())
    return f"the header names columns that {form.name} does not have: {', '.join(surplus)}" if surplus else None


def _fields(line: bytes, form: TextFormat) -> list[bytes]:
    """Fields of one line; quoted ones where the format has quotes."""
    if not (form.header and b'"' in line):
        return line.split(form.delimiter.encode())
    quoted = next(stdlib_csv.reader([line.decode("utf-8", "surrogateescape")], delimiter=form.delimiter))
    return [field.encode("utf-8", "surrogateescape") for field in quoted]


def _wrong_row(fields: list[bytes], form: TextFormat) -> str | None:
    if len(fields) == len(form.columns) - 1 and not form.header:
        return (
            f"{len(fields)} fields where {form.name} has {len(form.columns)}: "
            f"a row without its {form.label}? Unlabelled rows can't be trained on or scored"
        )
    if len(fields) != len(form.columns):
        return f"{len(fields)} fields where {form.name} has {len(form.columns)}"
    return next(filter(None, map(_wrong_field, form.columns, fields, [form] * len(fields))), None)


def _wrong_field(column: str, field: bytes, form: TextFormat) -> str | None:
    try:
        text = field.decode("utf-8")
    except UnicodeDecodeError:
        return f"column {column}: {_shown(field)} is not valid UTF-8"
    if column == form.label and text not in ("0", "1"):
        return f"column {column}: the label is {_shown(field)}; it must be 0 or 1"
    if column in form.integers and text and not _is_integer(text):
        return f"column {column}: {_shown(field)} is not an integer"
    return None


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+", text) is not None and -(2**63) <= int(text) < 2**63


def _text(field: bytes) -> str:
    return field.decode("utf-8", "replace")


def _shown(field: bytes) -> str:
    return repr(field[:60].decode("utf-8", "backslashreplace")) + ("..." if len(field) > 60 else "")
