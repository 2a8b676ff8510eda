"""Rows by id and in batches. Each party looks up by id what it owns of the rows that all parties have aligned; from its
lookup nothing of another party's can be reached. Up to a buffer of rows is encoded once, and held; more are read, and
encoded, when they are needed.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from vflbench.data.table import CHUNK_ROWS, Columns, Encoding, Features, RawTable, VerticalTable, mapped

BUFFER_ROWS = 1 << 18
"""Rows in memory at a time. Fewer than so many are all kept there, and shuffled without any restriction."""

_MAPPED_ROWS = 1 << 11
_STEPS_WANTED = 100
_AUTO_SIZES = (512, 256, 128, 64, 32)

_T = TypeVar("_T", Features, Tensor)


class AlignedRows:
    """Looks rows up by id, for whoever owns them: `parties` has each party's lookup, `labels` is the label party's.

    A lookup reaches what its party owns and nothing else. It raises KeyError for an id that no row has.

    parties: party -> ids (n,) -> a copy of its columns of these rows, in that order. labels: the same of the label party's
    classes.
    """

    def __init__(
        self,
        parties: Mapping[str, Callable[[Tensor], Features]],
        labels: Callable[[Tensor], Tensor],
        columns: Mapping[str, Columns],
        classes: int,
    ):
        self.parties, self.labels = dict(parties), labels
        self.columns, self.classes = dict(columns), classes

    @classmethod
    def of(cls, table: VerticalTable) -> "AlignedRows":
        """The rows of a table in memory, whose ids must be 0, 1, 2, ..."""
        if not torch.equal(table.ids.cpu(), torch.arange(len(table))):
            raise ValueError("the ids of a table are not the places of its rows")
        parties = {party: _Held(features, len(table)) for party, features in table.features.items()}
        return cls(parties, _Held(table.labels, len(table)), table.columns, table.classes)

    @classmethod
    def encoded(cls, raw: RawTable, encoding: Encoding, device: torch.device) -> "AlignedRows":
        """All rows of a raw table, whose position is their id; each party reads its own columns alone."""
        parties = {}
        for party, part in encoding.parties.items():
            columns = read_only_view(raw, "numeric", part.numeric), read_only_view(raw, "categorical", part.categorical)
            parties[party] = _reader(part, columns, device)
        labels = _reader(_classes, [read_only_view(raw, "labels")], device)
        return cls(parties, labels, encoding.columns, raw.classes)

    def relabelled(self, relabel: Callable[[Tensor, Tensor], Tensor]) -> "AlignedRows":
        """The same rows with other labels, such as those of canaries: (ids, labels) -> labels that the label party holds
        instead.
        """
        rows, labels = copy.copy(self), self.labels
        rows.labels = lambda ids: relabel(ids, labels(ids))
        return rows

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's columns of these rows."""
        return self.parties[party](ids)

    def rows(self, ids: Tensor) -> VerticalTable:
        """All parties' columns of these rows, and the labels."""
        features = {party: read(ids) for party, read in self.parties.items()}
        return VerticalTable(ids.clone(), features, self.labels(ids), self.classes)


class _Held(Generic[_T]):
    """Values of all rows in memory, looked up by id."""

    def __init__(self, values: _T, rows: int):
        self._at: Any = partial(values.index_select, 0) if isinstance(values, Tensor) else values.rows
        self._rows = rows

    def __call__(self, ids: Tensor) -> _T:
        # a comparison would wait for a card, which fails by itself
        if ids.device.type == "cpu" and len(ids) and not (ids.min() >= 0 and ids.max() < self._rows):
            _missing(ids)
        values: _T = self._at(ids)
        return values


def _reader(make: Callable[..., _T], arrays: Sequence[Any], device: torch.device) -> Callable[[Tensor], _T]:
    """ids (n,) -> what is made of the arrays at these rows. All of it is made at once, and held, if it fits in a buffer."""
    read, rows = partial(read_rows, make, arrays), len(arrays[0])
    return read if rows > BUFFER_ROWS else _Held(read(torch.arange(rows, device=device)), rows)


def read_rows(make: Callable[..., _T], arrays: Sequence[Any], ids: Tensor) -> _T:
    """What is made of the arrays at these rows, where the ids are. Raises KeyError for an id that no row has."""
    positions = ids.cpu().numpy()
    if len(positions) and not 0 <= positions.min() <= positions.max() < len(arrays[0]):
        _missing(ids)
    return make(*(array[positions] for array in arrays)).to(ids.device)


def _classes(labels: np.ndarray) -> Tensor:
    return torch.from_numpy(labels.astype(np.int64))


def read_only_view(raw: RawTable, name: str, columns: np.ndarray | None = None) -> Any:
    """These columns (None: all) of `numeric`, `categorical` or `labels`, from which nothing else can be reached.

    Of more rows on disk than fit in a buffer, each read maps them for as long as it takes.
    """
    values: np.ndarray = getattr(raw, name)
    if raw.folder is not None and len(raw) > BUFFER_ROWS:
        return StoredColumns(raw.folder / name, values.dtype.name, values.shape, columns)
    if values.base is None and (columns is None or np.array_equal(columns, np.arange(values.shape[1]))):
        return values  # it holds nothing else
    return values.copy() if columns is None else values.take(columns, axis=1)


class StoredColumns:
    """Some columns of a file of rows, as an array that is indexed by positions alone. It keeps no map of the file, in which
    all columns stand side by side. columns: positions in the file's rows; None: all, as of labels.
    """

    def __init__(self, file: Path, dtype: str, shape: tuple[int, ...], columns: np.ndarray | None):
        self._file, self._dtype, self._shape, self._columns = file, dtype, shape, columns

    def __len__(self) -> int:
        return self._shape[0]

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """The rows at these positions. Each few neighbours are mapped anew: a row brings all pages around it into memory."""
        order = np.argsort(positions)
        few = range(_MAPPED_ROWS, len(positions), _MAPPED_ROWS)
        values = np.concatenate([self._mapped(positions[some]) for some in np.split(order, few)])
        return values[np.argsort(order)]

    def _mapped(self, positions: np.ndarray) -> np.ndarray:
        rows = mapped(self._file, self._dtype, self._shape)
        return np.asarray(rows[positions] if self._columns is None else rows[positions[:, None], self._columns])


@dataclass(eq=False)
class EncodedRows:
    """Some rows of a raw table, encoded.

    role: (n,) uint8, one number a row of `raw`; the rows whose number is `wanted` are these. rows: all of the raw table, by
    id, which those of another role share. columns: of each party. class_ratios: the share of each class. positive_ratio:
    of all but class 0.
    """

    raw: RawTable
    encoding: Encoding
    role: np.ndarray
    wanted: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rows: AlignedRows | None = None

    def __post_init__(self) -> None:
        self.columns: Mapping[str, Columns] = self.encoding.columns
        self.classes, self._ids = self.raw.classes, np.flatnonzero(self.role == self.wanted)
        sizes = np.bincount(self.raw.labels[self._ids], minlength=self.classes).tolist()
        self.class_ratios: tuple[float, ...] = tuple(size / max(1, len(self)) for size in sizes)
        self.positive_ratio: float = sum(sizes[1:]) / max(1, len(self))
        self.aligned = self.rows = self.rows or AlignedRows.encoded(self.raw, self.encoding, self.device)

    def __len__(self) -> int:
        return len(self._ids)

    def to(self, device: torch.device) -> "EncodedRows":
        """The same rows, handed out on another device."""
        return self if device == self.device else replace(self, device=device, rows=None)

    def buffers(self, rng: torch.Generator | None) -> Iterator[Tensor]:
        """The ids of all rows, a buffer at a time: in order, or with chunks of 1024 neighbours that `rng` draws for each."""
        if len(self) <= BUFFER_ROWS:
            yield torch.from_numpy(self._ids).to(self.device)
            return
        chunks = np.split(self._ids, np.flatnonzero(np.diff(self._ids // CHUNK_ROWS)) + 1)
        order = np.arange(len(chunks)) if rng is None else torch.randperm(len(chunks), generator=rng).numpy()
        count = max(1, round(BUFFER_ROWS * len(chunks) / len(self)))
        for start in range(0, len(chunks), count):
            some = [chunks[k] for k in np.sort(order[start : start + count])]
            yield torch.from_numpy(np.concatenate(some)).to(self.device)

    def blocks(self, rng: torch.Generator | None) -> Iterator[VerticalTable]:
        """All rows, a buffer at a time."""
        return map(self.at, self.buffers(rng))

    def sample(self, wanted: int) -> VerticalTable:
        """At most `wanted` rows, spread evenly."""
        return self.at(torch.from_numpy(self._ids).to(self.device)[evenly_spaced(len(self), wanted).to(self.device)])

    def at(self, ids: Tensor) -> VerticalTable:
        """Any rows of the raw table by id, of this split or not, in this order. Raises KeyError where one is missing."""
        return self.aligned.rows(ids)

    def all(self) -> VerticalTable:
        """Every row in memory, in order."""
        return self.at(torch.from_numpy(self._ids).to(self.device))


def _missing(ids: Tensor) -> Any:
    raise KeyError(f"{len(ids)} rows, among which some are not in this table")


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
        train = self.train.to(device)
        validation = self.validation and replace(train, wanted=self.validation.wanted)
        test = replace(train, wanted=self.test.wanted)
        return replace(self, train=train, test=test, validation=validation)

    @property
    def held_out(self) -> Mapping[str, EncodedRows]:
        """The rows that are not trained on, by name."""
        return {"test": self.test} | ({} if self.validation is None else {"validation": self.validation})

    def aligned(self) -> AlignedRows:
        """All rows by id, for the parties to look up what they own of them; each reads its own columns alone."""
        return self.train.aligned


def evenly_spaced(count: int, wanted: int) -> Tensor:
    """At most `wanted` different positions among 0 .. count - 1, spread evenly, first and last included if it is two."""
    if wanted >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, wanted, dtype=torch.float64).round().long().unique()


def choose_batch_size(wanted: int | Literal["auto"], rows: int) -> int:
    """`auto`: the largest power of two between 32 and 512 that leaves 100 steps an epoch. Never more than there are rows."""
    largest = next((size for size in _AUTO_SIZES if rows // size >= _STEPS_WANTED), _AUTO_SIZES[-1])
    return min(largest if wanted == "auto" else wanted, rows)


@dataclass(frozen=True)
class Batches:
    """The batches of one epoch in a fresh random order, (batch_size,) row ids each: every full batch of an order that is
    drawn on the way.

    The rows left over, fewer than a batch, wait for another epoch's draw: a batch of another size, down to a single row,
    would weigh as much as a full one.

    Where not all rows fit in memory, the order is random in two steps: which chunks of neighbouring rows are in memory
    together, and in which order these rows come.
    """

    table: VerticalTable | EncodedRows
    batch_size: int
    rng: torch.Generator

    def __len__(self) -> int:
        return len(self.table) // self.batch_size

    def __iter__(self) -> Iterator[Tensor]:
        left = torch.empty(0, dtype=torch.int64)  # rows of earlier blocks, fewer than a batch
        for block in self.table.buffers(self.rng):
            order = torch.randperm(len(block), generator=self.rng).to(block.device)
            ids = torch.cat([left.to(block.device), block[order]])
            full = len(ids) - len(ids) % self.batch_size
            for start in range(0, full, self.batch_size):
                yield ids[start : start + self.batch_size].clone()
            left = ids[full:]


def ordered_batches(table: VerticalTable | EncodedRows, batch_size: int) -> Iterator[VerticalTable]:
    """Every row once, in order; the last batch of a block may be smaller."""
    for block in table.blocks(None):
        for start in range(0, len(block), batch_size):
            yield block.rows(slice(start, start + batch_size))
