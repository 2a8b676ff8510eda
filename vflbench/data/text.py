"""Delimited text -> columns, through pyarrow; and, when that fails, the exact line, column and value that are wrong."""

import gzip
from collections.abc import Iterator
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
        return pa.dictionary(pa.int32(), pa.string())


def read_text(path: str, form: TextFormat, rows: int | None) -> RawTable:
    """The first `rows` rows (all, if None) of a plain or gzip-compressed file.

    Missing integers become NaN, a missing category the empty string. Raises UserError naming file, line, column and value.
    """
    file = _existing(path)
    try:
        table = _read_arrow(file, form, rows)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _diagnose(file, form) or UserError(f"can't be read: {error}", key="dataset.path", value=path) from error
    labels = table.column(form.label)
    if labels.null_count or not pc.all(pc.is_in(labels, value_set=pa.array([0, 1]))).as_py():
        raise _diagnose(file, form) or UserError("has labels other than 0 and 1", key="dataset.path", value=path)
    columns = tuple(_raw_column(name, table.column(name).combine_chunks(), form) for name in form.features)
    return RawTable(columns, labels.to_numpy())


def _existing(path: str) -> Path:
    file = Path(path).expanduser()
    if not file.exists():
        raise UserError(f"there is no such file (looked in {Path.cwd()})", key="dataset.path", value=path)
    if file.is_dir():
        raise UserError("this is a folder; name the file in it", key="dataset.path", value=path)
    return file


def _read_arrow(file: Path, form: TextFormat, rows: int | None) -> pa.Table:
    read = csv.ReadOptions(column_names=None if form.header else list(form.columns), block_size=_BLOCK_BYTES)
    parse = csv.ParseOptions(delimiter=form.delimiter, quote_char='"' if form.header else False)
    convert = csv.ConvertOptions(
        column_types={name: form.arrow_type(name) for name in form.columns},
        include_columns=[form.label, *form.features],
        null_values=[""],
        strings_can_be_null=False,
    )
    batches, count = [], 0
    compression = "gzip" if _is_gzip(file) else None
    with pa.input_stream(str(file), compression=compression) as stream:
        for batch in csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert):
            batches.append(batch)
            count += len(batch)
            if rows is not None and count >= rows:
                break
    if not count:
        raise UserError(f"the file holds no rows of {form.name}", key="dataset.path", value=str(file))
    return pa.Table.from_batches(batches).slice(0, rows).unify_dictionaries()


def _raw_column(name: str, column: pa.Array, form: TextFormat) -> RawNumeric | RawCategorical:
    if name in form.integers:
        return RawNumeric(name, column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    # Ids follow the order of the values, so that they don't depend on the order of the rows.
    order = pc.sort_indices(column.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return RawCategorical(name, rank[column.indices.to_numpy()], len(order))


def _is_gzip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def _diagnose(file: Path, form: TextFormat) -> UserError | None:
    """The first line that is wrong, found by reading slowly; None if every line looks right."""
    line_number = 0
    try:
        for line_number, line in _lines(file):
            problem = _wrong_header(line, form) if form.header and line_number == 1 else _wrong_row(line, form)
            if problem:
                return UserError(f"line {line_number}: {problem}", key="dataset.path", value=str(file))
    except (OSError, EOFError) as error:
        return UserError(f"the file breaks off after line {line_number}: {error}", key="dataset.path", value=str(file))
    if not line_number:
        return UserError(f"the file is empty; {form.name} was expected", key="dataset.path", value=str(file))
    return None


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with gzip.open(file) if _is_gzip(file) else file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            yield number, line.rstrip(b"\r\n")


def _wrong_header(line: bytes, form: TextFormat) -> str | None:
    names = line.decode("utf-8", "replace").split(form.delimiter)
    if sorted(names) == sorted(form.columns):
        return None
    missing = [name for name in form.columns if name not in names]
    if form.label in missing and len(missing) == 1:
        return f"the header has no column {form.label}: these rows carry no label, and training needs one"
    return f"the header must name the {len(form.columns)} columns of {form.name}; " + (
        f"missing: {', '.join(missing)}" if missing else f"not known: {', '.join(sorted(set(names) - set(form.columns)))}"
    )


def _wrong_row(line: bytes, form: TextFormat) -> str | None:
    if not line:
        return None  # pyarrow skips empty lines as well
    fields = line.split(form.delimiter.encode())
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
    try:
        return text.isascii() and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


def _shown(field: bytes) -> str:
    return repr(field[:60].decode("utf-8", "backslashreplace")) + ("..." if len(field) > 60 else "")
