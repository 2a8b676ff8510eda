"""Rows by id: what each party looks up of the rows that all parties have aligned."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from vflbench.data.table import Columns, Features, VerticalTable

_HELD = 4
"""Tables that stay in memory: of training and test rows, a sample, and a batch across two buffers."""

_DENSE = 2
"""Where at least one in so many ids is held, a table of the places of all says where each stands: 4 bytes an id."""

T = TypeVar("T", Features, Tensor)


class AlignedRows:
    """Looks rows up by id, for whoever owns them: `lookup(party)` is that party's, `labels` that of the label party.

    A lookup holds what its party owns and nothing else; they share the ids of the rows that are held, and where these
    stand. Tables that were read are held, the last four of them, and looked up there; rows that are in none of them are
    read, by each party for itself.

    readers: party -> ids (n,) -> its columns of these rows, in that order. labels: the same of the label party's classes.
    relabel: (ids, labels) -> labels that the label party holds instead, such as those of canaries.
    """

    def __init__(
        self,
        readers: Mapping[str, Callable[[Tensor], Features]],
        labels: Callable[[Tensor], Tensor],
        columns: Mapping[str, Columns],
        classes: int,
    ):
        self.columns, self.classes = dict(columns), classes
        self._index = _Index()
        self._parties = {party: PartyRows(self._index, readers[party], columns[party]) for party in columns}
        self._plain_labels = _Lookup[Tensor](self._index, labels)
        self.labels = LabelRows(self._plain_labels)

    @classmethod
    def of(cls, table: VerticalTable) -> "AlignedRows":
        """The rows of a table in memory."""
        rows = cls(dict.fromkeys(table.columns, _missing), _missing, table.columns, table.classes)
        rows.hold(table)
        return rows

    def relabelled(self, relabel: Callable[[Tensor, Tensor], Tensor]) -> "AlignedRows":
        """The same rows with other labels. Both share what they hold."""
        rows = AlignedRows.__new__(AlignedRows)
        vars(rows).update(vars(self))
        rows.labels = LabelRows(self._plain_labels, relabel)
        return rows

    def lookup(self, party: str) -> "PartyRows":
        """Looks up what that party owns; from it nothing of another party's, and no label, can be reached."""
        return self._parties[party]

    def hold(self, table: VerticalTable) -> None:
        """Hand each party what it owns of a table that was read, in place of the one that was held longest."""
        number = self._index.hold(table.ids)
        if number is None:
            return
        for party, rows in self._parties.items():
            rows.put(number, table.features[party])
        self._plain_labels.put(number, table.labels)

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's columns of these rows."""
        return self._parties[party](ids)

    def rows(self, ids: Tensor) -> VerticalTable:
        """All parties' columns of these rows, and the labels."""
        features = {party: rows(ids) for party, rows in self._parties.items()}
        return VerticalTable(ids.clone(), features, self.labels(ids), self.classes)


class _Index:
    """The ids that are held, block by block, and where each stands: all that the lookups of several parties share."""

    def __init__(self) -> None:
        self._held: dict[int, _Indexed] = {}
        self._count = 0
        self._last: tuple[Tensor, tuple[int, Tensor] | None] | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def hold(self, ids: Tensor) -> int | None:
        """The number of the block that has these ids from now on; None if they are held already."""
        if any(indexed.of is ids for indexed in self._held.values()):
            return None
        self._count, self._last = self._count + 1, None
        kept = list(self._held.items())[: _HELD - 1]
        self._held = dict([(self._count, _Indexed(ids)), *kept])
        return self._count

    def find(self, ids: Tensor) -> tuple[int, Tensor] | None:
        """A block that has these rows, and their places in it; the parties ask for the same batch one after the other."""
        if self._last is None or self._last[0] is not ids:
            self._last = (ids, self._search(ids))
        return self._last[1]

    def _search(self, ids: Tensor) -> tuple[int, Tensor] | None:
        for number, indexed in self._held.items():
            places = indexed.places(ids)
            if places is not None:
                return number, places
        return None


class _Lookup(Generic[T]):
    """One party's values of rows by id. Calling it copies them."""

    def __init__(self, index: _Index, read: Callable[[Tensor], T]):
        self._index = index
        self._read: Callable[[Tensor], T] = read
        self._held: dict[int, T] = {}
        self._last: tuple[Tensor, T] | None = None

    def put(self, number: int, block: T) -> None:
        """Hold a block of that number of the index, and let go of those that the index has let go of."""
        self._held = {other: held for other, held in self._held.items() if other in self._index} | {number: block}

    def __call__(self, ids: Tensor) -> T:
        found = self._index.find(ids)
        if found is not None:
            return _taken(self._held[found[0]], found[1])
        if self._last is None or self._last[0] is not ids:
            self._last = (ids, self._read(ids))
        return _taken(self._last[1], torch.arange(len(ids), device=ids.device))


class PartyRows(_Lookup[Features]):
    """Looks up one party's columns: ids (n,) -> Features."""

    def __init__(self, index: _Index, read: Callable[[Tensor], Features], columns: Columns):
        super().__init__(index, read)
        self.columns = columns


class LabelRows:
    """Looks up labels: ids (n,) -> (n,) classes, as the label party holds them."""

    def __init__(self, lookup: _Lookup[Tensor], relabel: Callable[[Tensor, Tensor], Tensor] | None = None):
        self._lookup, self._relabel = lookup, relabel

    def __call__(self, ids: Tensor) -> Tensor:
        labels = self._lookup(ids)
        return labels if self._relabel is None else self._relabel(ids, labels)


def _taken(block: T, places: Tensor) -> T:
    return block.index_select(0, places) if isinstance(block, Tensor) else block.rows(places)


def _missing(ids: Tensor) -> Any:
    raise KeyError(f"{len(ids)} rows, among which some are not in this table")


class _Indexed:
    """Ids and where each stands."""

    def __init__(self, ids: Tensor):
        self.of = ids
        self._places: Tensor | None = None
        if not len(ids):
            return
        self._least, most = (int(end) for end in ids.aminmax())
        if most - self._least < _DENSE * len(ids):
            self._places = ids.new_full((most - self._least + 1,), -1, dtype=torch.int32)
            self._places[ids - self._least] = torch.arange(len(ids), dtype=torch.int32, device=ids.device)
            return
        self._ids, self._order = ids, None if _is_rising(ids) else ids.argsort()
        if self._order is not None:
            self._ids = ids[self._order]

    def places(self, ids: Tensor) -> Tensor | None:
        """(n,) places of these ids; None if one is missing."""
        if not len(self.of):
            return None if len(ids) else ids
        if self._places is not None:
            at = ids - self._least
            near = at.clamp(0, len(self._places) - 1)
            places = self._places.index_select(0, near)
            return places.long() if bool(((at == near) & (places >= 0)).all()) else None
        places = torch.searchsorted(self._ids, ids).clamp_(max=len(self._ids) - 1)
        if not bool((self._ids[places] == ids).all()):
            return None
        return places if self._order is None else self._order[places]


def _is_rising(ids: Tensor) -> bool:
    return bool((ids[1:] > ids[:-1]).all())
