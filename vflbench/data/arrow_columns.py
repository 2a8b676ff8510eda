"""Columns of Arrow tables in memory -> raw columns, labels and identifiers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vflbench.data.files import Part, listed
from vflbench.data.labels import Positive, classes_of
from vflbench.data.table import RawCategorical, RawNumeric, RawTable, raw_table
from vflbench.errors import shown


def raw_of(table: pa.Table, names: Sequence[str], labels: np.ndarray | None = None, classes: int = 2) -> RawTable:
    """Columns of float64 or of text, in that order. labels: (n,) classes; None: zeros, of a party that has none."""
    columns = [
        _numeric(name, table) if pa.types.is_floating(table[name].type) else _categorical(name, table) for name in names
    ]
    return raw_table(columns, np.zeros(len(table), np.uint8) if labels is None else labels, classes)


def check_source(dataset: Any, part: Part, names: Sequence[str], *, is_label: bool) -> None:
    """Raise UserError where a file with identifiers lacks the columns that the options `id` and `label` name."""
    for key, name in (("dataset.id", dataset.id), *([("dataset.label", dataset.label)] if is_label else [])):
        if name not in names:
            problem = f"it has no column {shown(name, 60)}, which {key} names; its columns are {listed(names, 40)}"
            raise part.error(problem)


def identifiers(texts: Sequence[str | None], name: str, part: Part, numbers: Iterable[int]) -> list[str]:
    """The texts of a column, each once. Raises UserError, naming the rows, where one is missing or stands there twice.

    numbers: (n,) of the rows.
    """
    ids = [text or "" for text in texts]
    counts = Counter(ids)
    wrong = "" if "" in counts else next((text for text, count in counts.items() if count > 1), None)
    if wrong is None:
        return ids
    rows = listed([number for number, text in zip(numbers, ids, strict=False) if text == wrong], 3)
    what = f"the identifier {shown(wrong, 60)!r} more than once" if wrong else "no identifier"
    raise part.error(f"row{'s' if ',' in rows else ''} {rows}: column {shown(name, 60)} has {what}")


def labels_of(column: pa.ChunkedArray, positive: Positive) -> tuple[np.ndarray, list[str]]:
    """(n,) classes of a column of text without nulls, and their names in order."""
    values, codes = _codes(column)
    rows = dict(zip(values, np.bincount(codes, minlength=len(values)).tolist(), strict=True))
    names, class_of = classes_of(rows, positive)
    places = np.array([class_of[text] for text in values], dtype=np.int64)
    return places[codes], names


def _numeric(name: str, table: pa.Table) -> RawNumeric:
    return RawNumeric(name, table[name].cast(pa.float64()).fill_null(np.nan).to_numpy())


def _categorical(name: str, table: pa.Table) -> RawCategorical:
    values, codes = _codes(table[name])
    return RawCategorical(name, codes, len(values))


def _codes(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The values that occur, sorted, with the empty text for null; and the code of each row."""
    array = pc.fill_null(column.cast(pa.string()).combine_chunks(), "").dictionary_encode()
    values = array.dictionary.to_pylist()
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.empty(len(values), dtype=np.int32)
    rank[order] = np.arange(len(values), dtype=np.int32)
    codes = array.indices.to_numpy(zero_copy_only=False)
    return [values[j] for j in order], rank[codes] if len(values) else np.zeros(0, np.int32)
