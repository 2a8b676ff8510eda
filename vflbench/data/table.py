"""What every loader returns: rows that all parties share, columns split between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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
    import torch

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

    def blocks(self, rng: torch.Generator | None) -> Iterator[VerticalTable]:
        """All rows at once: they are in memory already."""
        yield self


def join(tables: Sequence[VerticalTable]) -> VerticalTable:
    """The rows of one table after those of another."""
    import torch

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
