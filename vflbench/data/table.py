"""Tables: raw columns as a source holds them, and what every loader returns of them: rows that all parties share, columns
split between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
    numeric: (n, k) float64 with NaN where missing.
    categorical: (n, c) int32 codes. Codes of column j are 0 .. sizes[j] - 1, in the order of the values.
    labels: (n,) classes 0 .. classes - 1. fingerprint: digest of the content.
    statistics: over all rows, if they are known beforehand.
    limits: minimum and maximum of each numeric column, (k,) each, if the kind of column fixes them, as for pixels;
    `numeric` may then be (n, k) uint8.
    folder: of a table on disk, which has a file for each of `numeric`, `categorical` and `labels`.
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
    statistics: Statistics | None = None
    limits: tuple[np.ndarray, np.ndarray] | None = field(default=None, compare=False)
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> RawTable:
        """Copy the rows at these positions."""
        return replace(
            self,
            numeric=self.numeric[positions],
            categorical=self.categorical[positions],
            labels=self.labels[positions],
            fingerprint="",
            statistics=None,
            folder=None,
        )


def raw_table(columns: Sequence[RawNumeric | RawCategorical], labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table of columns in memory. labels: (n,) classes 0 .. classes - 1."""
    numbers = [c for c in columns if isinstance(c, RawNumeric)]
    words = [c for c in columns if isinstance(c, RawCategorical)]
    numeric, categorical = np.empty((len(labels), len(numbers))), np.empty((len(labels), len(words)), dtype=np.int32)
    for j, number in enumerate(numbers):
        numeric[:, j] = number.values
    for j, word in enumerate(words):
        categorical[:, j] = word.codes
    table = RawTable(
        names=tuple(c.name for c in columns),
        numeric_names=tuple(c.name for c in numbers),
        categorical_names=tuple(c.name for c in words),
        sizes=tuple(c.size for c in words),
        numeric=numeric,
        categorical=categorical,
        labels=np.asarray(labels),
        classes=classes,
    )
    digest = hashlib.sha256(repr((table.names, table.numeric_names, table.sizes, classes)).encode())
    for values in (table.numeric, table.categorical, np.ascontiguousarray(table.labels, dtype=np.int64)):
        digest.update(values)
    return replace(table, fingerprint=digest.hexdigest())


LABEL_PARTY = "label"
"""The name of the party that holds the labels; it may hold features as well."""


@dataclass(frozen=True)
class Columns:
    """Names and sizes of one party's columns: all that a model needs to know of the data.

    numeric: names of the numeric columns, each in [0, 1].
    categorical: names of the categorical columns.
    cardinalities: ids of column j are 0 .. cardinalities[j] - 1.
    """

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    cardinalities: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.numeric) + len(self.categorical)


def _take(values: Tensor, index: Tensor | slice) -> Tensor:
    """values[index]; whole rows by position, which copies them in one go, several times faster."""
    if not isinstance(index, slice) and index.dtype == torch.int64:
        return values.index_select(0, index)
    return values[index]


@dataclass(frozen=True)
class Features:
    """One party's block: numeric (n, k) float32 and categorical (n, c) int32 ids, counted from 0 in each column."""

    columns: Columns
    numeric: Tensor
    categorical: Tensor

    def rows(self, index: Tensor | slice) -> Features:
        return Features(self.columns, _take(self.numeric, index), _take(self.categorical, index))

    def to(self, device: torch.device) -> Features:
        return Features(self.columns, self.numeric.to(device), self.categorical.to(device))


@dataclass(frozen=True)
class VerticalTable:
    """Rows that all parties share; columns split between them.

    ids: (n,) int64, stable row ids: the row's position in the source, the same in every epoch and split.
    features: one block a party, by party name; `label` is there only if the label party holds features.
    labels: (n,) int64 classes 0 .. classes - 1, held by the label party alone.
    """

    ids: Tensor
    features: Mapping[str, Features]
    labels: Tensor
    classes: int

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, index: Tensor | slice) -> VerticalTable:
        features = {party: block.rows(index) for party, block in self.features.items()}
        return VerticalTable(_take(self.ids, index), features, _take(self.labels, index), self.classes)

    def to(self, device: torch.device) -> VerticalTable:
        features = {party: block.to(device) for party, block in self.features.items()}
        return VerticalTable(self.ids.to(device), features, self.labels.to(device), self.classes)

    @property
    def columns(self) -> dict[str, Columns]:
        return {party: block.columns for party, block in self.features.items()}

    @property
    def positive_ratio(self) -> float:
        """Share of rows whose class is not 0."""
        return (self.labels != 0).double().mean().item()

    def buffers(self, rng: torch.Generator | None) -> Iterator[Tensor]:
        """The ids of all rows at once: they are in memory already."""
        yield self.ids

    def blocks(self, rng: torch.Generator | None) -> Iterator[VerticalTable]:
        """All rows at once."""
        yield self


def join(tables: Sequence[VerticalTable]) -> VerticalTable:
    """The rows of one table after those of another."""
    if len(tables) == 1:
        return tables[0]
    features = {}
    for party, first in tables[0].features.items():
        blocks = [table.features[party] for table in tables]
        numeric, categorical = torch.cat([b.numeric for b in blocks]), torch.cat([b.categorical for b in blocks])
        features[party] = Features(first.columns, numeric, categorical)
    ids, labels = torch.cat([t.ids for t in tables]), torch.cat([t.labels for t in tables])
    return VerticalTable(ids, features, labels, tables[0].classes)


def non_label_parties(columns: Mapping[str, Columns]) -> tuple[str, ...]:
    return tuple(party for party in columns if party != LABEL_PARTY)
