"""A recording with labels: the rows, the facts that attackers have of it, and what it isn't enough for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.fact import Fact
from vflbench.messages.facts import BatchHints, ClassHints, ClassShares, Embeddings, Known, OwnColumns, OwnModel
from vflbench.messages.manifest import FEATURES, KNOWN, LABELS
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.round import Round
from vflbench.messages.row_files import Labels, read_features, read_ids, read_labels
from vflbench.messages.run_head import SAMPLES, RunHead
from vflbench.messages.threat import Seat
from vflbench.run.canaries import Canaries
from vflbench.run.end_of_epoch import ASKED_ROWS
from vflbench.run.known_rows import USUALLY_KNOWN, KnownRows
from vflbench.run.posts import unmet_attacks
from vflbench.run.recorded_rows import RecordedRows, Table


class RecordedSource:
    """A recording with the labels that answers are graded against. labels: in place of labels.parquet. labelled: False to do
    without; then the id of a row stands for its label, and attacks that know any but those in known.parquet can't run.

    head: of vflbench's own run; None for others. seed: of generators. notes: lines that a user must not miss.
    """

    def __init__(self, recording: RecordedMessages, labels: Path | None = None, *, labelled: bool = True):
        self.recording, self.labelled = recording, labelled
        self.head = RunHead.read(recording.folder) if labelled else None
        self.seed = 0 if self.head is None else self.head.seed
        manifest = recording.manifest
        self.ids = _Ids.of(recording)
        table = self._labels(labels) if labelled else _unlabelled(self.ids.all)
        if self.head is None:
            table = _among(table, self.ids.all)
        listed = {}
        for wanted in (ASKED_ROWS,):
            if (recording.folder / SAMPLES / f"{wanted}.parquet").is_file():
                listed[wanted] = read_ids(recording.folder / SAMPLES / f"{wanted}.parquet")
        shares = manifest.class_shares
        self.rows = RecordedRows(
            table, manifest.classes, None if shares is None else tuple(shares), listed, labelled=labelled
        )
        self.rows.labels(self.ids.all)  # raises where one is missing
        self.notes = _notes(recording)
        self._features()

    def _labels(self, path: Path | None) -> Labels:
        path = self.recording.folder / LABELS if path is None else path
        if not path.is_file():
            problem = f"there are no labels to grade answers with: no {path.name}; --labels FILE names them, and"
            problem += " --scores-only DIR attacks without any"
            raise UserError(problem, key="recording", value=self.recording.folder)
        return read_labels(path, self.recording.manifest.classes)

    def _features(self) -> None:
        self.own_columns: dict[str, Table] = {}
        folder, parties = self.recording.folder, self.recording.manifest.non_label_parties
        paths = {party: folder / FEATURES / f"{party}.parquet" for party in parties}
        if len(parties) == 1 and not paths[parties[0]].is_file():
            paths[parties[0]] = folder / f"{FEATURES}.parquet"
        for party, path in paths.items():
            if path.is_file() and not path.is_symlink():
                ids, columns = read_features(path)
                self.own_columns[party] = Table()
                self.own_columns[party].put(ids, {"numeric": columns.numeric, "categorical": columns.categorical})
                if not bool(torch.isin(self.ids.all, ids).all()):
                    raise UserError("it lacks rows of the messages", key=path.name, value=path)

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        """The facts that an attacker at that seat has in an audit."""
        offered = self.recording.offers(seat)
        if seat is Seat.NON_LABEL:
            if self.own_columns and set(self.own_columns) == set(self.recording.manifest.non_label_parties):
                offered |= {OwnColumns}
            if Embeddings in offered:
                offered |= {OwnModel}
        return offered

    def skipped(self, attacks: Mapping[str, Attack]) -> dict[str, str]:
        """Attack -> why it can't run on this recording."""
        cheating = [] if self.head is None else self.head.cheating
        found = unmet_attacks(attacks, self.offers, self.rows.classes, cheating=cheating, where="this recording")
        lacking = {name: self._lacking(attack) for name, attack in attacks.items() if name not in found}
        return found | {name: reason for name, reason in lacking.items() if reason}

    def _lacking(self, attack: Attack) -> str:
        """Why a recording with all facts of the attack's threat isn't enough for it; empty if it is."""
        if not self.labelled and (reason := self._lacks_labels(attack)):
            return reason
        if Auxiliary in attack.threat.knows:
            return f"Auxiliary is not in this recording for the {attack.threat.seat}"
        if not attack.follows:
            return ""
        if self.head is not None and not self.recording.manifest.complete:
            return "it follows rows through every round, and this recording has the audited rounds only"
        return (
            ""
            if self.ids.repeat or self.head is not None
            else "it joins what is seen of a row over epochs, and no id comes in two of them"
        )

    def _lacks_labels(self, attack: Attack) -> str:
        """Why it can't run where no labels are, beside those that the attacker knows."""
        knows = attack.threat.knows
        if not knows.isdisjoint({BatchHints, ClassHints}):
            return "it is given the labels of some rows of each batch, and there are no labels here"
        if Known in knows and not (self.recording.folder / KNOWN).is_file():
            return f"it knows the labels of some rows, and there is no {KNOWN} here"
        if ClassShares in knows and self.recording.manifest.class_shares is None:
            return "it knows the shares of the classes, and manifest.json has no class_shares"
        return ""

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
        if path.is_file() and not path.is_symlink():
            known = read_labels(path, self.rows.classes)
            kept = (
                torch.ones_like(known.ids, dtype=torch.bool)
                if self.head is not None
                else torch.isin(known.ids, self.ids.of_first)
            )
            if len(known.ids) and most > int(kept.sum()):
                self.notes.append(f"{KNOWN} has {int(kept.sum())} rows of the first epoch, and an attack would know {most}")
            return KnownRows.recorded(known.ids[kept], known.labels[kept])
        if not most or not self.labelled:
            return KnownRows.recorded(*torch.empty((2, 0), dtype=torch.int64))
        table = Labels(
            self.ids.of_first, self.rows.labels(self.ids.of_first), torch.zeros(len(self.ids.of_first), dtype=torch.bool)
        )
        first = RecordedRows(table, self.rows.classes)
        return KnownRows(first, max(most, USUALLY_KNOWN), generators["known rows"], canaries)


@dataclass(frozen=True)
class _Ids:
    """Ids of a recording. all, of_first: (m,) in rising order, of all rounds, and of the first epoch. repeat: whether a row
    comes in two epochs. first: rows of the first round.
    """

    all: Tensor
    of_first: Tensor
    repeat: bool
    first: int

    @classmethod
    def of(cls, recording: RecordedMessages) -> "_Ids":
        everything, of_first, repeat, first = torch.empty(0, dtype=torch.int64), None, False, 0
        for epoch in recording.epochs:
            parts = list(recording.ids(epoch))
            first = first or len(parts[0])
            here = _in_order(torch.cat(parts))
            if of_first is None:
                everything = of_first = here
            elif not torch.equal(here, everything):
                repeat = repeat or bool(torch.isin(here, everything).any())
                everything = torch.cat([everything, here]).unique()
            else:
                repeat = repeat or len(here) > 0
        return cls(everything, everything if of_first is None else of_first, repeat, first)


def _in_order(ids: Tensor) -> Tensor:
    """The ids in rising order, each of them once."""
    return ids if bool((ids[1:] > ids[:-1]).all()) else ids.unique()


def _among(table: Labels, ids: Tensor) -> Labels:
    """The labels of these rows alone, in the order of their ids."""
    if torch.equal(table.ids, ids):
        return table
    order = table.ids.argsort()
    kept = order[torch.isin(table.ids[order], ids)]
    return Labels(table.ids[kept], table.labels[kept], table.canary[kept])


def _unlabelled(ids: Tensor) -> Labels:
    return Labels(ids, ids, torch.zeros_like(ids, dtype=torch.bool))


def _notes(recording: RecordedMessages) -> list[str]:
    """What a reader must know of how values were recorded."""
    notes = []
    for party, coverage in recording.coverage.items():
        for kind in sorted(map(str, coverage.types - {torch.float32})):
            name = kind.removeprefix("torch.")
            notes.append(f"messages of party {party} are recorded in {name}; attacks compute with these values in float32")
    return notes
