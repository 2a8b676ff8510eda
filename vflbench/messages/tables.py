"""Tables beside recorded messages: labels.parquet, known.parquet, features.parquet, and scores.parquet.

Scores go between those who have the messages and those who have the labels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from vflbench.errors import UserError
from vflbench.files import check_plain, in_a_line, replaced
from vflbench.messages.recording_format import is_layer
from vflbench.numerics.auc import array_of


@dataclass(frozen=True)
class LabelTable:
    """ids, labels: (n,) int64, in the order of the file. canary: (n,) bool, rows whose label is a coin. rows: a
    hexadecimal digest of the rows before there were coins, where the file has one.
    """

    ids: np.ndarray
    labels: np.ndarray
    canary: np.ndarray
    rows: str = ""


@dataclass(frozen=True)
class FeatureTable:
    """A party's own columns. ids: (n,) int64. numeric: (n, k) float32. categorical: (n, c) int32 ids."""

    ids: np.ndarray
    numeric: np.ndarray
    categorical: np.ndarray


def read_labels(path: Path, classes: int, *, links: bool = True) -> LabelTable:
    """id, label and canary of a Parquet table. Raises UserError for a file that holds something else.

    links: whether a link to a file will do, as where a user names it.
    """
    with _opened(path, "id", "label", links=links) as file:
        has_canaries = "canary" in file.schema_arrow.names
        table = file.read(columns=["id", "label", *(["canary"] if has_canaries else [])])
        ids, labels = _ids(table), _numbers(table, "label", "a whole number or a truth value", _is_whole, _is_truth)
        if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            raise ValueError(f"column label holds {labels.min()} to {labels.max()}, and classes are 0 to {classes - 1}")
        canary = _numbers(table, "canary", "a truth value", _is_truth) if has_canaries else np.zeros(len(ids))
        rows = (file.schema_arrow.metadata or {}).get(b"rows", b"")[:32].hex()
        return LabelTable(ids, labels, canary.astype(np.bool_), rows)


def read_ids(path: Path) -> np.ndarray:
    """The column id of a Parquet table, in its order, none there twice. Raises UserError."""
    with _opened(path, "id") as file:
        return _ids(file.read(columns=["id"]))


def read_features(path: Path) -> FeatureTable:
    """Floating-point columns are numeric, whole numbers and text categorical. Raises UserError."""
    with _opened(path, "id") as file:
        table = file.read()
        table.validate(full=True)
        ids = _ids(table)
        columns = [_column(table.column(name), name) for name in table.column_names if name != "id"]
        made = FeatureTable(
            ids, *(_stacked([c for c in columns if c.dtype == t], len(ids), t) for t in (np.float32, np.int32))
        )
        if not bool(np.isfinite(made.numeric).all()):
            raise ValueError("it has numbers that are not finite (NaN or infinite)")
        return made


def named_labels(path: Path, classes: int, key: str) -> LabelTable:
    """As `read_labels`, of a file that a user names under this key. Raises UserError."""
    try:
        return read_labels(path, classes)
    except UserError as error:
        problem = f"{error.problem}; it must be a Parquet file with the columns id and label"
        raise UserError(problem, key=key, value=path) from error


def write_rows(path: Path, columns: Mapping[str, Tensor | np.ndarray | Sequence[Any]], rows: bytes = b"") -> None:
    """Write a Parquet table, as labels.parquet, whole or not at all. columns: name -> (n,) values. rows: their digest."""
    arrays = {name: pa.array(v if isinstance(v, Sequence) else array_of(v)) for name, v in columns.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary:
        pq.write_table(pa.table(arrays, metadata={"rows": rows}), temporary, compression="zstd")


@contextmanager
def _opened(path: Path, *wanted: str, links: bool = False) -> Iterator[pq.ParquetFile]:
    """A plain file with these columns. Whatever pyarrow makes of a damaged one is a UserError of one paragraph."""
    try:
        check_plain(path, links=links)
        limits = {"thrift_string_size_limit": 2**24, "thrift_container_size_limit": 2**20}
        with pq.ParquetFile(path, memory_map=False, arrow_extensions_enabled=False, **limits) as file:
            names = file.schema_arrow.names
            if missing := [name for name in wanted if name not in names]:
                raise ValueError(f"it has no column {missing[0]}")
            yield file
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError("there is no such file", key=path.name, value=path) from error
    except Exception as error:
        raise UserError(f"it can't be read: {in_a_line(error)}", key=path.name, value=path) from error


_is_whole, _is_truth = pa.types.is_integer, pa.types.is_boolean


def _numbers(table: pa.Table, name: str, what: str, *kinds: Callable[[pa.DataType], bool]) -> np.ndarray:
    """(n,) int64 of a column of one of these kinds, without nulls. what: they are, in words."""
    column = table.column(name)
    if column.null_count or not any(of_kind(column.type) for of_kind in kinds):
        raise ValueError(f"column {name} must hold {what} in every row, not {str(column.type)[:200]}")
    return _array(column.cast(pa.int64()))


def _ids(table: pa.Table) -> np.ndarray:
    """(n,), none there twice."""
    ids = _numbers(table, "id", "a whole number", _is_whole)
    ordered = ids if bool((ids[1:] > ids[:-1]).all()) else np.sort(ids)
    if len(twice := ordered[1:][ordered[1:] == ordered[:-1]]):
        raise ValueError(f"id {twice[0]} is there twice")
    return ids


def _array(column: Any) -> np.ndarray:
    """(n,) numbers in memory of its own. (pyarrow's `to_numpy` imports pandas, which takes half a second.)"""
    return np.array(np.from_dlpack(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column))


def _column(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """(n,) float32, or int32 ids of categories; those of text are counted in the order in which they come."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if column.null_count:
        raise ValueError(f"column {name[:80]} has rows without a value")
    if pa.types.is_floating(kind):
        return _array(column.cast(pa.float32()))
    if pa.types.is_integer(kind):
        codes = _array(column.cast(pa.int64()))
        if len(codes) and not 0 <= codes.min() <= codes.max() < 2**31:
            raise ValueError(f"column {name[:80]}: ids of categories are whole numbers from 0, below 2^31")
        return codes.astype(np.int32)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _array(column.cast(pa.large_string()).combine_chunks().dictionary_encode().indices)
    raise ValueError(f"column {name[:80]} must hold numbers or text, not {str(kind)[:200]}")


def _stacked(columns: Sequence[np.ndarray], rows: int, kind: type) -> np.ndarray:
    """(rows, d)"""
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), kind)


SCORES = "scores.parquet"
_PARTS = 2**7  # read, and written, at a time
_KEY = ("attack", "message", "party", "layer")
_VALUES = dict.fromkeys(("ids", "known"), pa.int64()) | dict.fromkeys(("scores", "candidates", "difference"), pa.float64())
_SCHEMA = pa.schema(
    {"epoch": pa.int32(), **dict.fromkeys(_KEY, pa.string()), "visible": pa.bool_(), "exact": pa.int8()}
    | {name: pa.list_(kind) for name, kind in _VALUES.items()}
)
"""A row a part. exact: 1 if scores were float64 and not float32, plus 2 if candidates were; last bits of grades follow."""


@dataclass(frozen=True)
class ScoredRows:
    """What an attack said of the rows of a batch, or of a group of rows: a part.

    epoch: from 0. key: attack, message, party, layer, and whether an attacker sees it. ids: (n,). known: (k,) places of rows
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


@contextmanager
def score_writer(folder: Path) -> Iterator[Callable[[ScoredRows], None]]:
    """What adds a part to scores.parquet. The file is there whole or not at all."""
    waiting: list[dict[str, Any]] = []

    def add(rows: ScoredRows) -> None:
        if len(rows.ids):
            lists = {name: values.ravel() for name in _VALUES if (values := getattr(rows, name)) is not None}
            exact = sum(
                bit * (v is not None and v.dtype == np.float64) for bit, v in ((1, rows.scores), (2, rows.candidates))
            )
            key = dict(zip((*_KEY, "visible"), rows.key, strict=True))
            waiting.append({"epoch": rows.epoch, "exact": exact, **key, **lists})
        if len(waiting) >= _PARTS:
            flush()

    def flush() -> None:
        file.write_table(pa.Table.from_pylist(waiting, _SCHEMA))
        waiting.clear()

    with replaced(folder / SCORES) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as file:
        yield add
        flush()


def read_scores(folder: Path) -> Iterator[ScoredRows]:
    """The parts in order, some in memory at a time. Raises UserError for a file that holds something else."""
    with _opened(folder / SCORES, *_SCHEMA.names) as file:
        for batch in file.iter_batches(_PARTS, columns=_SCHEMA.names):
            table = pa.Table.from_batches([batch]).cast(_SCHEMA)
            for row in range(len(table)):
                yield _part({name: table.column(name)[row] for name in _SCHEMA.names})


def _part(row: Mapping[str, Any]) -> ScoredRows:
    """row: column -> its scalar."""
    names, epoch, exact = [row[name].as_py() for name in _KEY], row["epoch"].as_py(), row["exact"].as_py()
    if not 0 <= epoch < 10**6 or not all(map(is_layer, names)):
        raise ValueError("an epoch must be a number from 0, and names must have 1 to 200 characters, none of them control")
    lists = {name: _array(row[name].values) for name in _VALUES if row[name].is_valid}
    if not all(np.isfinite(values).all() for values in lists.values()):
        raise ValueError("it has numbers that are not finite (NaN or infinite)")
    ids, known = lists["ids"], lists["known"]
    if len(np.unique(ids)) < len(ids) or not np.isin(known, np.arange(len(ids))).all():
        raise ValueError("a row is scored twice in one part, or known without being there")
    scores = lists["scores"].reshape(len(ids), -1).astype(np.float64 if exact & 1 else np.float32)
    candidates, difference = lists.get("candidates"), lists.get("difference")
    if candidates is not None:
        candidates = candidates.reshape(len(ids), -1).astype(np.float64 if exact & 2 else np.float32)
    if difference is not None and (difference.shape != ids.shape or scores.shape[1] != 2):
        raise ValueError("column difference is of two columns of scores")
    order = None if difference is None else difference.astype(scores.dtype)
    key = (*names, row["visible"].as_py())
    return ScoredRows(epoch, key, ids, known, scores[:, 0] if scores.shape[1] == 1 else scores, candidates, order)
