"""The second half of an audit in two: scores held against labels, where the labels are. It loads no torch."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from vflbench.errors import UserError
from vflbench.messages.row_files import named_labels
from vflbench.messages.score_files import SCORES, read_scores
from vflbench.metrics.leakage import LeakTable
from vflbench.results.levels import base_name
from vflbench.run.findings import AuditResult, Findings, unanswered
from vflbench.run.labelled_rows import LabelledRows
from vflbench.run.scores_head import HEAD, ScoresHead, read_head


def grade(folder: Path, labels: Path) -> AuditResult:
    """Hold the scores in a folder against labels: the numbers that an audit with these labels has.

    labels: a table id, label with every row that was scored; a column canary marks rows whose label is a coin. Raises
    UserError.
    """
    head = read_head(folder)
    table = named_labels(labels, head.classes, "LABELS")
    truth = LabelledRows(table, head.classes)
    findings = [Findings(leaks.leaks(), [], [], {}) for leaks in _graded(folder, head, truth)]
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


def _graded(folder: Path, head: ScoresHead, truth: LabelledRows) -> list[LeakTable]:
    """A table for each epoch."""
    tables = [LeakTable() for _ in range(head.epochs)]
    for rows in read_scores(folder):
        if rows.epoch >= head.epochs or base_name(rows.key[0]) not in head.threats:
            problem = f"{SCORES} has epoch {rows.epoch} of attack {rows.key[0]!r}, which {HEAD} doesn't know"
            raise UserError(problem, key="grade", value=folder)
        if rows.scores.ndim == 2 and rows.scores.shape[1] != head.classes:
            problem = f"{SCORES} has {rows.scores.shape[1]} scores a row, for {head.classes} classes"
            raise UserError(problem, key="grade", value=folder)
        canary, known = np.isin(rows.ids, truth.canary_ids), rows.known.nonzero()[0]
        tables[rows.epoch].add(
            rows.key, rows.scores, truth.labels(rows.ids), known, canary, rows.candidates, rows.difference
        )
    return tables
