"""The order in which an epoch meets its rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vflbench.data.table import VerticalTable

_STEPS_WANTED = 100
_AUTO_SIZES = (512, 256, 128, 64, 32)


def choose_batch_size(wanted: int | Literal["auto"], rows: int) -> int:
    """`auto`: the largest power of two between 32 and 512 that leaves 100 steps an epoch. Never more than there are rows."""
    if wanted == "auto":
        wanted = next((size for size in _AUTO_SIZES if rows // size >= _STEPS_WANTED), _AUTO_SIZES[-1])
    return min(wanted, rows)


@dataclass(frozen=True)
class Batches:
    """The batches of one epoch: every full one of `order`, (n,) row positions.

    The rows left over, fewer than a batch, wait for another epoch's draw: a batch of another size, down to a single row,
    would weigh as much as a full one.
    """

    table: VerticalTable
    order: Tensor
    batch_size: int

    def __len__(self) -> int:
        return len(self.order) // self.batch_size

    @property
    def rows(self) -> int:
        return len(self) * self.batch_size

    def __iter__(self) -> Iterator[VerticalTable]:
        for start in range(0, self.rows, self.batch_size):
            yield self.table.rows(self.order[start : start + self.batch_size])


def shuffled_batches(table: VerticalTable, batch_size: int, rng: torch.Generator) -> Batches:
    """An epoch's batches in a fresh random order."""
    return Batches(table, torch.randperm(len(table), generator=rng).to(table.ids.device), batch_size)


def ordered_batches(table: VerticalTable, batch_size: int) -> Iterator[VerticalTable]:
    """Every row once, in order; the last batch may be smaller."""
    for start in range(0, len(table), batch_size):
        yield table.rows(slice(start, start + batch_size))


def evenly_spaced(count: int, wanted: int) -> torch.Tensor:
    """At most `wanted` different positions among 0 .. count - 1, spread evenly, first and last included if it is two."""
    if wanted >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, wanted, dtype=torch.float64).round().long().unique()
