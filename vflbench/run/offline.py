"""An audit of recorded rounds: the same auditor as in a run, and the same numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from vflbench.attacks.base import Attack
from vflbench.data.aligned import AlignedRows
from vflbench.data.rows import evenly_spaced
from vflbench.data.table import VerticalTable
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.recording import Recording
from vflbench.messages.recording_head import RecordingHead
from vflbench.messages.round import Round
from vflbench.messages.threat import Seat
from vflbench.results.rows import Row
from vflbench.run.answers import Findings
from vflbench.run.auditor import Auditor
from vflbench.run.canaries import Canaries
from vflbench.run.facts import threats_of
from vflbench.run.metric_rows import finding_rows
from vflbench.run.posts import unmet_attacks
from vflbench.run.settings import Audit


@dataclass(frozen=True)
class AuditResult:
    """What an audit of recorded rounds came to.

    findings: of each epoch. skipped, unscored: attack -> why it could not run, or why nothing could be scored.
    threats: attack -> who attacks, as a run's manifest has it, also of references. layers, cut_layers: party -> all layers,
    and those that cross. class_shares: of the K classes among the training rows. rows_listed: training rows in it.
    batch_size: rows of a batch. seed: that was used. model: figures of the finished model (test_auc, train_auc, ...), as far
    as the recording has them. claims: what it promises about labels. notes: lines for the user.
    """

    findings: list[Findings]
    skipped: dict[str, str]
    unscored: dict[str, str]
    threats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    layers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cut_layers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    class_shares: Sequence[float] = ()
    rows_listed: int = 0
    batch_size: int = 0
    seed: int = 0
    model: Mapping[str, float] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def classes(self) -> int:
        return len(self.class_shares)

    @property
    def epochs(self) -> int:
        return len(self.findings)

    def rows(self) -> list[Row]:
        """The same rows that a run writes to metrics.csv about its attacks."""
        return [row for epoch, findings in enumerate(self.findings) for row in finding_rows(epoch, findings)]


class RecordedRows:
    """The training rows of a recording, as far as it has them."""

    def __init__(self, recording: Recording):
        rows = recording.rows()
        self.device = torch.device("cpu")
        self.class_ratios = tuple(recording.head.class_shares)
        self.classes = len(self.class_ratios)
        self.table = VerticalTable(rows["ids"], {}, rows["labels"], self.classes)
        self.canary = rows["canary"]
        self.has_all, self._folder = recording.has_all_rows, recording.folder

    def __len__(self) -> int:
        return len(self.table)

    def require(self, round_: Round) -> None:
        """Raises UserError for a round about rows that the recording doesn't list."""
        unknown = int((~torch.isin(round_.ids, self.table.ids)).sum())
        if unknown:
            problem = f"the round of epoch {round_.epoch}, step {round_.step} has {unknown} rows that rows.npz doesn't list"
            raise UserError(problem, key="recording", value=self._folder)

    def sample(self, wanted: int) -> VerticalTable:
        """Training rows, spread evenly, as a run chooses them."""
        return self.table.rows(evenly_spaced(len(self.table), wanted))


def audit(
    recording: Recording | Path | str,
    attacks: Mapping[str, Attack],
    *,
    seed: int | None = None,
    batches: int | Literal["all", "auto"] | None = None,
    epochs: Literal["all", "last"] | None = None,
    probe: bool = True,
) -> AuditResult:
    """Attack recorded rounds. The numbers are those that a run with these attacks, seed and `audit.batches` has.

    attacks: by name. seed: of the attacks' generators and of hints; batches, epochs: as `audit.batches`, `audit.epochs`.
    They are those of the recorded run, if left out. probe: as `audit.probe`. An attack that needs what the recording doesn't
    have is skipped, with the reason. Hints are drawn in every round that is watched, which are all rounds beside an attack
    that follows rows: only a recording of all rounds repeats such a run. Raises UserError where it can't be read.
    """
    recording = recording if isinstance(recording, Recording) else Recording(recording)
    head, train = recording.head, RecordedRows(recording)
    skipped = refused(attacks, head, train)
    seed = head.seed if seed is None else seed
    generators = Generators(seed)
    canaries = Canaries.recorded(train.table.ids[train.canary], train.table.labels[train.canary])
    auditor = Auditor(
        {name: attack for name, attack in attacks.items() if name not in skipped},
        {Seat(seat): tuple(parties) for seat, parties in head.seats.items()},
        train,
        AlignedRows.of(train.table),
        generators,
        group=head.batch_size,
        steps_audited=Audit(batches=head.batches if batches is None else batches).audited,
        canaries=canaries,
        cut_layers=head.cut_layers,
        cheating=head.cheating,
        offered=head.offers(Seat.NON_LABEL),
        last_only=(epochs or head.epochs) == "last",
        probe=probe and {Embeddings, Gradients} <= head.offers(Seat.NON_LABEL),
    )
    findings: list[Findings] = []
    layers: dict[str, list[str]] = {}
    for epoch, steps in enumerate(head.steps):
        recording.require_rounds(epoch)
        auditor.begin_epoch(epoch, steps, last=epoch + 1 == len(head.steps))
        for round_, _ in recording.rounds(epoch):
            train.require(round_)
            layers = layers or _layers(round_)
            auditor.see(round_)
        findings.append(auditor.end_epoch({}))
    unscored = auditor.unscored(findings[-1].leaks, findings[-1].reconstructions) if findings else {}
    return AuditResult(
        findings,
        skipped,
        unscored,
        threats=threats_of(auditor.posts, attacks, probed=auditor.probes),
        layers=layers,
        cut_layers={party: list(names) for party, names in head.cut_layers.items()},
        class_shares=list(head.class_shares),
        rows_listed=len(train),
        batch_size=head.batch_size,
        seed=seed,
    )


def _layers(round_: Round) -> dict[str, list[str]]:
    """Party -> its layers, as its embeddings or gradients have them."""
    facts = {party: known.get(Embeddings) or known.get(Gradients) for party, known in round_.facts.items()}
    return {p: list(one.layers) for p, one in facts.items() if isinstance(one, Embeddings | Gradients)}


def refused(attacks: Mapping[str, Attack], head: RecordingHead, train: RecordedRows) -> dict[str, str]:
    """Attack -> why it can't run on this recording."""
    skipped = unmet_attacks(attacks, head.offers, train.classes, cheating=head.cheating, where="this recording")
    lacking = {name: _lacking(attack, head, train) for name, attack in attacks.items() if name not in skipped}
    return skipped | {name: reason for name, reason in lacking.items() if reason}


def _lacking(attack: Attack, head: RecordingHead, train: RecordedRows) -> str:
    """Why a recording with all facts of the attack's threat isn't enough for it; empty if it is."""
    knows, at_a_party = attack.threat.knows, attack.threat.seat is not Seat.PARTICIPANT
    of_a_sample = at_a_party and attack.answers_epochs() and not attack.follows and not attack.collects
    if Auxiliary in knows:
        return f"Auxiliary is not in this recording for the {attack.threat.seat}"
    if attack.follows and not head.complete:
        return "it follows rows through every round, and this recording has the audited rounds only"
    if (attack.follows or attack.threat.known_rows or of_a_sample) and not train.has_all:
        return "it follows or knows rows of its own choice, and this recording lists only the rows of its rounds"
    if of_a_sample and OwnColumns in knows:
        return f"OwnColumns between rounds is not in this recording for the {attack.threat.seat}"
    return ""
