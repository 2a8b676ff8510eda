"""A recording of a run's messages: written beside the run, and read again as what an auditor needs of it.

Its files are described in docs/reference/messages.md.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench import __version__
from vflbench.attacks.base import Attack
from vflbench.data.rows import BUFFER_ROWS, TrainTest, evenly_spaced
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.errors import UserError
from vflbench.files import is_there
from vflbench.generators import Generators
from vflbench.messages import facts
from vflbench.messages import recording_format as files
from vflbench.messages.recordings import RecordedMessages, write_private
from vflbench.messages.tables import LabelTable, named_labels, read_features, read_ids, read_labels, write_rows
from vflbench.messages.threat import Facts, Role, Round, Unavailable
from vflbench.metrics.privacy import Release
from vflbench.protocols.base import Session
from vflbench.run.attackers import Canaries, RowIndex, draw_known, unmet_attacks
from vflbench.run.auditor import ASKED_ROWS, Auditor
from vflbench.run.settings import Settings
from vflbench.run.summary import test_rows

ROUNDS = "recording"
"""The folder within a run's folder."""
NEEDS_SHARES = "it knows the shares of the classes: --class-shares 0.9,0.1 gives them, or class_shares in manifest.json"
"""Why an attack can't run where no labels are."""

_MOST_VISITS = 1.1  # of a row in an epoch; a run draws left-over rows again


@dataclass
class RoundRecorder:
    """Writes the rounds that `record` names, if any, into a recording. auditor: of the run. release: the label privacy that
    is promised, if any.
    """

    settings: Settings
    folder: Path
    session: Session
    data: TrainTest
    auditor: Auditor
    release: Release | None

    def __post_init__(self) -> None:
        self._folder, self._complete = self.folder / ROUNDS, self.settings.record == "messages"
        self.wants_at_the_end = frozenset[type[facts.Fact]](
            {facts.LocalModel, facts.PartyFeatures} if self.settings.record != "none" else ()
        )
        self._manifest: files.RecordingManifest | None = None
        self._wanted: set[int] = set()

    def begin_epoch(self, number: int, steps: int, *, goes_on: bool = False) -> None:
        """Note how many rounds the epoch has, and which are audited: the same in every audited epoch. goes_on: within it."""
        if self.settings.record == "none":
            return
        if number == 0 and not goes_on:
            for path in (self._folder / files.MESSAGES).glob("*-*.safetensors"):  # of a run that is computed again
                path.unlink()
            self._manifest = None
        elif self._manifest is None and (self._folder / files.MANIFEST).is_file():
            self._manifest = files.manifest_in(self._folder)  # of the same run, which was stopped and goes on
        how = self.settings.audit
        asked = {name: getattr(how, name) for name in ("batches", "epochs", "probe", "dcor")}
        self._wanted = set(range(steps)) if self._complete else set(self.auditor.audited)
        before = [] if how.epochs == "last" else sorted(self._wanted)
        self._head = files.RunHead(
            seed=self.settings.seed,
            **asked,
            cheating=tuple(self.auditor.cheating),
            steps=[steps] * (number + 1),
            recorded=[] if self._complete else [*[before] * number, sorted(self._wanted)],
            threads=torch.get_num_threads(),
            test_rows=test_rows(self.data),
        )

    def wants(self, step: int) -> frozenset[type[facts.Fact]]:
        """The facts to collect of a round beside those that attacks read."""
        return frozenset(files.FACTS.values() if step in self._wanted else ())

    def see(self, round_: Round) -> None:
        """Write the round if it is one of those to keep. Raises UserError if it can't be written."""
        if round_.step not in self._wanted:
            return
        epoch, step = round_.epoch, round_.step
        with self._writing():
            if self._manifest is None:
                self._manifest = self._begin(round_)
            for party, of_party in round_.facts.items():
                kept = (
                    fact
                    for kind, fact in of_party.items()
                    if not (kind is facts.PartyFeatures and party == files.LABEL_HOLDER)
                )
                self._write(party, round_.ids, kept, epoch=epoch, step=step)
            if round_.private is not None:
                write_private(self._folder, epoch, step, round_.private)

    def end_epoch(self, epoch: int, known: Mapping[str, Facts]) -> None:
        """Write what each party's network makes now of the rows about which the auditor asks."""
        if self._manifest is None:
            return
        ids = torch.cat(self.auditor.parts_at_the_end).unique()
        with self._writing():
            self._write_head()
            for party, of_party in known.items() if len(ids) and self._wanted else ():
                model = of_party.get(facts.LocalModel)
                if isinstance(model, facts.LocalModel):
                    columns = self.auditor.rows.features(party, ids)
                    made = (facts.Embeddings(model.embed(ids)), facts.PartyFeatures(columns.numeric, columns.categorical))
                    self._write(party, ids, made, epoch=epoch, step=0, phase="end")

    def note_model(self, utility: Mapping[str, Mapping[str, float]]) -> None:
        """What the model is worth now, for comparison. utility: split -> metric -> value."""
        if self._manifest is not None:
            areas = {f"{split}_auc": of["auc"] for split, of in utility.items() if 0 <= of["auc"] <= 1}  # no nan
            self._manifest = replace(self._manifest, model=areas)
            with self._writing():
                files.write_manifest(self._folder, self._manifest)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            problem = f"messages can't be recorded: {getattr(error, 'strerror', None) or error}"
            raise UserError(problem, key="record", value=self.settings.record) from error

    def _write(self, party: str, ids: Tensor, held: Iterable[facts.Fact], **when: Any) -> None:
        tensors = {name: values for fact in held for name, values in files.packed(fact).items()}
        files.write_batch_file(self._folder, party, ids.cpu(), tensors, **when)

    def _begin(self, round_: Round) -> files.RecordingManifest:
        """Write what is known before the first round; labels of every training row in their order, as trained on."""
        train, parties = self.data.train, {}
        for party in {**self.session.layers(), **round_.facts}:
            layers = getattr(round_.facts.get(party, {}).get(facts.Embeddings), "layers", {})
            cut = [layer for layer in self.session.cut_layers().get(party, ()) if layer in layers]
            parties[party] = files.PartyLayers({layer: h.shape[1] for layer, h in layers.items()}, cut)
        updates = next(
            (f for of_party in round_.facts.values() for f in of_party.values() if isinstance(f, facts.Updates)), None
        )
        manifest = files.RecordingManifest(
            classes=train.classes,
            parties=parties,
            producer=f"vflbench train, version {__version__}",
            labels=files.LABEL_HOLDER,
            class_shares=list(train.class_ratios),
            batch_size=self.auditor.group,
            complete=self._complete,
            claims=files.Claims(files.LabelDpClaim(self.release.epsilon, self.release.fresh) if self.release else None),
            rules=updates.rules if updates else None,
        )
        files.write_manifest(self._folder, manifest)
        self._write_head()
        ids, labels = map(torch.cat, zip(*((block.ids, block.labels) for block in train.blocks(None)), strict=True))
        labels = torch.cat([self.auditor.rows.labels(some) for some in ids.split(BUFFER_ROWS)])
        digest = bytes.fromhex(digest_of(ids.cpu().numpy(), labels.cpu().numpy()))
        columns = {"id": ids, "label": labels, "canary": self.auditor.canaries.find(ids)[0]}
        write_rows(self._folder / files.LABELS, columns, digest)
        write_rows(self._folder / files.KNOWN, {"id": self.auditor.known.ids, "label": self.auditor.known.labels})
        if len(ids) > BUFFER_ROWS:  # of these, a sample is whole chunks of rows
            followed = max((one.attack.follows for one in self.auditor.attackers), default=0)
            for wanted in {ASKED_ROWS, followed} - {0}:
                write_rows(self._folder / files.SAMPLES / f"{wanted}.parquet", {"id": train.sample(wanted).ids})
        return manifest

    def _write_head(self) -> None:
        """Nothing where parties live elsewhere: attacks of the run had more than what crossed, which is recorded here, so an
        audit can't repeat its numbers.
        """
        if not self.session.remote():
            files.write_json(self._folder / files.RUN, asdict(self._head))


class RowTable:
    """Values of rows by id: the last that were put in. names: name -> (n, d)."""

    def __init__(self) -> None:
        self._parts: list[tuple[RowIndex, Mapping[str, Tensor]]] = []

    def put(self, ids: Tensor, values: Mapping[str, Tensor]) -> None:
        if len(ids):
            self._parts.insert(0, (RowIndex(ids), values))

    def of(self, ids: Tensor) -> dict[str, Tensor]:
        """name -> (n, d) of these rows. Raises Unavailable if one isn't there."""
        if not bool(self._joined()[0].find(ids)[0].all()):
            raise Unavailable("the recording doesn't have what the network makes of all these rows")
        return self.filled(ids)

    def filled(self, ids: Tensor) -> dict[str, Tensor]:
        """The same, with zeros for rows that aren't there."""
        index, values = self._joined()
        there, place = index.find(ids)
        return {name: torch.where(there[:, None], of[place], 0) for name, of in values.items()}

    def _joined(self) -> tuple[RowIndex, Mapping[str, Tensor]]:
        """One copy of each row; an index finds the first of several."""
        if len(self._parts) > 1:
            every = RowIndex(torch.cat([index.ids for index, _ in self._parts]))
            ids = every.ids.unique()
            place, parts = every.find(ids)[1], [values for _, values in self._parts]
            names = [name for name in parts[0] if all(name in values for values in parts)]
            self._parts = [(RowIndex(ids), {name: torch.cat([values[name] for values in parts])[place] for name in names})]
        return self._parts[0] if self._parts else (RowIndex(torch.empty(0, dtype=torch.int64)), {})


def digest_of(ids: np.ndarray, labels: np.ndarray) -> str:
    """SHA-256 over ids and labels, in the order of the ids."""
    order = ids.argsort()
    return hashlib.sha256(ids[order].tobytes() + labels[order].tobytes()).hexdigest()


class RecordedRows:
    """Training rows by id, as far as a recording has them. It serves as population and as lookup.

    table: their labels. shares: of the classes, where they are recorded; else those of the rows. listed: samples that the
    recorded run drew, by how many rows it asked for. labelled: False for a table that has ids in place of labels.
    fingerprint: the same for the same rows, however they are audited: canaries count with their own labels.
    """

    def __init__(
        self,
        table: LabelTable,
        classes: int,
        shares: Sequence[float] | None = None,
        listed: Mapping[int, np.ndarray] | None = None,
        *,
        labelled: bool = True,
    ):
        self.device, self.classes, self._listed = torch.device("cpu"), classes, listed or {}
        self._rows = RowIndex(torch.from_numpy(table.ids), torch.from_numpy(table.labels))
        self.canary_ids = torch.from_numpy(table.ids[table.canary])
        self.fingerprint = table.rows or digest_of(table.ids, table.labels)
        counts = torch.bincount(self._rows.labels if labelled else torch.arange(classes), minlength=classes).double()
        self.class_ratios = tuple((counts / counts.sum()).tolist() if shares is None else shares)
        self.known_layers: dict[str, RowTable] = {}
        self.known_columns: dict[str, RowTable] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, wanted: int) -> VerticalTable:
        """Training rows, spread evenly, as a run chooses them."""
        listed = self._listed.get(wanted)
        ids = self._rows.ids[evenly_spaced(len(self), wanted)] if listed is None else torch.from_numpy(listed)
        return VerticalTable(ids, {}, self.labels(ids), self.classes)

    def labels(self, ids: Tensor) -> Tensor:
        """(n,) int64. Raises UserError for a row that isn't there."""
        there, place = self._rows.find(ids)
        if len(missing := ids[~there]):
            problem = f"there is no label of {len(missing)} rows of a batch, the first with id {int(missing[0])}"
            raise UserError(problem, key="labels.parquet")
        return self._rows.labels[place]

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's columns, as far as they are known at the end of this epoch."""
        if party not in self.known_columns:
            raise Unavailable(f"the columns of party {party} at the end of an epoch are not in this recording")
        return Features(Columns((), (), ()), **self.known_columns[party].of(ids))

    def rows(self, ids: Tensor) -> VerticalTable:
        raise Unavailable("a recording has no columns of all parties")

    def keep(self, round_: Round, kept: Tensor) -> None:
        """Know from now on what parties have of these rows of a round. kept: (n,) bool."""
        for party, of_party in round_.facts.items():
            columns = of_party.get(facts.PartyFeatures)
            if values := {layer: h[kept] for layer, h in getattr(of_party.get(facts.Embeddings), "layers", {}).items()}:
                self.known_layers.setdefault(party, RowTable()).put(round_.ids[kept], values)
            if isinstance(columns, facts.PartyFeatures):
                self.known_columns.setdefault(party, RowTable()).put(round_.ids[kept], vars(columns.rows(kept)))

    def facts(self, ids: Tensor) -> dict[str, dict[type[facts.Fact], facts.Fact]]:
        """Party -> its model, which knows the layers of rows that are kept, and its columns of the rows `ids`."""
        known: dict[str, dict[type[facts.Fact], facts.Fact]] = {}
        for party, table in self.known_layers.items():
            known[party] = {facts.LocalModel: facts.LocalModel(table.of)}
            if party in self.known_columns:
                known[party][facts.PartyFeatures] = facts.PartyFeatures(**self.known_columns[party].filled(ids))
        return known


class RecordedSource:
    """A recording with the labels that answers are graded against. labels: in place of labels.parquet. shares: of the
    classes, in place of those in manifest.json. labelled: False to do without labels; then the id of a row stands for its
    label, and attacks that know any but those in known.parquet can't run.

    head: of vflbench's own run (is_ours); of others, defaults. rows: by id. ids, first_ids: (m,) in rising order, of
    all rounds, and of the first epoch. repeat: whether a row comes in two epochs. batch_size: rows of a batch.
    party_columns: party -> its columns, of files beside the messages. notes: lines that a user must not miss.
    """

    def __init__(
        self,
        recording: RecordedMessages | Path | str,
        labels: Path | None = None,
        *,
        shares: Sequence[float] | None = None,
        labelled: bool = True,
    ):
        self.recording = recording = recording if isinstance(recording, RecordedMessages) else RecordedMessages(recording)
        self.labelled = labelled
        if shares is not None:
            recording.know_shares(shares)
        head = files.RunHead.read(recording.folder) if labelled else None
        self.head, self.is_ours = head or files.RunHead(batches="all"), head is not None
        if self.is_ours:
            self.head.check_rounds(recording.epochs, recording.folder)
        self.notes = _notes(recording)
        self._read_ids()
        manifest = recording.manifest
        table = self._labels(labels) if labelled else LabelTable(self.ids, self.ids, np.zeros(len(self.ids), bool))
        samples = sorted((recording.folder / files.SAMPLES).glob("*.parquet")) if self.is_ours else ()
        listed = {int(path.stem): read_ids(path) for path in samples if path.stem.isdecimal()}
        self.rows = RecordedRows(table, manifest.classes, manifest.class_shares, listed, labelled=labelled)
        truth = self.rows.labels(torch.from_numpy(self.ids))  # raises where one is missing
        if labelled and len(truth.unique()) == 1:
            self.notes.append("all rows of these messages are of one class, so that no attack can be scored")
        self.party_columns = self._party_columns()
        self.rows.known_columns |= self.party_columns

    def _read_ids(self) -> None:
        epochs, visits = self.recording.epochs, 1.0
        batches: list[np.ndarray] = []
        self.repeat, self.ids = False, np.empty(0, np.int64)
        for epoch in reversed(epochs):  # the first one is left at the end
            batches = list(self.recording.ids(epoch))
            self.first_ids = np.unique(np.concatenate(batches))
            visits = max(visits, sum(map(len, batches)) / max(1, len(self.first_ids)))
            before, self.ids = len(self.ids), np.union1d(self.ids, self.first_ids)
            self.repeat |= len(self.ids) < before + len(self.first_ids)
        self.batch_size = self.recording.manifest.batch_size or len(batches[0])
        if visits > _MOST_VISITS:
            text = f"rows come up to {visits:.1f} times in an epoch, in the mean: batches share rows, so intervals"
            self.notes.append(f"{text} are too narrow; record every pass over the data as an epoch of its own")

    def _labels(self, named: Path | None) -> LabelTable:
        """Of a run of vflbench's own also those of rows that come in no message."""
        path, classes = named or self.recording.folder / files.LABELS, self.recording.manifest.classes
        if not is_there(path):
            problem = f"there are no labels to grade answers with: no {path.name}; --labels FILE names them,"
            problem += " rec.label(ids, labels) of a Recording writes them, and --scores-only DIR attacks without any"
            raise UserError(problem, key="recording", value=self.recording.folder)
        table = named_labels(path, classes, "--labels") if named else read_labels(path, classes, links=False)
        order = table.ids.argsort()
        kept = slice(None) if self.is_ours else order[np.isin(table.ids[order], self.ids)]
        return LabelTable(
            table.ids[kept], table.labels[kept], table.canary[kept], table.rows or digest_of(table.ids, table.labels)
        )

    def _party_columns(self) -> dict[str, RowTable]:
        tables: dict[str, RowTable] = {}
        folder, parties = self.recording.folder, self.recording.manifest.non_label_parties
        for party in parties:
            path = folder / files.FEATURES / f"{party}.parquet"
            if len(parties) == 1 and not is_there(path):
                path = folder / f"{files.FEATURES}.parquet"
            if is_there(path):
                held = read_features(path)
                if not bool(np.isin(self.ids, held.ids).all()):
                    raise UserError("it lacks rows of the messages", key=path.name, value=path)
                values = {"numeric": torch.from_numpy(held.numeric), "categorical": torch.from_numpy(held.categorical)}
                tables.setdefault(party, RowTable()).put(torch.from_numpy(held.ids), values)
        return tables

    def with_columns(self, round_: Round) -> Round:
        """The round with the own columns of files beside the messages."""
        known = dict(round_.facts)
        for party, table in self.party_columns.items():
            if party in known and facts.PartyFeatures not in known[party]:
                known[party] = {**known[party], facts.PartyFeatures: facts.PartyFeatures(**table.of(round_.ids))}
        return replace(round_, facts=known)

    def offers(self, role: Role) -> frozenset[type[facts.Fact]]:
        """The facts that an attacker in that role has in an audit."""
        offered = self.recording.offers(role)
        if role is Role.NON_LABEL:
            if self.party_columns and set(self.party_columns) == set(self.recording.manifest.non_label_parties):
                offered |= {facts.PartyFeatures}
            if facts.Embeddings in offered:
                offered |= {facts.LocalModel}
        return offered

    def skipped(self, attacks: Mapping[str, Attack]) -> dict[str, str]:
        """Attack -> why it can't run on this recording."""
        unmet = unmet_attacks(attacks, self.offers, self.rows.classes, cheating=self.head.cheating, where="this recording")
        lacking = {name: self._lacking(attack) for name, attack in attacks.items() if name not in unmet}
        return unmet | {name: reason for name, reason in lacking.items() if reason}

    def _lacking(self, attack: Attack) -> str:
        """Why a recording with all facts of the attack's threat isn't enough for it; empty if it is."""
        knows = attack.threat.knows
        if not self.labelled:
            if not knows.isdisjoint({facts.BatchHints, facts.ClassHints}):
                return "it is given the labels of some rows of each batch, and there are no labels here"
            if facts.Known in knows and not is_there(self.recording.folder / files.KNOWN):
                return f"it knows the labels of some rows, and there is no {files.KNOWN} here"
            if facts.ClassShares in knows and self.recording.manifest.class_shares is None:
                return NEEDS_SHARES
        if facts.Auxiliary in knows:
            return f"auxiliary rows are not in this recording for the {attack.threat.role}"
        if (attack.follows or attack.every_round) and self.is_ours and not self.recording.manifest.complete:
            return "it follows rows through every round, and this recording has the audited rounds only"
        if attack.follows and not self.is_ours and not self.repeat:
            return "it joins what is seen of a row over epochs, and no id comes in two of them"
        return ""

    def known(self, attacks: Mapping[str, Attack], generators: Generators, canaries: Canaries) -> RowIndex | None:
        """Rows whose label attackers know: the recorded ones, or drawn among rows of the first epoch."""
        most = max((attack.threat.known_rows for attack in attacks.values()), default=0)
        path = self.recording.folder / files.KNOWN
        if is_there(path):
            known = read_labels(path, self.rows.classes, links=False)
            kept = np.isin(known.ids, self.first_ids) | self.is_ours
            if len(known.ids) and most > (there := int(kept.sum())):
                self.notes.append(f"{files.KNOWN} has {there} rows of the first epoch, and an attack would know {most}")
            return RowIndex(torch.from_numpy(known.ids[kept]), torch.from_numpy(known.labels[kept]))
        labels = self.rows.labels(torch.from_numpy(self.first_ids)).numpy()
        canary = np.zeros(len(labels), np.bool_)
        rows = RecordedRows(LabelTable(self.first_ids, labels, canary), self.rows.classes, labelled=self.labelled)
        return draw_known(rows, most if self.labelled else 0, generators["known rows"], canaries)


def _notes(recording: RecordedMessages) -> list[str]:
    """What a reader must know of how values were recorded."""
    there = {party for parties in recording.roles.values() for party in parties}
    absent = [party for party in recording.manifest.non_label_parties if party not in there]
    notes = [f"party {party} has no messages here: nothing is known of what it could learn" for party in absent]
    if not there.difference({recording.manifest.labels}):
        holder = recording.manifest.labels
        notes.append(f"all messages are of party {holder}, which holds the labels, as `labels` in manifest.json says")
    for party, coverage in recording.coverage.items():
        for name in sorted(coverage.types - {"float32"}):
            notes.append(f"messages of party {party} are recorded in {name}; attacks compute with these values in float32")
    return notes
