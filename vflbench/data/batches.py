"""The order in which an epoch meets its rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vflbench.data.aligned import AlignedRows
from vflbench.data.rows import EncodedRows
from vflbench.data.table import VerticalTable, join

_STEPS_WANTED = 100
_AUTO_SIZES = (512, 256, 128, 64, 32)


def choose_batch_size(wanted: int | Literal["auto"], rows: int) -> int:
    """`auto`: the largest power of two between 32 and 512 that leaves 100 steps an epoch. Never more than there are rows."""
    largest = next((size for size in _AUTO_SIZES if rows // size >= _STEPS_WANTED), _AUTO_SIZES[-1])
    return min(largest if wanted == "auto" else wanted, rows)


@dataclass(frozen=True)
class Batches:
    """The batches of one epoch, (batch_size,) row ids each: every full batch of an order that is drawn on the way.

    The rows left over, fewer than a batch, wait for another epoch's draw: a batch of another size, down to a single row,
    would weigh as much as a full one.

    Where not all rows fit in memory, the order is random in two steps: which chunks of neighbouring rows are in memory
    together, and in which order these rows come.
    """

    table: VerticalTable | EncodedRows
    batch_size: int
    rng: torch.Generator
    rows: AlignedRows

    def __len__(self) -> int:
        return len(self.table) // self.batch_size

    def __iter__(self) -> Iterator[Tensor]:
        left: list[VerticalTable] = []  # rows of earlier blocks, fewer than a batch
        for block in self.table.blocks(self.rng):
            self.rows.hold(block)
            order = torch.randperm(len(block), generator=self.rng).to(block.ids.device)
            first = self.batch_size - sum(map(len, left))
            if left or len(order) < first:
                left.append(block.rows(order[:first]))
                if len(order) < first:
                    continue
                across = join(left)
                self.rows.hold(across)
                yield across.ids
            else:
                yield block.ids[order[:first]]
            starts = range(first, len(order) - self.batch_size + 1, self.batch_size)
            for start in starts:
                yield block.ids[order[start : start + self.batch_size]]
            rest = order[first + len(starts) * self.batch_size :]
            left = [block.rows(rest)] if len(rest) else []


def shuffled_batches(
    table: VerticalTable | EncodedRows, batch_size: int, rng: torch.Generator, rows: AlignedRows
) -> Batches:
    """An epoch's batches in a fresh random order, as ids; `rows` holds the tables in which the parties find them."""
    return Batches(table, batch_size, rng, rows)


def ordered_batches(
    table: VerticalTable | EncodedRows, batch_size: int, rows: AlignedRows | None = None
) -> Iterator[VerticalTable]:
    """Every row once, in order; the last batch of a block may be smaller. rows: holds the block that is being read."""
    for block in table.blocks(None):
        if rows is not None:
            rows.hold(block)
        for start in range(0, len(block), batch_size):
            yield block.rows(slice(start, start + batch_size))
