"""Raw columns: what a source holds before an encoding is fitted."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

MISSING_INTEGER = np.iinfo(np.int32).min
"""The value that marks a missing entry of a numeric column stored as int32."""

CHUNK_ROWS = 1024
"""Rows in a chunk. Rows of a chunk are neighbours on disk; they are drawn, checked and shuffled together."""


@dataclass(frozen=True)
class RawNumeric:
    """values: (n,) float64, NaN where missing."""

    name: str
    values: np.ndarray


@dataclass(frozen=True)
class RawCategorical:
    """codes: (n,) integers into a vocabulary of `size` values, in the order of the values.

    A missing value is the empty string, a category like any other.
    """

    name: str
    codes: np.ndarray
    size: int


@dataclass(frozen=True)
class Statistics:
    """Statistics over a set of rows, from which encodings are fitted.

    low, high: (k,) minimum and maximum of each numeric column; a missing value counts as 0.
    counts: for each categorical column an array (size,), how often each value occurs.
    """

    low: np.ndarray
    high: np.ndarray
    counts: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class RawTable:
    """Raw rows in the order of the source, in memory or memory-mapped.

    names: all columns in the order of the source.
    numeric: (n, k) float64 with NaN where missing, or int32 with MISSING_INTEGER where missing.
    categorical: (n, c) int32 codes. Codes of column j are 0 .. sizes[j] - 1, in the order of the values.
    labels: (n,) classes 0 .. classes - 1. fingerprint: digest of the content.
    check: takes chunk numbers and raises an error if one of these chunks is damaged.
    forget: releases the memory pages that reading has mapped.
    statistics: over all rows, if they are known beforehand.
    limits: minimum and maximum of each numeric column, (k,) each, if the kind of column fixes them, as for pixels;
    `numeric` may then be (n, k) uint8.
    stored: for a table on disk, opens columns of `numeric`, `categorical` or `labels` (None: all) by themselves.
    """

    names: tuple[str, ...]
    numeric_names: tuple[str, ...]
    categorical_names: tuple[str, ...]
    sizes: tuple[int, ...]
    numeric: np.ndarray
    categorical: np.ndarray
    labels: np.ndarray
    classes: int = 2
    fingerprint: str = ""
    check: Callable[[np.ndarray], None] = field(default=lambda _chunks: None, compare=False)
    forget: Callable[[], None] = field(default=lambda: None, compare=False)
    statistics: Statistics | None = None
    limits: tuple[np.ndarray, np.ndarray] | None = field(default=None, compare=False)
    stored: Callable[[str, np.ndarray | None], Any] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, numeric: np.ndarray, categorical: np.ndarray, *, most: int) -> "RawTable":
        """The columns at these positions alone, with no label: nothing else of this table can be reached from there.

        most: rows up to which columns on disk are copied into memory; of more, each read maps them for as long as it takes.
        """
        limits = None if self.limits is None else (self.limits[0][numeric], self.limits[1][numeric])
        names = tuple(self.numeric_names[j] for j in numeric), tuple(self.categorical_names[j] for j in categorical)
        return RawTable(
            names=names[0] + names[1],
            numeric_names=names[0],
            categorical_names=names[1],
            sizes=tuple(self.sizes[j] for j in categorical),
            numeric=self._apart("numeric", self.numeric, numeric, most),
            categorical=self._apart("categorical", self.categorical, categorical, most),
            labels=np.broadcast_to(np.zeros((), dtype=np.uint8), len(self)),
            classes=self.classes,
            limits=limits,
        )

    def labels_alone(self, *, most: int) -> np.ndarray:
        """(n,) the labels, from which no column can be reached. most: as for `only`."""
        return self._apart("labels", self.labels, None, most)

    def _apart(self, name: str, values: np.ndarray, columns: np.ndarray | None, most: int) -> Any:
        if self.stored is not None and len(self) > most:
            return self.stored(name, columns)
        if values.base is None and (columns is None or np.array_equal(columns, np.arange(values.shape[1]))):
            return values  # it holds nothing else
        return values.copy() if columns is None else values.take(columns, axis=1)

    def take(self, positions: np.ndarray) -> "RawTable":
        """Copy the rows at these positions."""
        self.check(np.unique(positions // CHUNK_ROWS))
        return replace(
            self,
            numeric=self.numeric[positions],
            categorical=self.categorical[positions],
            labels=self.labels[positions],
            fingerprint="",
            statistics=None,
            stored=None,
        )


def raw_table(columns: Sequence[RawNumeric | RawCategorical], labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table of columns in memory. labels: (n,) classes 0 .. classes - 1."""
    numeric = [c for c in columns if isinstance(c, RawNumeric)]
    categorical = [c for c in columns if isinstance(c, RawCategorical)]
    table = RawTable(
        names=tuple(c.name for c in columns),
        numeric_names=tuple(c.name for c in numeric),
        categorical_names=tuple(c.name for c in categorical),
        sizes=tuple(c.size for c in categorical),
        numeric=_stack([c.values for c in numeric], len(labels), np.float64),
        categorical=_stack([c.codes for c in categorical], len(labels), np.int32),
        labels=np.asarray(labels),
        classes=classes,
    )
    digest = hashlib.sha256(repr((table.names, table.numeric_names, table.sizes, classes)).encode())
    for values in (table.numeric, table.categorical, np.ascontiguousarray(table.labels, dtype=np.int64)):
        digest.update(values)
    return replace(table, fingerprint=digest.hexdigest())


def _stack(columns: Sequence[np.ndarray], rows: int, dtype: type) -> np.ndarray:
    table: np.ndarray[Any, Any] = np.empty((rows, len(columns)), dtype=dtype)
    for j, column in enumerate(columns):
        table[:, j] = column
    return table
