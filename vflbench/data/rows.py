"""Rows that are read, and encoded, when they are needed: however many there are, a buffer of them is in memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.data.aligned import AlignedRows
from vflbench.data.encode import Encoding
from vflbench.data.own_rows import own_columns, own_labels, rising
from vflbench.data.raw import CHUNK_ROWS, RawTable
from vflbench.data.table import Columns, VerticalTable, join

BUFFER_ROWS = 1 << 18
"""Rows in memory at a time. Fewer than so many are all kept there, and shuffled without any restriction."""


@dataclass(frozen=True)
class EncodedRows:
    """Some rows of a raw table, encoded as they are read.

    role: (n,) uint8, one number a row of `raw`; the rows whose number is `wanted` are these.
    Chunks of 1024 rows that lie side by side are read together; `blocks` are buffers of chunks.
    """

    raw: RawTable
    encoding: Encoding
    role: np.ndarray
    wanted: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __len__(self) -> int:
        return int(self._chunk_sizes.sum())

    @property
    def columns(self) -> Mapping[str, Columns]:
        return self.encoding.columns

    @property
    def classes(self) -> int:
        return self.raw.classes

    @property
    def positive_ratio(self) -> float:
        """Share of rows whose class is not 0."""
        return sum(self._class_sizes[1:]) / len(self)

    @property
    def class_ratios(self) -> tuple[float, ...]:
        """The share of each class."""
        return tuple(size / len(self) for size in self._class_sizes)

    def to(self, device: torch.device) -> "EncodedRows":
        """The same rows, handed out on another device."""
        return self if device == self.device else replace(self, device=device)

    def blocks(self, rng: torch.Generator | None) -> Iterator[VerticalTable]:
        """All rows, a buffer at a time: in order, or with chunks that `rng` draws for each buffer."""
        if self._fits:
            yield self._resident
            return
        chunks = self._chunk_sizes.nonzero()[0]
        if rng is not None:
            chunks = chunks[torch.randperm(len(chunks), generator=rng).numpy()]
        count = max(1, round(BUFFER_ROWS * len(chunks) / len(self)))
        for start in range(0, len(chunks), count):
            yield self._read(np.sort(chunks[start : start + count]))

    def sample(self, wanted: int) -> VerticalTable:
        """At most about `wanted` rows, spread evenly: single ones of rows in memory, whole chunks of others."""
        if self._fits:
            return self._resident.rows(evenly_spaced(len(self), wanted).to(self.device))
        chunks = self._chunk_sizes.nonzero()[0]
        some = evenly_spaced(len(chunks), max(1, wanted * len(chunks) // len(self)))
        return self._read(chunks[some.numpy()])

    def at(self, ids: Tensor) -> VerticalTable:
        """Any rows of the raw table by id, of this split or not, in this order; each read takes its time.

        Raises KeyError for an id that no row has.
        """
        positions, back = rising(ids, len(self.role))
        table = self._take(positions)
        return table.rows(back.to(table.ids.device))

    def all(self) -> VerticalTable:
        """Every row in memory, in order."""
        return join(list(self.blocks(None)))

    @property
    def _fits(self) -> bool:
        return len(self) <= BUFFER_ROWS

    @cached_property
    def _resident(self) -> VerticalTable:
        return self._read(self._chunk_sizes.nonzero()[0])

    @cached_property
    def _class_sizes(self) -> tuple[int, ...]:
        """Rows of each class."""
        sizes = np.zeros(self.classes, np.int64)
        for start in range(0, len(self.role), BUFFER_ROWS):
            piece = slice(start, start + BUFFER_ROWS)
            sizes += np.bincount(self.raw.labels[piece][self.role[piece] == self.wanted], minlength=self.classes)
        return tuple(sizes.tolist())

    @cached_property
    def _chunk_sizes(self) -> np.ndarray:
        """(chunks,) wanted rows in each."""
        sizes = []
        for start in range(0, len(self.role), BUFFER_ROWS):
            is_wanted = self.role[start : start + BUFFER_ROWS] == self.wanted
            sizes.append(np.add.reduceat(is_wanted, np.arange(0, len(is_wanted), CHUNK_ROWS), dtype=np.int64))
        return np.concatenate(sizes) if sizes else np.zeros(0, np.int64)

    def _read(self, chunks: np.ndarray) -> VerticalTable:
        positions = np.empty(int(self._chunk_sizes[chunks].sum()), dtype=np.int64)
        filled = 0
        for chunk in chunks:
            start = chunk * CHUNK_ROWS
            found = (self.role[start : start + CHUNK_ROWS] == self.wanted).nonzero()[0]
            positions[filled : filled + len(found)] = found + start
            filled += len(found)
        return self._take(positions)

    def _take(self, positions: np.ndarray) -> VerticalTable:
        """Rows at rising positions of the raw table, encoded."""
        rows = self.raw.take(positions)
        self.raw.forget()
        labels = torch.from_numpy(rows.labels.astype(np.int64))
        table = VerticalTable(torch.from_numpy(positions), self.encoding(rows), labels, self.classes)
        return table if self.device.type == "cpu" else table.to(self.device)


@dataclass(frozen=True)
class TrainTest:
    """Rows to train on and rows to test on, of the same columns; with some, also rows to choose settings by.

    fingerprint: SHA-256 of the source's content, of which rows are which, and of how they are encoded. facts: what the
    loader wants in the manifest. notes: lines that a person must not miss.
    """

    train: EncodedRows
    test: EncodedRows
    fingerprint: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    validation: EncodedRows | None = None

    def to(self, device: torch.device) -> "TrainTest":
        """The same rows, handed out on another device."""
        moved = replace(self, train=self.train.to(device), test=self.test.to(device))
        return moved if self.validation is None else replace(moved, validation=self.validation.to(device))

    @property
    def held_out(self) -> Mapping[str, EncodedRows]:
        """The rows that are not trained on, by name."""
        return {"test": self.test} | ({} if self.validation is None else {"validation": self.validation})

    def aligned(self) -> AlignedRows:
        """All rows by id, for the parties to look up what they own of them; each reads its own columns alone."""
        rows = self.train
        source, most = (rows.raw, rows.encoding), BUFFER_ROWS
        readers = {party: own_columns(*source, party, rows.device, most=most) for party in rows.columns}
        return AlignedRows(readers, own_labels(rows.raw, rows.device, most=most), rows.columns, rows.classes)


def evenly_spaced(count: int, wanted: int) -> Tensor:
    """At most `wanted` different positions among 0 .. count - 1, spread evenly, first and last included if it is two."""
    if wanted >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, wanted, dtype=torch.float64).round().long().unique()
