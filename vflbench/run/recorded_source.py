"""A recording with labels, as an audit reads it: rows and columns as tensors, and the rows whose label attackers know."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from vflbench.attacks.base import Attack
from vflbench.generators import Generators
from vflbench.messages.facts import OwnColumns
from vflbench.messages.manifest import KNOWN
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.round import Round
from vflbench.messages.row_files import Labels, read_labels
from vflbench.plain_files import is_there
from vflbench.run.known_rows import USUALLY_KNOWN, Canaries, KnownRows
from vflbench.run.labelled_rows import LabelledRows
from vflbench.run.recorded_facts import RecordedFacts
from vflbench.run.recorded_rows import RecordedRows, Table


class RecordedSource(RecordedFacts):
    """What `RecordedFacts` says, for a session of attacks. rows: the labels, or ids in place of them."""

    def __init__(self, recording: RecordedMessages, labels: Path | None = None, *, labelled: bool = True):
        super().__init__(recording, labels, labelled=labelled)
        self.rows = RecordedRows(self.labelled_rows, self.listed)

    @cached_property
    def own_columns(self) -> dict[str, Table]:
        """Party -> its own columns, of files beside the messages."""
        tables = {party: Table() for party in self.features}
        for party, table in tables.items():
            held = self.features[party]
            values = {"numeric": torch.from_numpy(held.numeric), "categorical": torch.from_numpy(held.categorical)}
            table.put(torch.from_numpy(held.ids), values)
        return tables

    def with_columns(self, round_: Round) -> Round:
        if not self.own_columns:
            return round_
        facts = dict(round_.facts)
        for party, table in self.own_columns.items():
            if party in facts and OwnColumns not in facts[party]:
                columns = table.of(round_.ids)
                facts[party] = {**facts[party], OwnColumns: OwnColumns(columns["numeric"], columns["categorical"])}
        return Round(round_.epoch, round_.step, round_.ids, facts=facts, private=round_.private)

    def known(self, attacks: Mapping[str, Attack], generators: Generators, canaries: Canaries) -> KnownRows | None:
        """Rows whose label attackers know: the recorded ones, or drawn among rows of the first epoch."""
        most = max((attack.threat.known_rows for attack in attacks.values()), default=0)
        path = self.recording.folder / KNOWN
        if is_there(path):
            known = read_labels(path, self.rows.classes, links=False)
            kept = np.isin(known.ids, self.ids.of_first) if self.head is None else np.ones(len(known.ids), np.bool_)
            if len(known.ids) and most > int(kept.sum()):
                self.notes.append(f"{KNOWN} has {int(kept.sum())} rows of the first epoch, and an attack would know {most}")
            return KnownRows.recorded(torch.from_numpy(known.ids[kept]), torch.from_numpy(known.labels[kept]))
        if not most or not self.labelled:
            return KnownRows.recorded(*torch.empty((2, 0), dtype=torch.int64))
        first = self.ids.of_first
        table = Labels(first, self.labelled_rows.labels(first), np.zeros(len(first), np.bool_))
        rows = RecordedRows(LabelledRows(table, self.rows.classes))
        return KnownRows(rows, max(most, USUALLY_KNOWN), generators["known rows"], canaries)
