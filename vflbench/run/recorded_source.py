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
from vflbench.plain_files import is_there
from vflbench.run.canaries import Canaries
from vflbench.run.known_rows import USUALLY_KNOWN, KnownRows
from vflbench.run.posts import unmet_attacks
from vflbench.run.recorded_rows import RecordedRows, Table

_ONCE = 1.1  # visits of a row in an epoch; a run draws left-over rows again
_MOST_SAMPLES = 10  # files; a run writes two


class RecordedSource:
    """A recording with the labels that answers are graded against. labels: in place of labels.parquet. labelled: False to do
    without; then the id of a row stands for its label, and attacks that know any but those in known.parquet can't run.

    head: of vflbench's own run; None for others. seed: of generators. notes: lines that a user must not miss.
    """

    def __init__(self, recording: RecordedMessages, labels: Path | None = None, *, labelled: bool = True):
        self.recording, self.labelled = recording, labelled
        self.head = RunHead.read(recording.folder) if labelled else None
        if self.head is not None:
            self.head.check_rounds(recording.epochs, recording.folder)
        self.seed = 0 if self.head is None else self.head.seed
        manifest = recording.manifest
        self.ids = _Ids.of(recording)
        table = self._labels(labels) if labelled else _unlabelled(self.ids.all)
        if self.head is None:
            table = _among(table, self.ids.all)
        listed = _listed(recording.folder / SAMPLES) if self.head is not None else {}
        shares = manifest.class_shares
        self.rows = RecordedRows(
            table, manifest.classes, None if shares is None else tuple(shares), listed, labelled=labelled
        )
        self.rows.labels(self.ids.all)  # raises where one is missing
        self.notes = _notes(recording)
        if self.ids.visits > _ONCE:
            text = f"rows come up to {self.ids.visits:.1f} times in an epoch, in the mean: batches share rows, so intervals"
            self.notes.append(f"{text} are too narrow; record every pass over the data as an epoch of its own")
        if labelled and len(self.rows) and int(self.rows.labels(self.ids.all).unique().numel()) == 1:
            self.notes.append("all rows of these messages are of one class, so that no attack can be scored")
        self._features()

    def _labels(self, path: Path | None) -> Labels:
        named, path = path is not None, path or self.recording.folder / LABELS
        if not is_there(path):
            problem = f"there are no labels to grade answers with: no {path.name}; --labels FILE names them, and"
            problem += " --scores-only DIR attacks without any"
            raise UserError(problem, key="recording", value=self.recording.folder)
        return read_labels(path, self.recording.manifest.classes, links=named)

    def _features(self) -> None:
        self.own_columns: dict[str, Table] = {}
        folder, parties = self.recording.folder, self.recording.manifest.non_label_parties
        paths = {party: folder / FEATURES / f"{party}.parquet" for party in parties}
        if len(parties) == 1 and not is_there(paths[parties[0]]):
            paths[parties[0]] = folder / f"{FEATURES}.parquet"
        for party, path in paths.items():
            if is_there(path):
                ids, columns = read_features(path)
                self.own_columns[party] = Table()
                self.own_columns[party].put(ids, {"numeric": columns.numeric, "categorical": columns.categorical})
                if not bool(_is_among(self.ids.all, ids.sort().values).all()):
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
            return f"auxiliary rows are not in this recording for the {attack.threat.seat}"
        if not attack.follows and not attack.attends:
            return ""
        if self.head is not None and not self.recording.manifest.complete:
            return "it follows rows through every round, and this recording has the audited rounds only"
        if not attack.follows:
            return ""
        if self.head is None and not self.ids.repeat:
            return "it joins what is seen of a row over epochs, and no id comes in two of them"
        return ""

    def _lacks_labels(self, attack: Attack) -> str:
        """Why it can't run where no labels are, beside those that the attacker knows."""
        knows = attack.threat.knows
        if not knows.isdisjoint({BatchHints, ClassHints}):
            return "it is given the labels of some rows of each batch, and there are no labels here"
        if Known in knows and not is_there(self.recording.folder / KNOWN):
            return f"it knows the labels of some rows, and there is no {KNOWN} here"
        if ClassShares in knows and self.recording.manifest.class_shares is None:
            return "it knows the shares of the classes: --class-shares 0.9,0.1 gives them, or class_shares in manifest.json"
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
        if is_there(path):
            known = read_labels(path, self.rows.classes, links=False)
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
    comes in two epochs. first: rows of the first round. visits: how often a row comes in an epoch, in the mean, at most.
    """

    all: Tensor
    of_first: Tensor
    repeat: bool
    first: int
    visits: float = 1.0

    @classmethod
    def of(cls, recording: RecordedMessages) -> "_Ids":
        everything, of_first, repeat, first = torch.empty(0, dtype=torch.int64), None, False, 0
        visits = 1.0
        for epoch in recording.epochs:
            parts = list(recording.ids(epoch))
            first = first or len(parts[0])
            met = sum(map(len, parts))
            here = _rising(parts)
            visits = max(visits, met / max(1, len(here)))
            repeat = repeat or bool(_is_among(here, everything).any())
            everything = here if of_first is None else _rising([everything, here])
            of_first = here if of_first is None else of_first
        return cls(everything, everything if of_first is None else of_first, repeat, first, visits)


def _among(table: Labels, ids: Tensor) -> Labels:
    """The labels of these rows alone, in the order of their ids."""
    kept = _is_among(table.ids, ids)
    if not bool((table.ids[1:] > table.ids[:-1]).all()):
        order = table.ids.argsort()
        kept = order[kept[order]]
    elif bool(kept.all()):
        return table
    return Labels(table.ids[kept], table.labels[kept], table.canary[kept])


def _rising(parts: list[Tensor]) -> Tensor:
    """Each id once, in rising order. Empties `parts`: of some 10^7 ids, every copy counts."""
    ids = torch.cat(parts)
    parts.clear()
    is_new = torch.ones_like(ids, dtype=torch.bool)
    if bool(torch.gt(ids[1:], ids[:-1], out=is_new[1:]).all()):
        return ids
    ids.numpy().sort()
    torch.ne(ids[1:], ids[:-1], out=is_new[1:])
    return ids if bool(is_new.all()) else ids[is_new]


def _is_among(ids: Tensor, rising: Tensor) -> Tensor:
    """(n,) whether each is one of the others, which stand in rising order."""
    if torch.equal(ids, rising):
        return torch.ones_like(ids, dtype=torch.bool)
    found = torch.zeros_like(ids, dtype=torch.bool)
    for start in range(0, len(ids) if len(rising) else 0, 2**20):
        some = ids[start : start + 2**20]
        place = torch.searchsorted(rising, some).clamp_(max=len(rising) - 1)
        found[start : start + 2**20] = rising[place] == some
    return found


def _unlabelled(ids: Tensor) -> Labels:
    return Labels(ids, ids, torch.zeros_like(ids, dtype=torch.bool))


def _notes(recording: RecordedMessages) -> list[str]:
    """What a reader must know of how values were recorded."""
    there = {party for parties in recording.seats.values() for party in parties}
    absent = [party for party in recording.manifest.non_label_parties if party not in there]
    notes = [f"party {party} has no messages here: nothing is known of what it could learn" for party in absent]
    if not there.difference({recording.manifest.labels}):
        holder = recording.manifest.labels
        notes.append(f"all messages are of party {holder}, which holds the labels, as `labels` in manifest.json says")
    for party, coverage in recording.coverage.items():
        for kind in sorted(map(str, coverage.types - {torch.float32})):
            name = kind.removeprefix("torch.")
            notes.append(f"messages of party {party} are recorded in {name}; attacks compute with these values in float32")
    return notes


def _listed(folder: Path) -> dict[int, Tensor]:
    """Samples that the recorded run drew, by how many rows it asked for."""
    if folder.is_symlink() or not folder.is_dir():
        return {}
    paths = [path for path in folder.glob("*.parquet") if path.stem.isdecimal() and len(path.stem) < 10]
    return {int(path.stem): read_ids(path) for path in sorted(paths)[:_MOST_SAMPLES]}
