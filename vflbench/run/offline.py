"""An audit of recorded rounds: the same auditor as in a run, and the same numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from vflbench.attacks.base import Attack
from vflbench.data.aligned import AlignedRows
from vflbench.data.rows import evenly_spaced
from vflbench.data.table import VerticalTable
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.recording import Recording
from vflbench.messages.threat import Seat
from vflbench.results.rows import Row
from vflbench.run.answers import Findings
from vflbench.run.auditor import Auditor
from vflbench.run.canaries import Canaries
from vflbench.run.posts import unmet_attacks
from vflbench.run.settings import Audit
from vflbench.run.summary import finding_rows


@dataclass(frozen=True)
class AuditResult:
    """What an audit of recorded rounds came to.

    findings: of each epoch. skipped, unscored: attack -> why it could not run, or why nothing could be scored.
    """

    findings: list[Findings]
    skipped: dict[str, str]
    unscored: dict[str, str]

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
        self._whole = recording.has_all_rows

    def __len__(self) -> int:
        return len(self.table)

    def sample(self, wanted: int) -> VerticalTable:
        """Training rows, spread evenly, as a run chooses them."""
        if not self._whole:
            problem = (
                "this recording has only the rows of its rounds, and the attack follows or knows rows of its own choice"
            )
            raise UserError(problem, key="recording")
        return self.table.rows(evenly_spaced(len(self.table), wanted))


def audit(
    recording: Recording | Path | str,
    attacks: Mapping[str, Attack],
    *,
    seed: int = 0,
    batches: int | Literal["all", "auto"] = "auto",
) -> AuditResult:
    """Attack recorded rounds. The numbers are those that a run with these attacks, seed and `audit.batches` has.

    attacks: by name. seed: of the attacks' generators and of hints. An attack that needs what the recording doesn't have is
    skipped, with the reason. Raises UserError for a recording that can't be read.
    """
    recording = recording if isinstance(recording, Recording) else Recording(recording)
    head, train = recording.head, RecordedRows(recording)
    skipped = unmet_attacks(attacks, head.offers, train.classes, where="this recording")
    if not head.complete:
        reason = "it follows rows through every round, and this recording has the audited rounds only"
        skipped |= {name: reason for name, attack in attacks.items() if attack.follows and name not in skipped}
    generators = Generators(seed)
    canaries = Canaries.recorded(train.table.ids[train.canary], train.table.labels[train.canary])
    auditor = Auditor(
        {name: attack for name, attack in attacks.items() if name not in skipped},
        {Seat(seat): tuple(parties) for seat, parties in head.seats.items()},
        train,
        AlignedRows.of(train.table),
        generators,
        group=head.batch_size,
        steps_audited=Audit(batches=batches).audited,
        canaries=canaries,
        cut_layers=head.cut_layers,
    )
    findings = []
    for epoch, steps in enumerate(head.steps):
        auditor.begin_epoch(epoch, steps)
        for round_, _ in recording.rounds(epoch):
            auditor.see(round_)
        findings.append(auditor.end_epoch({}))
    unscored = auditor.unscored(findings[-1].leaks) if findings else {}
    return AuditResult(findings, skipped, unscored)
