"""Utility of the model after an epoch."""

from collections.abc import Mapping
from time import perf_counter

import torch
from torch import Tensor

from vflbench.data.batches import ordered_batches
from vflbench.data.rows import EncodedRows
from vflbench.data.table import VerticalTable
from vflbench.errors import NonFiniteError
from vflbench.metrics.utility import utility
from vflbench.protocols.base import Session
from vflbench.run.progress import Progress
from vflbench.run.summary import EpochResult

_BATCH = 8192


def evaluate(result: EpochResult, progress: Progress, tables: Mapping[str, VerticalTable | EncodedRows]) -> EpochResult:
    """Utility of the model on train and test rows, and the traffic over the wire."""
    result.traffic["train"] = progress.session.wire.take_traffic()
    result.figures = progress.session.figures()
    for split, table in tables.items():
        start = perf_counter()
        logits, labels = predict(progress.session, table)
        if not logits.isfinite().all():
            raise NonFiniteError(f"a prediction is not a finite number after epoch {result.epoch}")
        result.utility[split] = utility(logits, labels)
        result.seconds[f"{split}_prediction"] = perf_counter() - start
        result.traffic[f"{split}_prediction"] = progress.session.wire.take_traffic()
    return result


def predict(session: Session, table: VerticalTable | EncodedRows) -> tuple[Tensor, Tensor]:
    """Logits and labels of every row, in order."""
    batches = ordered_batches(table, _BATCH, session.rows)
    scored = [(session.predict(batch.ids), batch.labels) for batch in batches]
    logits, labels = zip(*scored, strict=True)
    return torch.cat(logits), torch.cat(labels)
