"""An audit in two halves: attacks where the messages are, grades where the labels are. No label moves, and no message."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, TypeAdapter
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.messages.manifest import LAYER, MOST_CLASSES, PARTY, checked, read_json
from vflbench.messages.message_files import write_json
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.row_files import read_labels
from vflbench.messages.score_files import SCORES, ScoredRows, ScoreWriter, read_scores
from vflbench.metrics.leakage import Key, LeakTable, checked_scores
from vflbench.results.levels import base_name
from vflbench.run.answers import Findings, Tables
from vflbench.run.end_of_epoch import unanswered
from vflbench.run.facts import threats_of
from vflbench.run.machine import tune
from vflbench.run.offline import AuditResult, Batches, Epochs, auditor_of, described, findings_of
from vflbench.run.recorded_rows import RecordedRows
from vflbench.run.recorded_source import RecordedSource

HEAD = "scores.json"
FORMAT = "vflbench-scores/1"

Name = Annotated[str, Field(max_length=300)]


@dataclass(frozen=True)
class ThreatRecord:
    """What `Threat.record` says of an attack, and what it does."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    seat: Name
    knows: Sequence[Name]
    known_rows: Annotated[int, Field(ge=0)]
    hints: Annotated[int, Field(ge=0)]
    active: bool
    level: Name
    message: Name
    text: Annotated[str, Field(max_length=10_000)]
    does: Annotated[str, Field(max_length=10_000)] = ""


@dataclass(frozen=True)
class ScoresHead:
    """What `scores.json` says: of the recording, and of the attacks that scored it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)]
    epochs: Annotated[int, Field(ge=1, le=10**4)]
    threats: Mapping[Name, ThreatRecord]
    layers: Mapping[Name, Sequence[Name]]
    cut_layers: Mapping[Name, Sequence[Name]]
    skipped: Mapping[Name, str]
    attacks: Sequence[Name]
    rows: Annotated[int, Field(ge=0)] = 0
    batch_size: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0
    class_shares: Sequence[Annotated[float, Field(ge=0, le=1)]] | None = None
    model: Mapping[Name, float] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for party, names in {**self.layers, **self.cut_layers}.items():
            if not PARTY.fullmatch(party) or not all(LAYER.fullmatch(name) for name in names):
                raise ValueError("layers: these are no names of parties and layers")


_HEAD: TypeAdapter[Any] = TypeAdapter(ScoresHead)


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
    ) -> None:
        scores = checked_scores(scores, len(truth), attack=key[0], layer=key[3])
        is_known = torch.zeros(len(truth), dtype=torch.bool)
        if known is not None:
            is_known[known.cpu()] = True
        columns = candidates if candidates is None or candidates.ndim == 2 else candidates[:, None]
        self._writer.add(ScoredRows(self._epoch, key, truth, is_known, scores, columns))
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
    """Attack recorded messages without any labels, and write what attacks say of each row into the folder `out`.

    Nothing in it but ids, scores, and names of layers and attacks comes from the messages. Attacks that are given labels run
    if known.parquet has some. Reconstructions and class counts are left out. shares: of the classes, in place of those in
    manifest.json. Raises UserError.
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
    tune()
    writer = ScoreWriter(out)
    number = iter(range(10**6))
    try:
        auditor = auditor_of(
            source,
            running,
            seed=seed,
            batches=batches,
            epochs=epochs,
            probe=False,
            tables=lambda: Tables(leaks=ScoreTable(writer, next(number))),
        )
        count = sum(1 for _ in findings_of(source, auditor))
        writer.close()
    except BaseException:
        writer.drop()
        raise
    about = described(source, seed)
    head = ScoresHead(
        classes=recording.manifest.classes,
        epochs=count,
        threats={name: ThreatRecord(**record) for name, record in threats_of(auditor.posts, attacks).items()},
        layers=about["layers"],
        cut_layers=about["cut_layers"],
        skipped=skipped,
        attacks=list(running),
        rows=about["listed"],
        batch_size=about["batch_size"],
        seed=about["seed"],
        class_shares=recording.manifest.class_shares,
        model=about["model"],
        claims=about["claims"],
        notes=about["notes"],
    )
    write_json(out / HEAD, {"format": FORMAT, **_HEAD.dump_python(head, mode="json")})
    return head


def read_head(folder: Path) -> ScoresHead:
    """scores.json of a folder. Raises UserError."""
    content = read_json(folder, HEAD)
    if content.pop("format", None) != FORMAT:
        raise UserError(f"{HEAD} can't be read: its format is not {FORMAT}", key="grade", value=folder)
    try:
        head: ScoresHead = checked(_HEAD, content)
    except ValueError as error:
        raise UserError(f"{HEAD} can't be read: {error}", key="grade", value=folder) from error
    return head


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
        claims=head.claims,
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
        tables[rows.epoch].add(rows.key, rows.scores, truth.labels(rows.ids), known, canary, rows.candidates)
    yield from tables


def _findings(leaks: LeakTable) -> Findings:
    return Findings(leaks.leaks(), [], [], {})
