"""An audit in two halves: attacks where the messages are, grades where the labels are. No label moves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.row_files import read_labels
from vflbench.messages.score_files import SCORES, ScoredRows, ScoreWriter, ordered, read_scores
from vflbench.metrics.leakage import Key, LeakTable, between, checked_scores
from vflbench.results.levels import base_name
from vflbench.run.answers import Findings, Tables
from vflbench.run.audit_notes import as_they_knew, described
from vflbench.run.auditor import Auditor
from vflbench.run.end_of_epoch import unanswered
from vflbench.run.facts import threats_of
from vflbench.run.offline import AuditResult, Batches, Epochs, at_work, auditor_of, findings_of
from vflbench.run.recorded_rows import RecordedRows
from vflbench.run.recorded_source import RecordedSource
from vflbench.run.scores_head import HEAD, ScoresHead, ThreatRecord, read_head


class ScoreTable(LeakTable):
    """Takes scores in place of their leak AUC. The truth that it is given are the rows' ids."""

    def __init__(self, writer: ScoreWriter, epoch: int):
        super().__init__()
        self._writer, self._epoch = writer, epoch

    def add(
        self,
        key: Key,
        scores: Tensor,
        truth: Tensor,
        known: Tensor | None = None,
        canary: Tensor | None = None,
        candidates: Tensor | None = None,
        difference: Tensor | None = None,
    ) -> None:
        scores = checked_scores(scores, len(truth), attack=key[0], layer=key[3])
        apart = between(scores) if scores.ndim == 2 else None
        is_known = torch.zeros(len(truth), dtype=torch.bool)
        if known is not None:
            is_known[known.cpu()] = True
        columns = None
        if candidates is not None:
            of_each = candidates.reshape(len(truth), -1).T
            columns = torch.stack([ordered(column) for column in of_each], dim=1) if len(of_each) else None
        order = None if apart is None else ordered(apart)
        self._writer.add(ScoredRows(self._epoch, key, truth, is_known, ordered(scores), columns, order))
        self._batches.setdefault(key, [])


def write_scores(
    recording: RecordedMessages | Path | str,
    attacks: Mapping[str, Attack],
    out: Path,
    *,
    seed: int | None = None,
    batches: Batches | None = None,
    epochs: Epochs | None = None,
    shares: Sequence[float] | None = None,
) -> ScoresHead:
    """Attack recorded messages without any labels, and write in which order attacks put the rows into the folder `out`.

    Nothing in it but ids, names of layers and attacks, and ranks comes from the messages: of each batch, or group of rows,
    the order in which an attack puts them, which is all that grades depend on. Orders along many directions tell
    most of an embedding. Attacks that are given labels run if known.parquet has some; references are left out, as are
    reconstructions and class counts. shares: of the classes, in place of those in manifest.json. Raises UserError.
    """
    recording = recording if isinstance(recording, RecordedMessages) else RecordedMessages(recording)
    if shares is not None:
        recording.know_shares(shares)
    if (out / SCORES).exists() or (out / HEAD).exists():
        raise UserError("it holds scores already; name another folder", key="--scores-only", value=out)
    source = RecordedSource(recording, labelled=False)
    skipped = source.skipped(attacks)
    running = {name: attack for name, attack in attacks.items() if name not in skipped}
    if not running:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise UserError(f"no attack can run on this recording without labels ({reasons})", key="--scores-only", value=out)
    out.mkdir(parents=True, exist_ok=True)
    writer = ScoreWriter(out)
    number = iter(range(10**6))
    try:
        with at_work(source) as helpers:
            auditor = auditor_of(
                source,
                running,
                seed=seed,
                batches=batches,
                epochs=epochs,
                probe=False,
                references=False,
                tables=lambda: Tables(leaks=ScoreTable(writer, next(number))),
                helpers=helpers,
            )
            count = sum(1 for _ in findings_of(source, auditor))
        writer.close()
    except BaseException:
        writer.drop()
        raise
    head = _head(source, auditor, attacks, count, seed)
    head.write(out)
    return head


def _head(
    source: RecordedSource, auditor: Auditor, attacks: Mapping[str, Attack], epochs: int, seed: int | None
) -> ScoresHead:
    about, manifest = described(source, seed), source.recording.manifest
    skipped = source.skipped(attacks)
    return ScoresHead(
        classes=manifest.classes,
        epochs=epochs,
        threats={name: ThreatRecord(**record) for name, record in threats_of(as_they_knew(auditor), attacks).items()},
        layers=about["layers"],
        cut_layers=about["cut_layers"],
        skipped=skipped,
        attacks=[name for name in attacks if name not in skipped],
        rows=about["listed"],
        batch_size=about["batch_size"],
        seed=about["seed"],
        class_shares=manifest.class_shares,
        model=about["model"],
        notes=about["notes"],
    )


def grade(folder: Path, labels: Path) -> AuditResult:
    """Hold the scores in a folder against labels: the numbers that an audit with these labels has.

    labels: a table id, label with every row that was scored; a column canary marks rows whose label is a coin. Raises
    UserError.
    """
    head = read_head(folder)
    table = read_labels(labels, head.classes)
    truth = RecordedRows(table, head.classes)
    is_canary = truth.canary_ids.sort().values
    findings = [_findings(leaks) for leaks in _graded(folder, head, truth, is_canary)]
    scored = {leak.attack for leak in findings[-1].leaks if leak.batches}
    return AuditResult(
        findings,
        dict(head.skipped),
        unanswered(list(head.attacks), scored),
        {name: asdict(record) for name, record in head.threats.items()},
        layers=head.layers,
        cut_layers=head.cut_layers,
        class_shares=list(head.class_shares or truth.class_ratios),
        listed=len(truth),
        batch_size=head.batch_size,
        seed=head.seed,
        model=head.model,
        notes=list(head.notes),
    )


def _graded(folder: Path, head: ScoresHead, truth: RecordedRows, is_canary: Tensor) -> Iterator[LeakTable]:
    """A table for each epoch."""
    tables = [LeakTable() for _ in range(head.epochs)]
    for rows in read_scores(folder):
        if rows.epoch >= head.epochs or base_name(rows.key[0]) not in head.threats:
            problem = f"{SCORES} has epoch {rows.epoch} of attack {rows.key[0]!r}, which {HEAD} doesn't know"
            raise UserError(problem, key="grade", value=folder)
        if rows.scores.ndim == 2 and rows.scores.shape[1] != head.classes:
            problem = f"{SCORES} has {rows.scores.shape[1]} scores a row, for {head.classes} classes"
            raise UserError(problem, key="grade", value=folder)
        canary = torch.isin(rows.ids, is_canary)
        known = rows.known.nonzero()[:, 0]
        tables[rows.epoch].add(
            rows.key, rows.scores, truth.labels(rows.ids), known, canary, rows.candidates, rows.difference
        )
    yield from tables


def _findings(leaks: LeakTable) -> Findings:
    return Findings(leaks.leaks(), [], [], {})
