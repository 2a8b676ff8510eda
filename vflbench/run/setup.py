"""What a run is made of, its parties and attackers, and how far it has come."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vflbench import __version__
from vflbench.attacks.base import Attack
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.attacks.spectral_clustering import SpectralClustering
from vflbench.data.base import Dataset
from vflbench.data.rows import AlignedRows, EncodedRows, TrainTest
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import Chain, claims_of, refuse_unfit
from vflbench.engines.base import Engine
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import Auxiliary, PartyFeatures
from vflbench.messages.serialize import Channel, PartyError, at_once
from vflbench.messages.threat import Role
from vflbench.metrics.privacy import Exposure, Release, rows_worth
from vflbench.models.base import CutModel
from vflbench.models.optimizers import Optimizer
from vflbench.protocols.adversaries import Adversary
from vflbench.protocols.base import Protocol, Session
from vflbench.protocols.parties import Announced, ProtocolSetup, RemoteParty
from vflbench.run.attackers import auxiliary_rows, draw_canaries, offered_with, rows_of_another_source, unmet_attacks
from vflbench.run.auditor import Auditor
from vflbench.run.recording import RoundRecorder
from vflbench.run.settings import Settings, bf16_slowness, set_threads
from vflbench.run.summary import EPOCHS, LOSS_EVERY, EpochResult, refusals

TWO_CLASSES: Mapping[str, Attack] = {"norm": Norm(), "spectral": Spectral()}
"""The default attacks, as configs/train.yaml has them."""
MANY_CLASSES: Mapping[str, Attack] = {"kmeans": Kmeans(), "spectral_clustering": SpectralClustering(message="gradients")}
"""One that reads embeddings and one that reads gradients, without known labels, of any number of classes."""
FOR_MANY_CLASSES = "more than two classes: attack=[kmeans,spectral_clustering] in place of norm and spectral, which need two"
LEAST_WORTH = 200
"""Rows of the rarest class without noise: of fewer, the default network learns next to nothing on synthetic rows."""


@dataclass(frozen=True)
class Experiment:
    """Everything that one run is made of. defenses, attacks, adversaries: by the name under which they were chosen.
    secret: goes into all that is drawn, where parties must not draw the same numbers; empty where they may.
    """

    dataset: Dataset
    model: CutModel
    protocol: Protocol
    engine: Engine
    optimizer: Optimizer
    defenses: Mapping[str, Defense]
    attacks: Mapping[str, Attack]
    settings: Settings
    adversaries: Mapping[str, Adversary] = field(default_factory=dict)
    secret: bytes = field(default=b"", repr=False)

    @property
    def honest(self) -> "Experiment":
        """The same with every party honest."""
        return replace(self, adversaries={})

    def for_classes(self, classes: int) -> "Experiment":
        """The same, with attacks of any number of classes in place of the default ones, which tell two apart."""
        return replace(self, attacks=MANY_CLASSES) if classes > 2 and self.attacks == TWO_CLASSES else self


@dataclass
class Epoch:
    """An epoch under way.

    order: the state of the generator `batches` when the epoch began, so that the same order can be drawn again. losses,
    penalties: one of each batch that was trained on. seconds: as `Meter` has them.
    """

    number: int
    order: Tensor
    losses: list[float] = field(default_factory=list)
    penalties: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def result(self) -> EpochResult:
        """What training came to; what attacks read and what the model is worth is still to be added."""
        ends = range(LOSS_EVERY, len(self.losses) + 1, LOSS_EVERY)
        return EpochResult(
            self.number,
            fmean(self.losses),
            fmean(self.penalties),
            self.seconds,
            steps=len(self.losses),
            losses=[fmean(self.losses[end - LOSS_EVERY : end]) for end in ends],
        )


@dataclass
class BuiltRun:
    """A run under way: its parties and attackers, and how far it has come.

    epochs: in all. skipped: attack -> why it can't run here. rounds: keeps on disk what is to be recorded. notes: lines
    that a user must not miss. facts: for manifest.json. results: of the finished epochs. epoch: the one under way, if any.
    """

    experiment: Experiment
    data: TrainTest
    generators: Generators
    session: Session
    auditor: Auditor
    epochs: int
    skipped: Mapping[str, str]
    rounds: RoundRecorder
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    results: list[EpochResult] = field(default_factory=list)
    epoch: Epoch | None = None

    def __str__(self) -> str:
        if self.epoch is not None and self.epoch.losses:
            return f"epoch {self.epoch.number}, step {len(self.epoch.losses)}"
        return f"epoch {len(self.results)}"

    def state(self) -> dict[str, Any]:
        """Tensors, numbers, strings, lists and dicts. In mid-epoch, `batches` is as the epoch began."""
        generators = self.generators.state()
        if self.epoch is not None:
            generators["cpu"]["batches"] = self.epoch.order
        return {
            "generators": generators,
            "session": self.session.state(),
            "attacks": self.auditor.state(),
            "traffic": self.session.wire.state(),
            "results": EPOCHS.dump_python(self.results),
            "epoch": self.epoch and vars(self.epoch),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Bring a run that was just built to where another one of the same configuration stood."""
        self.generators.restore(state["generators"])
        self.session.restore(state["session"])
        self.auditor.restore(state["attacks"])
        self.session.wire.restore(state["traffic"])
        self.results = EPOCHS.validate_python(state["results"])
        self.epoch = state["epoch"] and Epoch(**copy.deepcopy(state["epoch"]))  # a tensor of the file would keep it mapped
        numbers = [result.epoch for result in self.results] + ([] if self.epoch is None else [self.epoch.number])
        if numbers != list(range(len(numbers))):
            raise ValueError("its epochs are not those of a run")


def build_run(experiment: Experiment, data: TrainTest, generators: Generators, folder: Path) -> BuiltRun:
    """Build every party and every attacker, on as many threads as their batches keep busy. Raises UserError for a
    defense or an adversary that doesn't fit.
    """
    settings, protocol, train, classes = experiment.settings, experiment.protocol, data.train, data.train.classes
    batch_size, epochs = protocol.round_size(settings.batch_size, data), protocol.choose_epochs(settings.epochs, data)
    set_threads(batch_size, experiment.model.width)
    refuse_unfit(experiment.defenses, protocol.roles, type(protocol).__name__, classes)
    Chain(experiment.defenses).plan(epochs)  # what they promise depends on it
    chosen, claims, records = experiment.for_classes(classes), claims_of(experiment.defenses), settings.record != "none"
    if protocol.labels_shared and records:
        problem = "a recording serves to audit what messages reveal about labels, and here every party holds the labels"
        raise UserError(problem, key="record", value=settings.record)
    planted = settings.audit.planted(len(train), _rarest(train)[0], classes, promised=claims.label_privacy)
    canaries = draw_canaries(train, planted, generators["canaries"])
    rows, others = data.aligned().relabelled(canaries.planted), data.test
    if settings.audit.auxiliary_path is not None:
        rng = generators["auxiliary source"]
        others = rows_of_another_source(experiment.dataset, settings.audit.auxiliary_path, train, rng)
    session = _start(experiment, train, rows, others, generators, batch_size)
    cheating = [adversary.party for adversary in experiment.adversaries.values()]
    skipped = _skipped(chosen, ", ".join(session.remote()), classes)
    auditor = Auditor(
        attacks={name: attack for name, attack in chosen.attacks.items() if name not in skipped},
        generators=generators,
        roles=session.roles(),
        train=train,
        rows=rows,
        canaries=canaries,
        group=batch_size,
        how=replace(settings.audit, probe=settings.audit.probe and not protocol.labels_shared),
        held_out=data.test,
        auxiliary=others,
        cut_layers=session.cut_layers(),
        cheating=cheating,
        references=PartyFeatures in protocol.offers(Role.NON_LABEL),
        keeps_rows=records and Role.NON_LABEL in session.roles(),
    )
    releases = [guarantee.release for guarantee in claims.of.values() if guarantee and guarantee.release]
    release = releases[0] if len(releases) == 1 and isinstance(releases[0], Release) else None  # pure label DP
    rounds = RoundRecorder(settings, folder, session, data, auditor, release)
    run = BuiltRun(chosen, data, generators, session, auditor, epochs, skipped, rounds)
    run.notes = [*([FOR_MANY_CLASSES] if chosen is not experiment else []), *_notes(run)]
    return run


def _rarest(train: EncodedRows) -> tuple[int, float]:
    """Rows of the rarest class, and its share."""
    share = min((ratio for ratio in train.class_ratios if ratio), default=0.0)
    return round(len(train) * share), share


def _start(
    experiment: Experiment, train: EncodedRows, rows: AlignedRows, others: EncodedRows, generators: Generators, size: int
) -> Session:
    """The parties, each with its network and defenses. rows: with the labels that are trained on. others: auxiliary rows.
    size: of a batch.
    """
    engine = experiment.engine

    def defense() -> Chain:
        return Chain(copy.deepcopy(experiment.defenses))

    def auxiliary(count: int) -> Auxiliary:
        return auxiliary_rows(others, count, int(torch.randint(2**62, (), generator=generators["auxiliary"])))

    cheats, channels = bool(experiment.adversaries), engine.channels()
    request = {"version": __version__, "classes": train.classes, "batch_size": size, "cheating": cheats}
    return experiment.protocol.start(
        ProtocolSetup(
            table=train,
            rows=rows,
            model=experiment.model,
            optimizer=experiment.optimizer,
            wire=engine.wire(),
            defense=defense,
            generators=generators,
            device=train.device,
            precision=experiment.settings.precision,
            round_size=size,
            adversaries=copy.deepcopy(experiment.adversaries),
            remote=join_parties(channels, defense, request) if channels else {},
            auxiliary=auxiliary,
        )
    )


def _notes(run: BuiltRun) -> list[str]:
    """Lines that a user must not miss, before the first epoch."""
    experiment, data, session, batch_size = run.experiment, run.data, run.session, run.auditor.group
    settings, remote, claims = experiment.settings, ", ".join(session.remote()), claims_of(experiment.defenses)
    notes = [*data.notes]
    width = experiment.model.width
    if settings.precision == "bf16" and (times := bf16_slowness(data.train.device, batch_size, width)) > 1.1:
        notes.append(f"precision=bf16: here, products of a layer take {times:.1f} times as long as in float32")
    if remote and settings.record != "none":
        problem = "only what crosses is recorded here; each keeps a recording of its own rounds in its own folder"
        notes.append(f"record={settings.record}: of {remote}, {problem}")
    if remote and settings.audit.dcor:
        notes.append(f"audit.dcor=true: of {remote}, only embeddings that cross are measured, as they arrive")
    rarest, share = _rarest(data.train)
    if canaries := len(run.auditor.canaries):
        notes.append(
            f"the labels of {canaries:,} training rows are replaced by fair coins (canaries; the rarest class has "
            f"{rarest:,} rows), to check how much of a label leaks; audit.canaries=0 trains on all labels as they are, and "
            "checks nothing"
        )
    bounds = [
        of.leak_auc_after(Exposure(run.epochs)) for of in claims.of.values() if of is not None and of.release is not None
    ]
    if bounds and (worth := rows_worth(rarest, share, min(bounds))) < LEAST_WORTH:
        notes.append(
            f"behind a ceiling of {min(bounds):.3f}, the {rarest:,} training rows of the rarest class are worth "
            f"{worth:.0f} without noise; the default network learned nothing on synthetic clicks from fewer than "
            f"{LEAST_WORTH}: take more rows, a smaller network, or a higher ceiling (mu, eps)"
        )
    notes += refusals(session.claims()) if experiment.defenses else []
    notes += [f"{name} claims nothing here: {reason}" for name, reason in claims.refused.items()]
    return notes + [f"attack={name} is skipped: {reason}" for name, reason in run.skipped.items()]


def _skipped(experiment: Experiment, remote: str, classes: int) -> dict[str, str]:
    """Attack -> why it can't run here. remote: names of the parties that live elsewhere, if any."""
    protocol, adversaries, skipped = experiment.protocol, experiment.adversaries.values(), dict[str, str]()
    if remote:
        parties, command = f"{remote}, and they live elsewhere", "vflbench audit RECORDING --scores-only SCORES attack="
        of_label_party = f"it needs, or is compared with, columns of {parties}"
        others = f"it sits at {parties}; with record=audited, each can attack its own: {command}"
        for name, attack in experiment.attacks.items():
            skipped[name] = of_label_party if attack.threat.role is Role.LABEL else f"{others}{name}"
    offers = offered_with(adversaries, protocol.offers) if adversaries else protocol.offers
    cheating = [adversary.party for adversary in adversaries]
    shared = protocol.labels_shared
    return skipped | unmet_attacks(experiment.attacks, offers, classes, cheating=cheating, labels_shared=shared)


def join_parties(
    channels: Mapping[str, Channel], defense: Callable[[], Chain], request: Mapping[str, Any]
) -> dict[str, RemoteParty]:
    """The parties at the ends of these channels, in this order. defense: returns a fresh instance at each call. request: of
    a run, whose `cheating` says whether parties with an adversary cheat; beside such a run there is an honest one. Raises
    PartyError for one that can't take part.
    """
    said = at_once(lambda channel: channel.call("hello", request), list(channels.values()))
    parties = {}
    for (name, channel), content in zip(channels.items(), said, strict=True):
        try:
            announced = Announced(**content)
        except (TypeError, ValueError) as error:
            raise PartyError(name, f"it says no names and sizes of columns and layers ({error})") from error
        parties[name] = RemoteParty(channel, announced, defense)
    return parties
