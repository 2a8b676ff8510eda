"""The rows of a recording: their labels, those whose label is known, and what is known of them at the end of an epoch."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vflbench.data.rows import evenly_spaced
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.messages.facts import Embeddings, OwnColumns
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.round import Facts
from vflbench.messages.view import Unavailable
from vflbench.run.labelled_rows import LabelledRows


class RecordedRows:
    """Training rows by id, as far as a recording has them. It serves as population and as lookup.

    rows: their labels, or their ids in place of them. listed: samples that the recorded run drew, by how many rows it asked
    for.
    """

    def __init__(self, rows: LabelledRows, listed: Mapping[int, np.ndarray] | None = None):
        self.device, self.classes = torch.device("cpu"), rows.classes
        self._rows, self._listed = rows, dict(listed or {})
        self.class_ratios = rows.class_ratios
        self.canary_ids = torch.from_numpy(rows.canary_ids)
        self.known_columns: dict[str, Table] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, wanted: int) -> VerticalTable:
        """Training rows, spread evenly, as a run chooses them."""
        if wanted in self._listed:
            ids = torch.from_numpy(self._listed[wanted])
        else:
            ids = torch.from_numpy(self._rows.ids)[evenly_spaced(len(self), wanted)]
        return VerticalTable(ids, {}, self.labels(ids), self.classes)

    def labels(self, ids: Tensor) -> Tensor:
        """(n,) int64. Raises UserError for a row that isn't there."""
        return torch.from_numpy(self._rows.labels(ids.numpy()))

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's columns, as far as they are known at the end of this epoch."""
        if party not in self.known_columns:
            raise Unavailable(f"the columns of party {party} at the end of an epoch are not in this recording")
        columns = self.known_columns[party].of(ids)
        return Features(Columns((), (), ()), columns["numeric"], columns["categorical"])

    def rows(self, ids: Tensor) -> VerticalTable:
        raise Unavailable("a recording has no columns of all parties")


class Table:
    """Values of rows by id: the last that were put in. names: name -> (n, d)."""

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._parts: list[dict[str, Tensor]] = []
        self._joined: tuple[Tensor, dict[str, Tensor]] | None = None

    def put(self, ids: Tensor, values: Mapping[str, Tensor]) -> None:
        if len(ids):
            self._ids.append(ids)
            self._parts.append(dict(values))
            self._joined = None

    @property
    def ids(self) -> Tensor:
        """Those of all rows, in rising order."""
        return self._join()[0]

    def of(self, ids: Tensor) -> dict[str, Tensor]:
        """name -> (n, d) of these rows. Raises Unavailable if one isn't there."""
        known, values = self._join()
        self._require(known, ids)
        place = torch.searchsorted(known, ids)
        return {name: of[place] for name, of in values.items()}

    def filled(self, ids: Tensor) -> dict[str, Tensor]:
        """The same, with zeros for rows that aren't there."""
        known, values = self._join()
        place = torch.searchsorted(known, ids).clamp_(max=max(len(known) - 1, 0))
        there = (known[place] == ids) if len(known) else torch.zeros_like(ids, dtype=torch.bool)
        made = {name: of.new_zeros(len(ids), of.shape[1]) for name, of in values.items()}
        for name, of in values.items():
            made[name][there] = of[place[there]]
        return made

    def _require(self, known: Tensor, ids: Tensor) -> None:
        place = torch.searchsorted(known, ids).clamp_(max=max(len(known) - 1, 0))
        if len(ids) and (not len(known) or not torch.equal(known[place], ids)):
            raise Unavailable("the recording doesn't have what the network makes of all these rows")

    def _join(self) -> tuple[Tensor, dict[str, Tensor]]:
        """What was put in last counts. Keeps one copy of each row."""
        if self._joined is None:
            ids = torch.cat(self._ids) if self._ids else torch.empty(0, dtype=torch.int64)
            names = [name for name in (self._parts[-1] if self._parts else {}) if all(name in part for part in self._parts)]
            ordered, order = ids.sort(stable=True)
            is_last = torch.ones_like(ordered, dtype=torch.bool)
            is_last[:-1] = ordered[1:] != ordered[:-1]
            kept = order[is_last]
            values = {name: torch.cat([part[name] for part in self._parts])[kept] for name in names}
            self._joined = ids[kept], values
            self._ids, self._parts = [self._joined[0]], [values]
        return self._joined


class EndOfEpoch:
    """What parties' networks make of rows at the end of an epoch: as recorded, or else what was last sent for a row.

    Of the sent, only rows that are asked about are kept: `wanted` of every batch, and the first `quota` rows of it. wants:
    whether anything is asked at the end.
    """

    def __init__(self, recording: RecordedMessages, rows: RecordedRows, *, wants: bool):
        self._recording, self._rows, self.wants = recording, rows, wants
        self._layers: dict[str, Table] = {}
        self._there = torch.empty(0, dtype=torch.int64)

    def begin_epoch(self, epoch: int) -> None:
        self._there = self._recording.ids_at_the_end(epoch) if self.wants else self._there

    def meet(self, ids: Tensor, facts: Mapping[str, Facts], wanted: Tensor, quota: int) -> None:
        """A recorded round. wanted: ids of rows that are asked about whenever they are met."""
        if not self.wants:
            return
        kept = torch.isin(ids, wanted)
        kept[:quota] = True
        kept &= ~torch.isin(ids, self._there)
        if bool(kept.any()):
            self._put(ids, facts, kept)

    def tables(self, epoch: int) -> dict[str, Table]:
        """Party -> layers of rows; their columns are given to `rows`."""
        end = self._recording.end_of_epoch(epoch) if self.wants else None
        if end is not None:
            self._put(end.ids, end.facts, torch.ones_like(end.ids, dtype=torch.bool))
        return self._layers

    def _put(self, ids: Tensor, facts: Mapping[str, Facts], kept: Tensor) -> None:
        for party, of_party in facts.items():
            embeddings, columns = of_party.get(Embeddings), of_party.get(OwnColumns)
            if isinstance(embeddings, Embeddings) and embeddings.layers:
                values = {layer: h[kept] for layer, h in embeddings.layers.items()}
                self._layers.setdefault(party, Table()).put(ids[kept], values)
            if isinstance(columns, OwnColumns):
                parts = {"numeric": columns.numeric[kept], "categorical": columns.categorical[kept]}
                self._rows.known_columns.setdefault(party, Table()).put(ids[kept], parts)
