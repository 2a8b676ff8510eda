"""Rows by id: what each party looks up of the rows that all parties have aligned."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vflbench.data.table import Columns, Features, VerticalTable

_HELD = 4
"""Tables that stay in memory: of training and test rows, a sample, and a batch across two buffers."""


class AlignedRows:
    """Looks rows up by id, for whoever owns them: `features(party, ids)` and `labels(ids)`.

    Tables that were read are held, the last four of them, and looked up there; rows that are in none of them are read.

    read: ids (n,) -> these rows, in that order. columns: party -> its columns. relabel: (ids, labels) -> labels that the
    label party holds instead, such as those of canaries.
    """

    def __init__(
        self,
        read: Callable[[Tensor], VerticalTable],
        columns: Mapping[str, Columns],
        classes: int,
        relabel: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        self._read, self.columns, self.classes, self._relabel = read, columns, classes, relabel
        self._held: list[_Indexed] = []
        self._last: tuple[Tensor, VerticalTable, Tensor] | None = None

    @classmethod
    def of(cls, table: VerticalTable) -> "AlignedRows":
        """The rows of a table in memory."""

        def missing(ids: Tensor) -> VerticalTable:
            raise KeyError(f"{len(ids)} rows, among which some are not in this table")

        rows = cls(missing, table.columns, table.classes)
        rows.hold(table)
        return rows

    def relabelled(self, relabel: Callable[[Tensor, Tensor], Tensor]) -> "AlignedRows":
        """The same rows with other labels. Both share the tables that they hold."""
        rows = AlignedRows(self._read, self.columns, self.classes, relabel)
        rows._held = self._held
        return rows

    def hold(self, table: VerticalTable) -> None:
        """Keep a table that was read, in place of the one that was held longest."""
        if not any(indexed.table is table for indexed in self._held):
            self._held.insert(0, _Indexed(table))
            del self._held[_HELD:]

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's columns of these rows."""
        table, places = self._find(ids)
        return table.features[party].rows(places)

    def labels(self, ids: Tensor) -> Tensor:
        """(n,) classes of these rows, as the label party holds them."""
        table, places = self._find(ids)
        labels = table.labels.index_select(0, places)
        return labels if self._relabel is None else self._relabel(ids, labels)

    def rows(self, ids: Tensor) -> VerticalTable:
        """All parties' columns of these rows."""
        table, places = self._find(ids)
        rows = table.rows(places)
        labels = rows.labels if self._relabel is None else self._relabel(ids, rows.labels)
        return VerticalTable(rows.ids, rows.features, labels, rows.classes)

    def _find(self, ids: Tensor) -> tuple[VerticalTable, Tensor]:
        """A table that has these rows, and their places in it; the parties ask for the same batch one after the other."""
        if self._last is not None and self._last[0] is ids:
            return self._last[1:]
        for indexed in self._held:
            places = indexed.places(ids)
            if places is not None:
                self._last = (ids, indexed.table, places)
                return indexed.table, places
        table = self._read(ids)
        self._last = (ids, table, torch.arange(len(ids), device=ids.device))
        return self._last[1:]


class _Indexed:
    """A table and where each of its ids stands."""

    def __init__(self, table: VerticalTable):
        self.table = table
        self._ids, self._order = table.ids, None if _is_rising(table.ids) else table.ids.argsort()
        if self._order is not None:
            self._ids = table.ids[self._order]

    def places(self, ids: Tensor) -> Tensor | None:
        """(n,) places of these ids; None if one is missing."""
        if not len(self._ids):
            return None if len(ids) else ids
        places = torch.searchsorted(self._ids, ids).clamp_(max=len(self._ids) - 1)
        if not bool((self._ids[places] == ids).all()):
            return None
        return places if self._order is None else self._order[places]


def _is_rising(ids: Tensor) -> bool:
    return bool((ids[1:] > ids[:-1]).all())
