"""Rows of the participants of federated training: how they are dealt out, cut into rounds, and written as numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflbench.data.rows import EncodedRows
from vflbench.data.table import VerticalTable
from vflbench.errors import UserError
from vflbench.messages.rules import Schema

_MOST_COLUMNS = 4096


@dataclass(frozen=True)
class FederatedRounds:
    """The rounds of one epoch: in each, of every participant the next batches, one participant after the other.

    ids_of: of each participant's rows; orders: (n,) places, in which it cuts them. What doesn't fill a round waits for
    another epoch.
    """

    ids_of: Sequence[Tensor]
    orders: Sequence[Tensor]
    batch_size: int

    @property
    def share(self) -> int:
        return self.batch_size // len(self.ids_of)

    def __len__(self) -> int:
        return min(map(len, self.orders)) // self.share

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, len(self) * self.share, self.share):
            places = [order[start : start + self.share] for order in self.orders]
            yield torch.cat([ids[order.to(ids.device)] for ids, order in zip(self.ids_of, places, strict=True)])


def width(table: VerticalTable | EncodedRows, *, intercept: bool) -> int:
    """d: numeric columns, one for each category, and one for the intercept."""
    total = sum(len(columns.numeric) + sum(columns.cardinalities) for columns in table.columns.values()) + intercept
    if total > _MOST_COLUMNS:
        raise UserError(
            f"its columns, categories one-hot, make {total} features, and federated_lr takes {_MOST_COLUMNS} at most; name "
            "fewer of them in dataset.parties, or share rare categories by dataset.min_count",
            key="dataset",
        )
    return total


def schema_of(shares: Sequence[VerticalTable], *, intercept: bool) -> Schema:
    """Of the design that these rows of all participants make: a column of ones first, if there is an intercept.

    A numeric column is binary if no participant has another number than 0 and 1 in it.
    """
    binary, one_hot, column = ([0], [], 1) if intercept else ([], [], 0)
    for party, columns in shares[0].columns.items():
        for j in range(len(columns.numeric)):
            values = [share.features[party].numeric[:, j] for share in shares]
            if all(bool(((part == 0) | (part == 1)).all()) for part in values):
                binary.append(column + j)
        column += len(columns.numeric)
        for size in columns.cardinalities:
            binary.extend(range(column, column + size))
            one_hot.append((column, size))
            column += size
    return Schema(tuple(binary), intercept, tuple(one_hot))


def deal(table: VerticalTable | EncodedRows, parties: int, rng: torch.Generator) -> list[VerticalTable]:
    """Rows of each participant: even shares of a random order."""
    rows = table.all() if isinstance(table, EncodedRows) else table
    order = torch.randperm(len(rows), generator=rng).to(rows.ids.device)
    share = len(rows) // parties
    return [rows.rows(order[i * share : (i + 1) * share]) for i in range(parties)]


def signs(labels: Tensor) -> Tensor:
    """Classes 0 and 1 as -1 and +1, float64."""
    return labels.double() * 2 - 1
