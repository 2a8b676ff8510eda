"""Any comma-separated table with a header."""

from collections import Counter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import csv as arrow_csv

from vflbench.data.base import Dataset
from vflbench.data.encode import RawCategorical, RawNumeric, RawTable
from vflbench.data.text import existing_file, file_facts, is_gzip
from vflbench.errors import UserError
from vflbench.options import options

Kind = Literal["numeric", "categorical", "ignore"]
_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"]


@options
class Csv(Dataset):
    """Any table with a header, plain or .gz: name the label column, and which party holds which others.

    Columns of numbers are numeric, all others categorical; `types` says otherwise. Missing (empty, NA, N/A, NaN, null, ?)
    is 0 in a numeric column and one more category in a categorical one. Classes are the label's values in their order:
    numbers by size, texts by alphabet, false before true; with two, the later one is positive.

    path: the file. label: the column that holds the labels. positive: the label's value that is positive, all others being
    negative (null: the order decides). types: column -> numeric, categorical or ignore. delimiter: one character.
    """

    path: str
    label: str
    positive: str | int | float | bool | None = None
    types: dict[str, Kind] | None = None
    delimiter: str = ","

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        table = self._read_arrow()
        kinds = self._kinds(table.schema)
        classes, labels = self._labels(table.column(self.label))
        columns = tuple(
            _numeric(name, table.column(name), self.path)
            if kind == "numeric"
            else _categorical(name, table.column(name).combine_chunks())
            for name, kind in kinds.items()
            if kind != "ignore"
        )
        return RawTable(columns, labels, len(classes)), file_facts(self.path) | {"classes_are": [str(c) for c in classes]}

    def _read_arrow(self) -> pa.Table:
        file = existing_file(self.path)
        if len(self.delimiter) != 1:
            raise UserError("it must be one character", key="dataset.delimiter", value=self.delimiter)
        forced = {n: pa.string() for n, kind in (self.types or {}).items() if kind == "categorical"}
        convert = arrow_csv.ConvertOptions(column_types=forced, null_values=_MISSING, strings_can_be_null=True)
        try:
            with pa.input_stream(str(file), compression="gzip" if is_gzip(file) else None) as stream:
                table = arrow_csv.read_csv(
                    stream,
                    parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    convert_options=convert,
                )
        except (pa.ArrowException, OSError, EOFError) as error:
            problem = " ".join(str(error).split())
            raise UserError(f"can't be read as a table: {problem}", key="dataset.path", value=self.path) from error
        if not len(table):
            raise UserError("the file holds no rows", key="dataset.path", value=self.path)
        repeated = [name for name, count in Counter(table.column_names).items() if count > 1]
        if repeated:
            raise UserError(f"the header names {repeated[0]} twice", key="dataset.path", value=self.path)
        return table.slice(0, self.rows)

    def _kinds(self, schema: pa.Schema) -> dict[str, str]:
        for key, names in (("dataset.label", [self.label]), ("dataset.types", list(self.types or {}))):
            for name in names:
                if name not in schema.names:
                    raise UserError(f"there is no such column; there are {', '.join(schema.names)}", key=key, value=name)
        inferred = {field.name: _inferred(field.type) for field in schema if field.name != self.label}
        return inferred | {name: kind for name, kind in (self.types or {}).items() if name != self.label}

    def _labels(self, column: pa.ChunkedArray) -> tuple[list[Any], np.ndarray]:
        """The classes in their order, and each row's position among them."""
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py() + 1
            raise UserError(f"row {row} after the header has no label", key="dataset.label", value=self.label)
        classes = sorted(column.unique().to_pylist())
        if self.positive is not None:
            if self.positive not in classes:
                shown = ", ".join(map(str, classes[:20]))
                raise UserError(f"no row has this label; there are {shown}", key="dataset.positive", value=self.positive)
            is_positive = pc.equal(column, pa.scalar(self.positive, column.type)).to_numpy()
            return [f"not {self.positive}", self.positive], is_positive.astype(np.int64)
        if len(classes) > max(2, len(column) // 2):
            raise UserError(
                f"it has {len(classes)} different values in {len(column)} rows; a label has classes, not measurements",
                key="dataset.label",
                value=self.label,
            )
        return classes, pc.index_in(column, value_set=pa.array(classes, column.type)).to_numpy().astype(np.int64)


def _inferred(kind: pa.DataType) -> str:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    return "numeric" if number else "categorical"


def _numeric(name: str, column: pa.ChunkedArray, path: str) -> RawNumeric:
    try:
        values = column.cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        problem = " ".join(str(error).split())
        raise UserError(f"column {name} is not numeric: {problem}", key="dataset.types", value=name) from error
    if np.isinf(values).any():
        raise UserError(f"column {name} holds an infinite number", key="dataset.path", value=path)
    return RawNumeric(name, values)


def _categorical(name: str, column: pa.Array) -> RawCategorical:
    text = pc.fill_null(column.cast(pa.string()), "")
    values = pc.unique(text)
    values = values.take(pc.sort_indices(values))
    return RawCategorical(name, pc.index_in(text, value_set=values).to_numpy(), len(values))
