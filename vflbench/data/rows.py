"""Rows in batches and by id: read, and encoded, when they are needed. However many there are, a buffer of them is in memory.

Each party looks up by id what it owns of the rows that all parties have aligned; from its lookup and its reader nothing of
another party's can be reached.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from vflbench.data.encode import Encoding
from vflbench.data.table import CHUNK_ROWS, Columns, Features, RawTable, VerticalTable, join

_DENSE = 2
"""Where at least one in so many ids is held, a table says where each stands: 8 bytes an id."""

BUFFER_ROWS = 1 << 18
"""Rows in memory at a time. Fewer than so many are all kept there, and shuffled without any restriction."""

_HELD = 4
"""Tables that stay in memory: of training and test rows, and samples."""

_STEPS_WANTED = 100
_AUTO_SIZES = (512, 256, 128, 64, 32)

T = TypeVar("T", Features, Tensor)


@dataclass(eq=False)
class EncodedRows:
    """Some rows of a raw table, encoded as they are read.

    role: (n,) uint8, one number a row of `raw`; the rows whose number is `wanted` are these.
    Chunks of 1024 rows that lie side by side are read together; `blocks` are buffers of chunks.
    columns: of each party. class_ratios: the share of each class. positive_ratio: of all but class 0.
    """

    raw: RawTable
    encoding: Encoding
    role: np.ndarray
    wanted: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self.columns: Mapping[str, Columns] = self.encoding.columns
        self.classes = self.raw.classes
        in_chunks, of_class = [np.zeros(0, np.int64)], np.zeros(self.classes, np.int64)
        for start in range(0, len(self.role), BUFFER_ROWS):
            piece = slice(start, start + BUFFER_ROWS)
            is_wanted = self.role[piece] == self.wanted
            in_chunks.append(np.add.reduceat(is_wanted, np.arange(0, len(is_wanted), CHUNK_ROWS), dtype=np.int64))
            of_class += np.bincount(self.raw.labels[piece][is_wanted], minlength=self.classes)
        self._chunk_sizes = np.concatenate(in_chunks)
        self._count, sizes = int(self._chunk_sizes.sum()), of_class.tolist()
        self.class_ratios: tuple[float, ...] = tuple(size / max(1, self._count) for size in sizes)
        self.positive_ratio: float = sum(sizes[1:]) / max(1, self._count)

    def __len__(self) -> int:
        return self._count

    def to(self, device: torch.device) -> "EncodedRows":
        """The same rows, handed out on another device."""
        return self if device == self.device else replace(self, device=device)

    def blocks(self, rng: torch.Generator | None) -> Iterator[VerticalTable]:
        """All rows, a buffer at a time: in order, or with chunks that `rng` draws for each buffer."""
        if len(self) <= BUFFER_ROWS:
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
        if len(self) <= BUFFER_ROWS:
            return self._resident.rows(evenly_spaced(len(self), wanted).to(self.device))
        chunks = self._chunk_sizes.nonzero()[0]
        some = evenly_spaced(len(chunks), max(1, wanted * len(chunks) // len(self)))
        return self._read(chunks[some.numpy()])

    def at(self, ids: Tensor) -> VerticalTable:
        """Any rows of the raw table by id, of this split or not, in this order; each read takes its time.

        Raises KeyError for an id that no row has.
        """
        return self._take(positions_of(ids, len(self.role)))

    def all(self) -> VerticalTable:
        """Every row in memory, in order."""
        return join(list(self.blocks(None)))

    @cached_property
    def _resident(self) -> VerticalTable:
        return self._read(self._chunk_sizes.nonzero()[0])

    def _read(self, chunks: np.ndarray) -> VerticalTable:
        found = [(self.role[at : at + CHUNK_ROWS] == self.wanted).nonzero()[0] + at for at in chunks * CHUNK_ROWS]
        return self._take(np.concatenate([np.zeros(0, np.int64), *found]))

    def _take(self, positions: np.ndarray) -> VerticalTable:
        """Rows at positions of the raw table, encoded."""
        rows = self.raw.take(positions)
        labels = torch.from_numpy(rows.labels.astype(np.int64))
        table = VerticalTable(torch.from_numpy(positions), self.encoding(rows), labels, self.classes)
        return table if self.device.type == "cpu" else table.to(self.device)


class AlignedRows:
    """Looks rows up by id, for whoever owns them: `parties` has each party's lookup, `labels` is the label party's.

    A lookup holds what its party owns and nothing else; they share the ids of the rows that are held, and where these
    stand. Tables that were read are held, the last four of them, and looked up there; rows that are in none of them are
    read, by each party for itself.

    readers: party -> ids (n,) -> its columns of these rows, in that order. labels: the same of the label party's classes.
    """

    def __init__(
        self,
        readers: Mapping[str, Callable[[Tensor], Features]],
        labels: Callable[[Tensor], Tensor],
        columns: Mapping[str, Columns],
        classes: int,
    ):
        self.columns, self.classes = dict(columns), classes
        self.parties = {party: _Lookup(readers[party]) for party in columns}
        self.labels = _Lookup(labels)
        self._held: list[Tensor] = []

    @classmethod
    def of(cls, table: VerticalTable) -> "AlignedRows":
        """The rows of a table in memory."""
        rows = cls(dict.fromkeys(table.columns, _missing), _missing, table.columns, table.classes)
        rows.hold(table)
        return rows

    def relabelled(self, relabel: Callable[[Tensor, Tensor], Tensor]) -> "AlignedRows":
        """The same rows with other labels, such as those of canaries: (ids, labels) -> labels that the label party holds
        instead. Both share what they hold.
        """
        rows = copy.copy(self)
        rows.labels = copy.copy(self.labels)
        rows.labels.relabel = relabel
        return rows

    def hold(self, table: VerticalTable) -> None:
        """Hand each party what it owns of a table that was read, in place of the one that was held longest."""
        if any(ids is table.ids for ids in self._held):
            return
        self._held[:] = [table.ids, *self._held[: _HELD - 1]]
        find = lru_cache(maxsize=1)(partial(_all_found, _places(table.ids)))  # all parties ask for the ids of a batch
        for party, rows in self.parties.items():
            rows.put(find, table.features[party])
        self.labels.put(find, table.labels)

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's columns of these rows."""
        return self.parties[party](ids)

    def rows(self, ids: Tensor) -> VerticalTable:
        """All parties' columns of these rows, and the labels."""
        features = {party: rows(ids) for party, rows in self.parties.items()}
        return VerticalTable(ids.clone(), features, self.labels(ids), self.classes)


class _Lookup(Generic[T]):
    """One party's values of rows by id: (n,) ids -> Features, or (n,) classes as the label party holds them. A call copies
    them.
    """

    def __init__(self, read: Callable[[Tensor], T]):
        self._read: Callable[[Tensor], T] = read
        self._held: list[tuple[Callable[[Tensor], Tensor | None], T]] = []
        self.relabel: Callable[[Tensor, T], T] | None = None

    def put(self, find: Callable[[Tensor], Tensor | None], values: T) -> None:
        """Hold a table. find: ids (n,) -> where each stands in it, (n,); None unless it has all of them."""
        self._held.insert(0, (find, values))
        del self._held[_HELD:]

    def __call__(self, ids: Tensor) -> T:
        for find, values in self._held:  # a table that has all of these rows, or the file
            if (places := find(ids)) is not None:
                taken = values.index_select(0, places) if isinstance(values, Tensor) else values.rows(places)
                break
        else:
            taken = self._read(ids)
        return taken if self.relabel is None else self.relabel(ids, taken)


def _all_found(find: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor | None:
    places = find(ids)
    return places if bool((places >= 0).all()) else None


def _places(held: Tensor) -> Callable[[Tensor], Tensor]:
    """ids (n,) -> (n,) where each stands among those that are held, -1 where one is not: by a table of ids that lie close
    together, which is several times faster, or by search.
    """
    if not len(held):
        return lambda ids: torch.full_like(ids, -1)
    least, most = (int(end) for end in held.aminmax())
    if most - least < _DENSE * len(held):
        table = held.new_full((most - least + 3,), -1)  # the first and the last are of ids beyond both ends
        table[held - least + 1] = torch.arange(len(held), device=held.device)
        return lambda ids: table.index_select(0, (ids - least + 1).clamp_(0, len(table) - 1))
    ordered, order = held.sort()

    def find(ids: Tensor) -> Tensor:
        at = torch.searchsorted(ordered, ids).clamp_(max=len(ordered) - 1)
        return torch.where(ordered[at] == ids, order[at], -1)

    return find


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
        moved = replace(self, train=self.train.to(device), test=self.test.to(device))
        return moved if self.validation is None else replace(moved, validation=self.validation.to(device))

    @property
    def held_out(self) -> Mapping[str, EncodedRows]:
        """The rows that are not trained on, by name."""
        return {"test": self.test} | ({} if self.validation is None else {"validation": self.validation})

    def aligned(self) -> AlignedRows:
        """All rows by id, for the parties to look up what they own of them; each reads its own columns alone."""
        rows = self.train
        readers = {p: own_columns(rows.raw, rows.encoding, p, rows.device, most=BUFFER_ROWS) for p in rows.columns}
        labels = partial(_read_labels, rows.raw.apart("labels", None, most=BUFFER_ROWS), rows.device)
        return AlignedRows(readers, labels, rows.columns, rows.classes)


def own_columns(
    raw: RawTable, encoding: Encoding, party: str, device: torch.device, *, most: int
) -> Callable[[Tensor], Features]:
    """ids (n,) -> a party's columns of these rows, in that order. It raises KeyError for an id that no row has.

    most: rows up to which its columns are copied into memory even if the source is on disk.
    """
    own = encoding.parties[party]
    return partial(_read_columns, raw.only(own.numeric, own.categorical, most=most), encoding.alone(party), party, device)


def _read_columns(raw: RawTable, encoding: Encoding, party: str, device: torch.device, ids: Tensor) -> Features:
    """raw, encoding: of this party's columns alone."""
    return encoding(raw.take(positions_of(ids, len(raw))))[party].to(device)


def _read_labels(labels: np.ndarray, device: torch.device, ids: Tensor) -> Tensor:
    """labels: (n,) of all rows."""
    return torch.from_numpy(labels[positions_of(ids, len(labels))].astype(np.int64)).to(device)


def positions_of(ids: Tensor, rows: int) -> np.ndarray:
    """The positions of these ids. Raises KeyError beyond `rows`."""
    positions = ids.cpu().numpy()
    if len(positions) and not 0 <= positions.min() <= positions.max() < rows:
        _missing(ids)
    return positions


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
    """The batches of one epoch in a fresh random order, (batch_size,) row ids each; `rows` holds the tables in which the
    parties find them. Every full batch of an order that is drawn on the way.

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
        left = torch.empty(0, dtype=torch.int64)  # rows of earlier blocks, fewer than a batch
        for block in self.table.blocks(self.rng):
            self.rows.hold(block)
            order = torch.randperm(len(block), generator=self.rng).to(block.ids.device)
            ids = torch.cat([left.to(block.ids.device), block.ids[order]])
            full = len(ids) - len(ids) % self.batch_size
            for start in range(0, full, self.batch_size):
                yield ids[start : start + self.batch_size].clone()
            left = ids[full:]


def ordered_batches(
    table: VerticalTable | EncodedRows, batch_size: int, rows: AlignedRows | None = None
) -> Iterator[VerticalTable]:
    """Every row once, in order; the last batch of a block may be smaller. rows: holds the block that is being read."""
    for block in table.blocks(None):
        if rows is not None:
            rows.hold(block)
        for start in range(0, len(block), batch_size):
            yield block.rows(slice(start, start + batch_size))
