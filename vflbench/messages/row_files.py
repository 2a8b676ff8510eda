"""Tables of rows beside recorded messages: labels.parquet, known.parquet, features.parquet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from vflbench.errors import UserError
from vflbench.messages.parquet_columns import codes_of, integers, numbers_of
from vflbench.messages.parquet_pages import open_parquet
from vflbench.plain_files import in_a_line

MOST_ROWS = 2 * 10**8
MOST_VALUES = 10**9  # of features, which are held in memory


@dataclass(frozen=True)
class Labels:
    """ids, labels: (n,) int64, in the order of the file. canary: (n,) bool, rows whose label is a coin. rows: a
    hexadecimal digest of the rows before there were coins, where the file has one.
    """

    ids: np.ndarray
    labels: np.ndarray
    canary: np.ndarray
    rows: str = ""


@dataclass(frozen=True)
class Features:
    """A party's own columns. ids: (n,) int64. numeric: (n, k) float32. categorical: (n, c) int32 ids."""

    ids: np.ndarray
    numeric: np.ndarray
    categorical: np.ndarray


def read_labels(path: Path, classes: int, *, links: bool = True) -> Labels:
    """id, label and canary of a Parquet table. Raises UserError for a file that holds something else.

    links: whether a link to a file will do, as where a user names it.
    """
    try:
        with open_parquet(path, links=links) as file:
            columns = set(_checked_names(file.schema_arrow.names, ("id", "label"))) & {"id", "label", "canary"}
            if file.metadata.num_rows > MOST_ROWS:
                raise ValueError(f"it has {file.metadata.num_rows:,} rows, and {MOST_ROWS:,} are read at most")
            rows = (file.schema_arrow.metadata or {}).get(b"rows", b"")[:32].hex()
            parts = [_label_part(part, classes) for part in file.iter_batches(2**16, columns=sorted(columns))]
        ids, labels, canary = (np.concatenate([part[i] for part in parts] or [np.zeros(0, t)]) for i, t in enumerate(_TYPES))
        _refuse_repeated(ids)
    except Exception as error:  # whatever pyarrow makes of a damaged file
        raise unreadable(path, error) from error
    return Labels(ids, labels.astype(np.int64), canary, rows)


_TYPES = (np.int64, np.int16, np.bool_)


def _label_part(part: pa.RecordBatch, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, labels = _whole(part.column("id"), "id"), part.column("label")
    is_truth = pa.types.is_boolean(labels.type)
    if labels.null_count or not (is_truth or pa.types.is_integer(labels.type)):
        raise ValueError(
            f"column label must hold a whole number or a truth value in every row, not {str(labels.type)[:200]}"
        )
    values = numbers_of(labels).astype(np.int64) if is_truth else integers(labels, "label")
    if len(values) and not 0 <= values.min() <= values.max() < classes:
        raise ValueError(f"column label holds {values.min()} to {values.max()}, and classes are 0 to {classes - 1}")
    canary = np.zeros(len(ids), np.bool_)
    if "canary" in part.schema.names:
        if not pa.types.is_boolean(part.column("canary").type) or part.column("canary").null_count:
            raise ValueError("column canary must hold a truth value in every row")
        canary = numbers_of(part.column("canary"))
    return ids, values.astype(np.int16), canary


def read_ids(path: Path) -> np.ndarray:
    """The column id of a Parquet table, in its order. Raises UserError."""
    try:
        with open_parquet(path) as file:
            _checked_names(file.schema_arrow.names, ("id",))
            ids = [_whole(part.column("id"), "id") for part in file.iter_batches(2**16, columns=["id"])]
    except Exception as error:
        raise unreadable(path, error) from error
    return np.concatenate([*ids, np.zeros(0, np.int64)])


def read_features(path: Path) -> Features:
    """Floating-point columns are numeric, whole numbers and text categorical. Raises UserError."""
    try:
        with open_parquet(path) as file:
            names = _checked_names(file.schema_arrow.names, ("id",))
            count = file.metadata.num_rows * len(names)
            if count > MOST_VALUES:
                raise ValueError(f"it has {count:,} values, and {MOST_VALUES:,} are read at most")
            parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
            texts: dict[str, dict[str, int]] = {name: {} for name in names}
            for part in file.iter_batches(2**14):
                part.validate(full=True)
                for name in names:
                    parts[name].append(_column(part.column(name), name, texts[name]))
            ids = np.concatenate([*parts.pop("id"), np.zeros(0, np.int64)])
        _refuse_repeated(ids)
        made = Features(ids, _stacked(parts, len(ids), np.float32), _stacked(parts, len(ids), np.int32))
        if not bool(np.isfinite(made.numeric).all()):
            raise ValueError("it has numbers that are not finite (NaN or infinite)")
    except Exception as error:
        raise unreadable(path, error) from error
    return made


def named_labels(path: Path, classes: int, key: str) -> Labels:
    """As `read_labels`, of a file that a user names under this key. Raises UserError."""
    try:
        return read_labels(path, classes)
    except UserError as error:
        problem = f"{error.problem}; it must be a Parquet file with the columns id and label"
        raise UserError(problem, key=key, value=path) from error


def unreadable(path: Path, error: Exception) -> UserError:
    """One paragraph on a table that can't be read."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, FileNotFoundError):
        return UserError("there is no such file", key=path.name, value=path)
    return UserError(f"it can't be read: {in_a_line(error)}", key=path.name, value=path)


def _column(column: pa.Array, name: str, texts: dict[str, int]) -> np.ndarray:
    """Rows of a column as float32, or int32 ids of categories; those of id as int64. texts: code of each, by first met."""
    kind = column.type
    if column.null_count:
        raise ValueError(f"column {name[:80]} has rows without a value")
    if name == "id":
        return _whole(column, name)
    if pa.types.is_floating(kind):
        return np.array(column.cast(pa.float32()).to_numpy(zero_copy_only=False), np.float32)
    if pa.types.is_integer(kind):
        codes = integers(column, name)
        if len(codes) and (codes.min() < 0 or codes.max() >= 2**31):
            raise ValueError(f"column {name[:80]}: ids of categories are whole numbers from 0, below 2^31")
        return codes.astype(np.int32)
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(value) or pa.types.is_large_string(value):
        return codes_of(column, name[:80], texts).astype(np.int32)
    raise ValueError(f"column {name[:80]} must hold numbers or text, not {str(kind)[:200]}")


def _stacked(columns: Mapping[str, Sequence[np.ndarray]], rows: int, kind: type) -> np.ndarray:
    """(rows, d) of the columns of that type, in their order."""
    chosen = [parts for parts in columns.values() if parts and parts[0].dtype == kind]
    made: np.ndarray = np.zeros((rows, len(chosen)), kind)
    for place, parts in enumerate(chosen):
        np.concatenate(parts, out=made[:, place])
    return made


def _whole(column: pa.Array, name: str) -> np.ndarray:
    if column.null_count or not pa.types.is_integer(column.type):
        raise ValueError(f"column {name} must hold a whole number in every row, not {str(column.type)[:200]}")
    return integers(column, name)


def _checked_names(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ValueError(f"it has no column {missing[0]}")
    if len(set(names)) != len(names):
        raise ValueError("two of its columns have one name")
    return list(names)


def _refuse_repeated(ids: np.ndarray) -> None:
    ordered = ids if bool((ids[1:] > ids[:-1]).all()) else np.sort(ids)
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise ValueError(f"id {ordered[1:][ordered[1:] == ordered[:-1]][0]} is there twice")
