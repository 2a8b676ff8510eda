"""Scores of attacks as a table, between those who have the messages and those who have the labels.

The column `exact` is 1 if scores were float64 and not float32, plus 2 if candidates were.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from vflbench.messages.manifest import LAYER
from vflbench.messages.parquet_pages import open_parquet
from vflbench.messages.row_files import unreadable
from vflbench.plain_files import temporary_beside

SCORES = "scores.parquet"
_ROWS = 2**16  # written at a time
_NAME = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [
        ("part", pa.int64()),
        ("epoch", pa.int32()),
        ("attack", _NAME),
        ("message", _NAME),
        ("party", _NAME),
        ("layer", _NAME),
        ("visible", pa.bool_()),
        ("exact", pa.int8()),
        ("id", pa.int64()),
        ("known", pa.bool_()),
        ("scores", pa.list_(pa.float64())),
        ("candidates", pa.list_(pa.float64())),
        ("difference", pa.list_(pa.float64())),
    ]
)
_NAMES = ("attack", "message", "party", "layer")
MOST_COLUMNS = 4096  # of scores and candidates


@dataclass(frozen=True)
class ScoredRows:
    """What an attack said of the rows of a batch, or of a group of rows.

    epoch: from 0. key: attack, message, party, layer, and whether an attacker sees it. ids: (n,). known: (n,) bool, rows
    whose label it was given. scores: (n,) or (n, K). candidates: (n, m) or None. difference: (n,) of two columns of scores,
    or None. Only their order counts: see `ordered`.
    """

    epoch: int
    key: tuple[str, str, str, str, bool]
    ids: Tensor
    known: Tensor
    scores: Tensor
    candidates: Tensor | None = None
    difference: Tensor | None = None


def ordered(values: Tensor) -> Tensor:
    """The ranks of values, from 0, equal ones of equal values, among all of them. Of the same type."""
    return values.double().unique(return_inverse=True)[1].to(values.dtype).view(values.shape)


class ScoreWriter:
    """Writes rows in order, whole or not at all: nothing stands under the file's name before `close`."""

    def __init__(self, folder: Path):
        self._path = folder / SCORES
        self._temporary = temporary_beside(self._path)
        self._file = pq.ParquetWriter(self._temporary, _SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._parts = self._rows = 0

    def add(self, rows: ScoredRows) -> None:
        """One part more; batches and groups are told apart by it."""
        n = len(rows.ids)
        if not n:
            return
        arrays = [
            pa.array(np.full(n, self._parts, np.int64)),
            pa.array(np.full(n, rows.epoch, np.int32)),
            *(pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), [text]) for text in rows.key[:4]),
            pa.array(np.full(n, rows.key[4], np.bool_)),
            pa.array(np.full(n, _exact(rows.scores) + 2 * _exact(rows.candidates), np.int8)),
            pa.array(rows.ids.cpu().numpy()),
            pa.array(rows.known.cpu().numpy()),
            _lists(rows.scores),
            *(_lists(rows.scores.new_empty(n, 0) if v is None else v) for v in (rows.candidates, rows.difference)),
        ]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        self._parts, self._rows = self._parts + 1, self._rows + n
        if self._rows >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting).unify_dictionaries()
            self._file.write_table(table)
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._file.close()
        self._temporary.replace(self._path)

    def drop(self) -> None:
        """Write nothing."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def read_scores(folder: Path) -> Iterator[ScoredRows]:
    """The parts in order, one in memory at a time. Raises UserError for a file that holds something else."""
    path = folder / SCORES
    try:
        with open_parquet(path) as file:
            if file.schema_arrow.names != _SCHEMA.names:
                raise ValueError(f"its columns must be {', '.join(_SCHEMA.names)}")
            waiting: list[pa.RecordBatch] = []
            part = -1
            for batch in file.iter_batches(_ROWS):
                numbers = batch.column("part").to_numpy(zero_copy_only=False)
                if batch.column("part").null_count or (len(numbers) and (np.diff(numbers) < 0).any()):
                    raise ValueError("its parts are not in order")
                ends = np.flatnonzero(np.diff(numbers)) + 1
                for start, end in zip([0, *ends], [*ends, len(numbers)], strict=True):
                    if waiting and numbers[start] != part:
                        yield _part(pa.Table.from_batches(waiting))
                        waiting = []
                    if numbers[start] < part:
                        raise ValueError("its parts are not in order")
                    part = int(numbers[start])
                    waiting.append(batch.slice(start, end - start))
            if waiting:
                yield _part(pa.Table.from_batches(waiting))
    except GeneratorExit:
        raise
    except Exception as error:  # whatever pyarrow makes of a damaged file
        raise unreadable(path, error) from error


def _part(rows: pa.Table) -> ScoredRows:
    for name in _SCHEMA.names:
        if rows.column(name).null_count:
            raise ValueError(f"column {name} has rows without a value")
    one: dict[str, Any] = {}
    for name in ("epoch", *_NAMES, "visible", "exact"):
        values = rows.column(name).unique().to_pylist()
        if len(values) != 1:
            raise ValueError(f"column {name} differs within a part")
        one[name] = values[0]
    if not 0 <= one["epoch"] < 10**6 or not all(LAYER.fullmatch(one[name]) for name in _NAMES):
        raise ValueError("an epoch must be a number from 0, and names must have 1 to 200 characters, none of them control")
    ids = torch.from_numpy(rows.column("id").to_numpy().astype(np.int64).copy())
    if len(ids.unique()) != len(ids):
        raise ValueError("a row is scored twice in one part")
    known = torch.from_numpy(rows.column("known").to_numpy().astype(np.bool_).copy())
    names = ("scores", "candidates", "difference")
    scores, candidates, difference = (_matrix(rows.column(name).combine_chunks(), name) for name in names)
    key = (*(one[name] for name in _NAMES), bool(one["visible"]))
    column = scores[:, 0] if scores.shape[1] == 1 else scores
    column = column if one["exact"] & 1 else column.float()
    candidates = candidates if one["exact"] & 2 else candidates.float()
    if difference.shape[1] and (difference.shape[1] > 1 or scores.shape[1] != 2):
        raise ValueError("column difference is of two columns of scores")
    order = difference[:, 0].to(column.dtype) if difference.shape[1] else None
    return ScoredRows(one["epoch"], key, ids, known, column, candidates if candidates.shape[1] else None, order)


def _exact(values: Tensor | None) -> bool:
    """Whether they are float64; everything else fits into float32, and is graded as such."""
    return values is not None and values.dtype is torch.float64


def _lists(values: Tensor) -> pa.Array:
    rows = values.double().cpu().reshape(len(values), -1)
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.numpy().reshape(-1)))


def _matrix(lists: pa.Array, name: str) -> Tensor:
    numbers, lengths = lists.flatten().to_numpy(zero_copy_only=False), np.diff(lists.offsets.to_numpy())
    width = int(lengths[0])
    if (lengths != width).any() or width > MOST_COLUMNS or (name == "scores" and not width):
        raise ValueError(f"column {name} must hold lists of one length, {MOST_COLUMNS} at most")
    if not np.isfinite(numbers).all():
        raise ValueError(f"column {name} has numbers that are not finite (NaN or infinite)")
    return torch.from_numpy(np.array(numbers, np.float64)).view(len(lengths), width)
