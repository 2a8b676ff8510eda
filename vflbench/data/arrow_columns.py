"""Columns of Arrow tables in memory -> raw columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vflbench.data.labels import Positive, classes_of
from vflbench.data.table import RawCategorical, RawNumeric, RawTable, raw_table


def raw_of(table: pa.Table, names: Sequence[str], labels: np.ndarray | None = None, classes: int = 2) -> RawTable:
    """Columns of float64 or of text, in that order. labels: (n,) classes; None: zeros, of a party that has none."""
    columns = [
        _numeric(name, table) if pa.types.is_floating(table[name].type) else _categorical(name, table) for name in names
    ]
    return raw_table(columns, np.zeros(len(table), np.uint8) if labels is None else labels, classes)


def texts_of(column: pa.ChunkedArray) -> pa.Array:
    """A column of text as plain strings, null where one is missing."""
    return pa.chunked_array(column.chunks, column.type).cast(pa.string()).combine_chunks()


def labels_of(column: pa.ChunkedArray, positive: Positive) -> tuple[np.ndarray, list[str]]:
    """(n,) classes of a column of text without nulls, and their names in order."""
    values, codes = _codes(column)
    rows = dict(zip(values, np.bincount(codes, minlength=len(values)).tolist(), strict=True))
    names, class_of = classes_of(rows, positive)
    places = np.array([class_of[text] for text in values], dtype=np.int64)
    return places[codes], names


def _numeric(name: str, table: pa.Table) -> RawNumeric:
    values = table[name].cast(pa.float64()).combine_chunks()
    return RawNumeric(name, values.fill_null(np.nan).to_numpy(zero_copy_only=False))


def _categorical(name: str, table: pa.Table) -> RawCategorical:
    values, codes = _codes(table[name])
    return RawCategorical(name, codes, len(values))


def _codes(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The values that occur, sorted, with the empty text for null; and the code of each row."""
    array = pc.fill_null(texts_of(column), "").dictionary_encode()
    values = array.dictionary.to_pylist()
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.empty(len(values), dtype=np.int32)
    rank[order] = np.arange(len(values), dtype=np.int32)
    codes = array.indices.to_numpy(zero_copy_only=False)
    return [values[j] for j in order], rank[codes] if len(values) else np.zeros(0, np.int32)
