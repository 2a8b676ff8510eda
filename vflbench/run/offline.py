"""An audit of recorded messages: the same auditor as in a run, and the same numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, OwnModel
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.round import Round
from vflbench.messages.run_head import RUN, RunHead
from vflbench.messages.threat import Seat
from vflbench.run.audit_notes import as_they_knew, described, unread
from vflbench.run.auditor import ASKED_ROWS, Audited, Auditor
from vflbench.run.claim_check import ClaimCheck
from vflbench.run.findings import AuditResult, Findings
from vflbench.run.grade_scores import Tables
from vflbench.run.known_rows import Canaries
from vflbench.run.recorded_rows import EndOfEpoch, Table
from vflbench.run.recorded_source import RecordedSource
from vflbench.run.settings import Audit, tune, use_threads
from vflbench.run.summary import threats_of

Batches = int | Literal["all", "auto"]
Epochs = Literal["all", "last"]


def audit(
    recording: RecordedMessages | Path | str,
    attacks: Mapping[str, Attack],
    *,
    seed: int | None = None,
    batches: Batches | None = None,
    epochs: Epochs | None = None,
    probe: bool | None = None,
    labels: Path | str | None = None,
) -> AuditResult:
    """Attack recorded messages. Of a recording by `vflbench train record=messages` the numbers are those of the run.

    attacks: by name. seed: of the attacks' generators and of hints; batches, epochs: how many are attacked, as
    `audit.batches` and `audit.epochs`; probe: as `audit.probe`. What is left out is as in the recorded run; of others, seed
    0, all recorded batches, and the probe. labels: a table id, label in place of the recording's labels.parquet. An attack
    that needs what the recording doesn't have is skipped, with the reason. Raises UserError for a recording that can't be
    read.
    """
    recording = recording if isinstance(recording, RecordedMessages) else RecordedMessages(recording)
    source = RecordedSource(recording, None if labels is None else Path(labels))
    skipped = source.skipped(attacks)
    running = {name: attack for name, attack in attacks.items() if name not in skipped}
    promised = recording.manifest.claims.label_dp
    check = None if promised is None else ClaimCheck(source, promised, len(recording.epochs))
    options: dict[str, Any] = {"seed": seed, "batches": batches, "epochs": epochs, "probe": probe}
    options["tables"] = Tables if check is None else partial(Tables, listener=check.hear)
    with tuned(source):
        auditor = auditor_of(source, running, **options)
        findings = list(findings_of(source, auditor, None if check is None else check.see))
    unscored = auditor.unscored(findings[-1].leaks, findings[-1].reconstructions) if findings else {}
    threats = threats_of(as_they_knew(auditor), attacks, probed=auditor.probes)
    observed = {} if check is None else check.outcome()
    about = described(source, seed)
    about["notes"] += unread(source, findings)
    return AuditResult(findings, skipped, unscored, threats, observed=observed, **about)


@contextmanager
def tuned(source: RecordedSource) -> Iterator[None]:
    """While entered, the process is tuned as that of the run, with as many of torch's threads; one where it doesn't say."""
    tune()
    before = torch.get_num_threads()
    use_threads(1 if source.head is None else source.head.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def auditor_of(
    source: RecordedSource,
    attacks: Mapping[str, Attack],
    *,
    seed: int | None = None,
    batches: Batches | None = None,
    epochs: Epochs | None = None,
    probe: bool | None = None,
    **options: Any,
) -> Auditor:
    recording, head, rows = source.recording, source.head, source.rows
    own = RunHead(batches="all") if head is None else head
    crossing = {party: recording.manifest.cut(party) for party in recording.seats.get(Seat.NON_LABEL, ())}
    generators = Generators(source.seed if seed is None else seed)
    canaries = Canaries.recorded(rows.canary_ids, rows.labels(rows.canary_ids))
    offered = source.offers(Seat.NON_LABEL)
    can_probe = {Embeddings, Gradients} & offered
    audited = Audited(
        attacks=attacks,
        seats=recording.seats,
        train=rows,
        rows=rows,
        group=recording.manifest.batch_size or source.ids.first,
        steps_audited=Audit(batches=own.batches if batches is None else batches).audited,
        canaries=canaries,
        cut_layers=crossing,
        cheating=own.cheating,
        offered=offered,
        last_only=(epochs or own.epochs) == "last",
        samples=head is not None,
        dcor=own.dcor,
        probe=bool(can_probe) and (own.probe if probe is None else probe),
        known=source.known(attacks, generators, canaries),
        **options,
    )
    return Auditor(audited, generators)


def findings_of(source: RecordedSource, auditor: Auditor, also: Callable[[Round], None] | None = None) -> Iterator[Findings]:
    """What each epoch comes to. also: sees each round too."""
    recording, head = source.recording, source.head
    end = EndOfEpoch(recording, source.rows, wants=bool({OwnModel, OwnColumns} & auditor.wants_at_the_end))
    epochs = recording.epochs
    count = len(head.steps) if head is not None else len(epochs)
    seen = 0
    for number in range(count):
        epoch = number if head is not None else sorted(epochs)[number]
        there = epochs.get(epoch, [])
        if head is not None:
            _require(recording, head, epoch, there)
            auditor.begin_epoch(number, head.steps[epoch], last=number + 1 == count)
        else:
            auditor.begin_epoch(number, len(there), last=number + 1 == count, chosen=there)
        seen += len(auditor.audited.intersection(there))
        quota = max(1, ASKED_ROWS // max(1, len(auditor.audited)))
        end.begin_epoch(epoch)
        for round_ in recording.rounds(epoch):
            shown = source.with_columns(round_)
            if end.wants:
                followed, _, known = auditor.parts_at_the_end
                kept = torch.cat([followed, known])
                end.meet(shown.ids, shown.facts, kept, quota if round_.step in auditor.audited else 0)
            if also is not None:
                also(shown)
            auditor.see(shown)
        yield auditor.end_epoch(_at_the_end(source, auditor, end.tables(epoch)))
    if not seen:
        problem = f"none of the rounds that {RUN} names is there to be attacked"
        raise UserError(problem, key="recording", value=recording.folder)


def _at_the_end(source: RecordedSource, auditor: Auditor, tables: Mapping[str, Table]) -> dict[str, dict[type[Fact], Fact]]:
    source.rows.known_columns |= source.own_columns
    ids = auditor.rows_at_the_end
    facts: dict[str, dict[type[Fact], Fact]] = {}
    for party, table in tables.items():
        facts[party] = {OwnModel: OwnModel(table.of)}
        if OwnColumns in auditor.wants_at_the_end and party in source.rows.known_columns:
            columns = source.rows.known_columns[party].filled(ids)
            facts[party][OwnColumns] = OwnColumns(columns["numeric"], columns["categorical"])
    return facts


def _require(recording: RecordedMessages, head: RunHead, epoch: int, there: Sequence[int]) -> None:
    """Raises UserError if a round that the run recorded is missing."""
    present = set(there)
    expected = head.expected(epoch, complete=recording.manifest.complete)
    missing = next((step for step in expected if step not in present), None)
    if missing is not None:
        problem = f"rounds of epoch {epoch} are missing, the first at step {missing}"
        raise UserError(problem, key="recording", value=recording.folder)
