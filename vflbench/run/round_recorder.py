"""Keeps the messages of a run on disk, for an audit afterwards."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from vflbench import __version__
from vflbench.data.aligned import AlignedRows
from vflbench.data.rows import BUFFER_ROWS, EncodedRows
from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, OwnColumns, OwnModel, Updates
from vflbench.messages.manifest import (
    KNOWN,
    LABEL_PARTY,
    LABELS,
    MANIFEST,
    MESSAGES,
    Claims,
    LabelDpClaim,
    Manifest,
    PartyLayers,
    read_manifest,
)
from vflbench.messages.message_batch import FACTS, packed
from vflbench.messages.message_files import write_batch_file, write_manifest, write_rows
from vflbench.messages.private_files import write_private
from vflbench.messages.round import Facts, Round
from vflbench.messages.run_head import SAMPLES, RunHead
from vflbench.messages.threat import Seat
from vflbench.metrics.privacy import Release
from vflbench.protocols.base import Protocol, Session
from vflbench.run.auditor import ASKED_ROWS
from vflbench.run.known_rows import Canaries, KnownRows
from vflbench.run.settings import Settings

ROUNDS = "recording"
"""The folder within a run's folder."""

_PER_EPOCH = 10**7


class RoundRecorder:
    """Writes the rounds that `record` names into a recording. known: rows whose labels attackers know. cheating: parties
    with an adversary. release: the label privacy that is promised, if any. followed: rows that attacks follow, at most.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        protocol: Protocol,
        session: Session,
        train: EncodedRows,
        rows: AlignedRows,
        canaries: Canaries,
        batch_size: int,
        known: KnownRows,
        cheating: Collection[str] = (),
        release: Release | None = None,
        followed: int = 0,
    ):
        self.which, self._rows, self._canaries, self._train, self._known = settings.record, rows, canaries, train, known
        self._folder, self._session = folder / ROUNDS, session
        self._last_only = settings.audit.epochs == "last"
        offered = {fact for seat in session.seats() for fact in protocol.offers(seat)}
        self._facts = frozenset(offered & {*FACTS.values()})
        self._asks = Seat.NON_LABEL in session.seats() and OwnModel in protocol.offers(Seat.NON_LABEL)
        self._head = RunHead(
            seed=settings.seed,
            batches=settings.audit.batches,
            epochs=settings.audit.epochs,
            probe=settings.audit.probe,
            dcor=settings.audit.dcor,
            cheating=tuple(cheating),
            threads=torch.get_num_threads(),
        )
        self._batch_size, self._release, self._followed = batch_size, release, followed
        self._manifest: Manifest | None = None
        self._wanted: set[int] = set()

    def begin_epoch(self, number: int, steps: int, audited: Collection[int], *, goes_on: bool = False) -> None:
        """Note how many rounds the epoch has, and which are audited: the same in every audited epoch. goes_on: within it."""
        if self.which == "none":
            return
        if number == 0 and not goes_on:
            self._clear()
        elif self._manifest is None and (self._folder / MANIFEST).is_file():
            self._manifest = read_manifest(self._folder)  # of the same run, which was stopped and goes on
        self._wanted = set(range(steps)) if self.which == "messages" else set(audited)
        before: list[int] = [] if self._last_only else sorted(self._wanted)
        recorded = [] if self.which == "messages" else [*[before] * number, sorted(self._wanted)]
        self._head = replace(self._head, steps=[*[steps] * number, steps], recorded=recorded)

    def wants(self, step: int) -> frozenset[type[Fact]]:
        """The facts to collect of a round beside those that attacks read."""
        return self._facts if step in self._wanted else frozenset()

    @property
    def wants_at_the_end(self) -> frozenset[type[Fact]]:
        """The facts to collect at the end of an epoch."""
        return frozenset({OwnModel, OwnColumns}) if self.which != "none" and self._asks else frozenset()

    def see(self, round_: Round) -> None:
        """Write the round if it is one of those to keep."""
        if self.which == "none" or round_.step not in self._wanted:
            return
        if self._manifest is None:
            self._begin(round_)
        for party, facts in round_.facts.items():
            kept = (fact for kind, fact in facts.items() if not (kind is OwnColumns and party == LABEL_PARTY))
            tensors = {name: values for fact in kept for name, values in packed(fact).items()}
            number = round_.epoch * _PER_EPOCH + round_.step
            write_batch_file(self._folder, party, number, round_.ids.cpu(), tensors, epoch=round_.epoch, step=round_.step)
        if round_.private is not None:
            write_private(self._folder, round_.epoch, round_.step, round_.private)

    def end_epoch(self, epoch: int, facts: Mapping[str, Facts], parts: Sequence[Tensor]) -> None:
        """Write what each party's network makes of these rows now. parts: ids (n,) each."""
        if self._manifest is None:
            return
        self._write_head()
        ids = torch.cat(list(parts)).unique() if parts else torch.empty(0, dtype=torch.int64)
        if not len(ids) or not self._wanted:
            return
        for party, of_party in facts.items():
            model = of_party.get(OwnModel)
            if isinstance(model, OwnModel):
                columns = self._rows.features(party, ids)
                tensors = packed(Embeddings(model.embed(ids)))
                tensors |= packed(OwnColumns(columns.numeric, columns.categorical))
                number = (epoch + 1) * _PER_EPOCH - 1
                write_batch_file(self._folder, party, number, ids.cpu(), tensors, epoch=epoch, step=0, phase="end")

    def note_model(self, utility: Mapping[str, Mapping[str, float]]) -> None:
        """What the model is worth now, for comparison."""
        if self._manifest is not None:
            figures = {
                f"{split}_{name}": float(v) for split, of in utility.items() for name, v in of.items() if name == "auc"
            }
            self._manifest = replace(self._manifest, model={n: v for n, v in figures.items() if 0 <= v <= 1})
            write_manifest(self._folder, self._manifest)

    def _clear(self) -> None:
        """Messages of a run that is computed again."""
        for path in (self._folder / MESSAGES).glob("*-*.safetensors"):
            path.unlink()
        self._manifest = None

    def _begin(self, round_: Round) -> None:
        """Write what is known before the first round: the manifest, the labels, the known rows."""
        parties = {}
        for party in {**self._session.layers(), **round_.facts}:
            found = round_.facts.get(party, {}).get(Embeddings)
            there = found.layers if isinstance(found, Embeddings) else {}
            widths = {layer: there[layer].shape[1] for layer in there}
            parties[party] = PartyLayers(
                widths, [layer for layer in self._session.cut_layers().get(party, ()) if layer in there]
            )
        updates = next((f for facts in round_.facts.values() for f in facts.values() if isinstance(f, Updates)), None)
        release = self._release
        claims = Claims() if release is None else Claims(LabelDpClaim(release.epsilon, release.fresh))
        try:
            self._manifest = Manifest(
                classes=self._train.classes,
                parties=parties,
                producer=f"vflbench train, version {__version__}",
                labels=LABEL_PARTY,
                class_shares=list(self._train.class_ratios),
                batch_size=self._batch_size,
                complete=self.which == "messages",
                claims=claims,
                rules=None if updates is None else updates.rules,
            )
        except ValueError as error:
            raise UserError(f"this run can't be recorded: {error}", key="record", value=self.which) from error
        write_manifest(self._folder, self._manifest)
        self._write_head()
        self._write_labels()
        write_rows(self._folder / KNOWN, {"id": self._known.ids, "label": self._known.labels})

    def _write_head(self) -> None:
        """Nothing where parties live elsewhere: attacks of the run had more than what crossed, which is recorded here, so an
        audit can't repeat its numbers.
        """
        if not self._session.remote():
            self._head.write(self._folder)

    def _write_labels(self) -> None:
        """Of every training row, in their order, with those of canaries as they are trained on."""
        ids = torch.cat([block.ids for block in self._train.blocks(None)])
        labels = torch.cat([self._rows.labels(some) for some in ids.split(BUFFER_ROWS)])
        canary = torch.cat([self._canaries.among(some) for some in ids.split(BUFFER_ROWS)])
        write_rows(self._folder / LABELS, {"id": ids, "label": labels, "canary": canary})
        if len(ids) > BUFFER_ROWS:  # of these, a sample is whole chunks of rows
            for wanted in {ASKED_ROWS, self._followed} - {0}:
                write_rows(self._folder / SAMPLES / f"{wanted}.parquet", {"id": self._train.sample(wanted).ids})
