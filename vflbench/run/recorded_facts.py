"""What a recording is enough for, read without its messages: its rows, the facts of each seat, and which attacks can run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.facts import BatchHints, ClassHints, ClassShares, Embeddings, Known, OwnColumns, OwnModel
from vflbench.messages.manifest import FEATURES, KNOWN, LABELS
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.row_files import Features, Labels, named_labels, read_features, read_ids, read_labels
from vflbench.messages.run_head import SAMPLES, RunHead
from vflbench.messages.threat import Seat
from vflbench.plain_files import is_there
from vflbench.run.attackers import unmet_attacks
from vflbench.run.labelled_rows import LabelledRows

NEEDS_SHARES = "it knows the shares of the classes: --class-shares 0.9,0.1 gives them, or class_shares in manifest.json"
"""Why an attack can't run where no labels are."""

_ONCE = 1.1  # visits of a row in an epoch; a run draws left-over rows again
_MOST_SAMPLES = 10  # files; a run writes two


class RecordedFacts:
    """A recording with the labels that answers are graded against. labels: in place of labels.parquet. labelled: False to do
    without; then the id of a row stands for its label, and attacks that know any but those in known.parquet can't run.

    head: of vflbench's own run; None for others. seed: of generators. labelled_rows: by id. listed: samples that the run
    drew, by how many rows it asked for. features: party -> its own columns, of files beside the messages. notes: lines that
    a user must not miss.
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
        self.listed = _listed(recording.folder / SAMPLES) if self.head is not None else {}
        self.labelled_rows = LabelledRows(table, manifest.classes, manifest.class_shares, labelled=labelled)
        truth = self.labelled_rows.labels(self.ids.all)  # raises where one is missing
        self.notes = _notes(recording)
        if self.ids.visits > _ONCE:
            text = f"rows come up to {self.ids.visits:.1f} times in an epoch, in the mean: batches share rows, so intervals"
            self.notes.append(f"{text} are too narrow; record every pass over the data as an epoch of its own")
        if labelled and len(table.ids) and len(truth) and bool((truth == truth[0]).all()):
            self.notes.append("all rows of these messages are of one class, so that no attack can be scored")
        self.features = self._features()

    def _labels(self, path: Path | None) -> Labels:
        named, path = path is not None, path or self.recording.folder / LABELS
        if not is_there(path):
            problem = f"there are no labels to grade answers with: no {path.name}; --labels FILE names them,"
            problem += " rec.label(ids, labels) of a Recording writes them, and --scores-only DIR attacks without any"
            raise UserError(problem, key="recording", value=self.recording.folder)
        classes = self.recording.manifest.classes
        return named_labels(path, classes, "--labels") if named else read_labels(path, classes, links=False)

    def _features(self) -> dict[str, Features]:
        found: dict[str, Features] = {}
        folder, parties = self.recording.folder, self.recording.manifest.non_label_parties
        paths = {party: folder / FEATURES / f"{party}.parquet" for party in parties}
        if len(parties) == 1 and not is_there(paths[parties[0]]):
            paths[parties[0]] = folder / f"{FEATURES}.parquet"
        for party, path in paths.items():
            if is_there(path):
                found[party] = read_features(path)
                if not bool(_is_among(self.ids.all, np.sort(found[party].ids)).all()):
                    raise UserError("it lacks rows of the messages", key=path.name, value=path)
        return found

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        """The facts that an attacker at that seat has in an audit."""
        offered = self.recording.offers(seat)
        if seat is Seat.NON_LABEL:
            if self.features and set(self.features) == set(self.recording.manifest.non_label_parties):
                offered |= {OwnColumns}
            if Embeddings in offered:
                offered |= {OwnModel}
        return offered

    def skipped(self, attacks: Mapping[str, Attack]) -> dict[str, str]:
        """Attack -> why it can't run on this recording."""
        cheating = [] if self.head is None else self.head.cheating
        found = unmet_attacks(attacks, self.offers, self.labelled_rows.classes, cheating=cheating, where="this recording")
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
            return NEEDS_SHARES
        return ""


@dataclass(frozen=True)
class _Ids:
    """Ids of a recording. all, of_first: (m,) in rising order, of all rounds, and of the first epoch. repeat: whether a row
    comes in two epochs. first: rows of the first round. visits: how often a row comes in an epoch, in the mean, at most.
    """

    all: np.ndarray
    of_first: np.ndarray
    repeat: bool
    first: int
    visits: float = 1.0

    @classmethod
    def of(cls, recording: RecordedMessages) -> "_Ids":
        everything, of_first, repeat, first = np.empty(0, np.int64), None, False, 0
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


def _among(table: Labels, ids: np.ndarray) -> Labels:
    """The labels of these rows alone, in the order of their ids."""
    kept = _is_among(table.ids, ids)
    if not bool((table.ids[1:] > table.ids[:-1]).all()):
        order = table.ids.argsort()
        kept = order[kept[order]]
    elif bool(kept.all()):
        return table
    return Labels(table.ids[kept], table.labels[kept], table.canary[kept])


def _rising(parts: list[np.ndarray]) -> np.ndarray:
    """Each id once, in rising order. Empties `parts`: of some 10^7 ids, every copy counts."""
    ids = np.concatenate(parts)
    parts.clear()
    is_new = np.ones(len(ids), np.bool_)
    if bool(np.greater(ids[1:], ids[:-1], out=is_new[1:]).all()):
        return ids
    ids.sort()
    np.not_equal(ids[1:], ids[:-1], out=is_new[1:])
    return ids if bool(is_new.all()) else ids[is_new]


def _is_among(ids: np.ndarray, rising: np.ndarray) -> np.ndarray:
    """(n,) whether each is one of the others, which stand in rising order."""
    if np.array_equal(ids, rising):
        return np.ones(len(ids), np.bool_)
    found = np.zeros(len(ids), np.bool_)
    for start in range(0, len(ids) if len(rising) else 0, 2**20):
        some = ids[start : start + 2**20]
        place = np.searchsorted(rising, some).clip(max=len(rising) - 1)
        found[start : start + 2**20] = rising[place] == some
    return found


def _unlabelled(ids: np.ndarray) -> Labels:
    return Labels(ids, ids, np.zeros(len(ids), np.bool_))


def _notes(recording: RecordedMessages) -> list[str]:
    """What a reader must know of how values were recorded."""
    there = {party for parties in recording.seats.values() for party in parties}
    absent = [party for party in recording.manifest.non_label_parties if party not in there]
    notes = [f"party {party} has no messages here: nothing is known of what it could learn" for party in absent]
    if not there.difference({recording.manifest.labels}):
        holder = recording.manifest.labels
        notes.append(f"all messages are of party {holder}, which holds the labels, as `labels` in manifest.json says")
    for party, coverage in recording.coverage.items():
        for name in sorted(coverage.types - {"float32"}):
            notes.append(f"messages of party {party} are recorded in {name}; attacks compute with these values in float32")
    return notes


def _listed(folder: Path) -> dict[int, np.ndarray]:
    """Samples that the recorded run drew, by how many rows it asked for."""
    if folder.is_symlink() or not folder.is_dir():
        return {}
    paths = [path for path in folder.glob("*.parquet") if path.stem.isdecimal() and len(path.stem) < 10]
    return {int(path.stem): read_ids(path) for path in sorted(paths)[:_MOST_SAMPLES]}
