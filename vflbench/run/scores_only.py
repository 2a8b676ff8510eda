"""An audit in two halves: attacks where the messages are, grades where the labels are. No label moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.score_files import SCORES, ScoredRows, ScoreWriter, ordered
from vflbench.metrics.leakage import Key, LeakTable, Values, between, checked_scores
from vflbench.numerics.arrays import array_of
from vflbench.run.audit_notes import as_they_knew, described
from vflbench.run.auditor import Auditor
from vflbench.run.grade_scores import Tables
from vflbench.run.offline import Batches, Epochs, auditor_of, findings_of, tuned
from vflbench.run.recorded_source import RecordedSource
from vflbench.run.scores_head import HEAD, ScoresHead, ThreatRecord
from vflbench.run.summary import threats_of


class ScoreTable(LeakTable):
    """Takes scores in place of their leak AUC. The truth that it is given are the rows' ids."""

    def __init__(self, writer: ScoreWriter, epoch: int):
        super().__init__()
        self._writer, self._epoch = writer, epoch

    def add(
        self,
        key: Key,
        scores: Values,
        truth: Values,
        known: Values | None = None,
        canary: Values | None = None,
        candidates: Values | None = None,
        difference: Values | None = None,
    ) -> None:
        assert not isinstance(scores, np.ndarray)  # attacks answer in tensors
        scores = checked_scores(scores, len(truth), attack=key[0], layer=key[3])
        apart = between(scores) if scores.ndim == 2 else None
        is_known = np.zeros(len(truth), np.bool_)
        if known is not None:
            is_known[array_of(known)] = True
        columns = None
        if candidates is not None:
            of_each = array_of(candidates).reshape(len(truth), -1).T
            columns = np.stack([ordered(column) for column in of_each], axis=1) if len(of_each) else None
        order = None if apart is None else ordered(array_of(apart))
        of_rows = ScoredRows(self._epoch, key, array_of(truth), is_known, ordered(array_of(scores)), columns, order)
        self._writer.add(of_rows)
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
        raise UserError("it holds scores already; name another folder, or delete this one", key="--scores-only", value=out)
    source = RecordedSource(recording, labelled=False)
    skipped = source.skipped(attacks)
    running = {name: attack for name, attack in attacks.items() if name not in skipped}
    if not running:
        names = {reason: [name for name in skipped if skipped[name] == reason] for reason in skipped.values()}
        reasons = "; ".join(f"{', '.join(names[reason])}: {reason}" for reason in names)
        raise UserError(f"no attack can run on this recording without labels ({reasons})", key="--scores-only", value=out)
    out.mkdir(parents=True, exist_ok=True)
    writer = ScoreWriter(out)
    number = iter(range(10**6))
    try:
        with tuned(source):
            auditor = auditor_of(
                source,
                running,
                seed=seed,
                batches=batches,
                epochs=epochs,
                probe=False,
                references=False,
                tables=lambda: Tables(leaks=ScoreTable(writer, next(number))),
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
