"""What every loader returns: rows that all parties share, columns split between them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Features:
    """One party's block: numeric (n, k) float32 and categorical (n, c) int32 ids, counted from 0 in each column."""

    columns: Columns
    numeric: Tensor
    categorical: Tensor

    def rows(self, index: Tensor | slice) -> "Features":
        return Features(self.columns, self.numeric[index], self.categorical[index])

    def to(self, device: torch.device) -> "Features":
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

    def rows(self, index: Tensor | slice) -> "VerticalTable":
        features = {party: block.rows(index) for party, block in self.features.items()}
        return VerticalTable(self.ids[index], features, self.labels[index], self.classes)

    def to(self, device: torch.device) -> "VerticalTable":
        features = {party: block.to(device) for party, block in self.features.items()}
        return VerticalTable(self.ids.to(device), features, self.labels.to(device), self.classes)

    @property
    def non_label_parties(self) -> tuple[str, ...]:
        return tuple(party for party in self.features if party != LABEL_PARTY)

    @property
    def positive_ratio(self) -> float:
        """Share of rows whose class is not 0."""
        return (self.labels != 0).double().mean().item()


@dataclass(frozen=True)
class TrainTest:
    """A training and a test table of the same columns; facts are what the loader wants to be told to the user."""

    train: VerticalTable
    test: VerticalTable
    facts: Mapping[str, Any] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """SHA-256 over every value that training or testing reads, in order, and over the columns' names.

        It tells split and encoding apart as well; `file_sha256` among the facts is that of the raw file.
        """
        digest = hashlib.sha256()
        for table in (self.train, self.test):
            digest.update(f"{len(table)} {table.classes}".encode())
            for tensor in (table.ids, table.labels):
                digest.update(tensor.contiguous().numpy())
            for party, block in table.features.items():
                digest.update(f"{party} {block.columns}".encode())
                digest.update(block.numeric.contiguous().numpy())
                digest.update(block.categorical.contiguous().numpy())
        return digest.hexdigest()
