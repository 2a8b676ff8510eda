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

    def __len__(self) -> int:
        return len(self.labels)

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
