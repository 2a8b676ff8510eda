"""Scores of attacks as a table, between those who have the messages and those who have the labels.

The column `exact` is 1 if scores were float64 and not float32, plus 2 if candidates were.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vflbench.messages.manifest import LAYER
from vflbench.messages.parquet_columns import codes_of, integers, numbers_of
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
_LISTS = ("scores", "candidates", "difference")
_ALIKE = ("epoch", *_NAMES, "visible", "exact")  # in all rows of a part
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
    ids: np.ndarray
    known: np.ndarray
    scores: np.ndarray
    candidates: np.ndarray | None = None
    difference: np.ndarray | None = None


def ordered(values: np.ndarray) -> np.ndarray:
    """The ranks of values, from 0, equal ones of equal values, among all of them. Of the same type."""
    return np.unique(values, return_inverse=True)[1].astype(values.dtype).reshape(values.shape)


class ScoreWriter:
    """Writes rows in order, whole or not at all: nothing stands under the file's name before it ends well."""

    def __init__(self, folder: Path):
        self._path = folder / SCORES
        self._temporary = temporary_beside(self._path)
        self._file = pq.ParquetWriter(self._temporary, _SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._parts = self._rows = 0

    def __enter__(self) -> Self:
        return self

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
            pa.array(rows.ids),
            pa.array(rows.known),
            _lists(rows.scores),
            *(_lists(np.empty((n, 0)) if v is None else v) for v in (rows.candidates, rows.difference)),
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            self._flush()
        if kind is None:
            self._temporary.replace(self._path)
        self._temporary.unlink(missing_ok=True)


def read_scores(folder: Path) -> Iterator[ScoredRows]:
    """The parts in order, one in memory at a time. Raises UserError for a file that holds something else."""
    path = folder / SCORES
    try:
        with open_parquet(path) as file:
            if file.schema_arrow.names != _SCHEMA.names:
                raise ValueError(f"its columns must be {', '.join(_SCHEMA.names)}")
            waiting: list[_Rows] = []
            part = -1
            for batch in file.iter_batches(_ROWS):
                rows = _rows(batch)
                numbers = rows["part"]
                if (numbers[1:] < numbers[:-1]).any():
                    raise ValueError("its parts are not in order")
                ends = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
                for start, end in zip([0, *ends], [*ends, len(numbers)], strict=True):
                    if waiting and numbers[start] != part:
                        yield _part(waiting)
                        waiting = []
                    if numbers[start] < part:
                        raise ValueError("its parts are not in order")
                    part = int(numbers[start])
                    waiting.append(_some(rows, start, end))
            if waiting:
                yield _part(waiting)
    except GeneratorExit:
        raise
    except Exception as error:  # whatever pyarrow makes of a damaged file
        raise unreadable(path, error) from error


_Rows = dict[str, np.ndarray]
"""Columns by name; of one of lists the values, and under `NAME lengths` how many each row has. Names are texts. differs:
whether a row has another epoch, name or mark than the one before it.
"""


def _rows(batch: pa.RecordBatch) -> _Rows:
    made: _Rows = {}
    for name in _SCHEMA.names:
        column = batch.column(name)
        if column.null_count:
            raise ValueError(f"column {name} has rows without a value")
        if name in _NAMES:
            known: dict[str, int] = {}
            codes = codes_of(column, name, known)
            made[name] = np.array([*known, ""], object)[codes]
        elif name in _LISTS:
            offsets = numbers_of(column.offsets)
            made[name] = numbers_of(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
            made[f"{name} lengths"] = np.diff(offsets)
        else:
            made[name] = integers(column, name) if name in ("part", "id") else numbers_of(column)
    made["differs"] = np.zeros(len(batch), np.bool_)
    for name in _ALIKE:
        made["differs"][1:] |= made[name][1:] != made[name][:-1]
    for name in _LISTS:
        made[f"{name} ends"] = made[f"{name} lengths"].cumsum()
    return made


def _some(rows: _Rows, start: int, end: int) -> _Rows:
    """The rows from start to end - 1."""
    made = {name: values[start:end] for name, values in rows.items() if name not in _LISTS}
    for name in _LISTS:
        ends = rows[f"{name} ends"]
        made[name] = rows[name][ends[start - 1] if start else 0 : ends[end - 1]]
    return made


def _part(pieces: Sequence[_Rows]) -> ScoredRows:
    rows = pieces[0] if len(pieces) == 1 else {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}
    one: dict[str, Any] = {}
    may_differ = len(pieces) > 1 or bool(rows["differs"][1:].any())
    for name in _ALIKE:
        one[name] = rows[name][0]
        if may_differ and (rows[name] != one[name]).any():
            raise ValueError(f"column {name} differs within a part")
    if not 0 <= one["epoch"] < 10**6 or not all(LAYER.fullmatch(one[name]) for name in _NAMES):
        raise ValueError("an epoch must be a number from 0, and names must have 1 to 200 characters, none of them control")
    ids, exact = rows["id"], int(one["exact"])
    in_order = np.sort(ids)
    if (in_order[1:] == in_order[:-1]).any():
        raise ValueError("a row is scored twice in one part")
    scores, candidates, difference = (_matrix(rows, name) for name in _LISTS)
    key = (one["attack"], one["message"], one["party"], one["layer"], bool(one["visible"]))
    column = scores[:, 0] if scores.shape[1] == 1 else scores
    column = column if exact & 1 else column.astype(np.float32)
    candidates = candidates if exact & 2 else candidates.astype(np.float32)
    if difference.shape[1] and (difference.shape[1] > 1 or scores.shape[1] != 2):
        raise ValueError("column difference is of two columns of scores")
    order = difference[:, 0].astype(column.dtype) if difference.shape[1] else None
    known = rows["known"].astype(np.bool_)
    return ScoredRows(int(one["epoch"]), key, ids, known, column, candidates if candidates.shape[1] else None, order)


def _exact(values: np.ndarray | None) -> bool:
    """Whether they are float64; everything else fits into float32, and is graded as such."""
    return values is not None and values.dtype == np.float64


def _lists(values: np.ndarray) -> pa.Array:
    rows = values.astype(np.float64).reshape(len(values), -1)
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)))


def _matrix(rows: _Rows, name: str) -> np.ndarray:
    numbers, lengths = rows[name], rows[f"{name} lengths"]
    width = int(lengths[0])
    if (lengths != width).any() or width > MOST_COLUMNS or (name == "scores" and not width):
        raise ValueError(f"column {name} must hold lists of one length, {MOST_COLUMNS} at most")
    if not np.isfinite(numbers).all():
        raise ValueError(f"column {name} has numbers that are not finite (NaN or infinite)")
    return np.array(numbers, np.float64).reshape(len(lengths), width)
