"""Tables of rows beside recorded messages: labels.parquet, known.parquet, features.parquet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.messages.parquet_shard import open_parquet

MOST_ROWS = 2 * 10**8


@dataclass(frozen=True)
class Labels:
    """ids, labels: (n,) int64, in the order of the file. canary: (n,) bool, rows whose label is a coin."""

    ids: Tensor
    labels: Tensor
    canary: Tensor


def read_labels(path: Path, classes: int) -> Labels:
    """id, label and canary of a Parquet table. Raises UserError for a file that holds something else."""
    try:
        with open_parquet(path) as file:
            names = _checked_names(file.schema_arrow.names, ("id", "label"))
            if file.metadata.num_rows > MOST_ROWS:
                raise ValueError(f"it has {file.metadata.num_rows:,} rows, and {MOST_ROWS:,} are read at most")
            wanted = ["id", "label", *(["canary"] if "canary" in names else [])]
            parts = [_label_part(part, classes) for part in file.iter_batches(2**16, columns=wanted)]
        ids, labels, canary = (np.concatenate([part[i] for part in parts] or [np.zeros(0, t)]) for i, t in enumerate(_TYPES))
        _refuse_repeated(ids)
    except Exception as error:  # whatever pyarrow makes of a damaged file
        raise unreadable(path, error) from error
    return Labels(torch.from_numpy(ids), torch.from_numpy(labels).long(), torch.from_numpy(canary))


_TYPES = (np.int64, np.int16, np.bool_)


def _label_part(part: pa.RecordBatch, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, labels = _integers(part, "id"), part.column("label")
    if pa.types.is_boolean(labels.type):
        labels = labels.cast(pa.int8())
    if labels.null_count or not pa.types.is_integer(labels.type):
        raise ValueError(f"column label must hold a whole number or a truth value in every row, not {labels.type}")
    values = labels.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if len(values) and not 0 <= values.min() <= values.max() < classes:
        raise ValueError(f"column label holds {values.min()} to {values.max()}, and classes are 0 to {classes - 1}")
    canary = np.zeros(len(ids), np.bool_)
    if "canary" in part.schema.names:
        if not pa.types.is_boolean(part.column("canary").type) or part.column("canary").null_count:
            raise ValueError("column canary must hold a truth value in every row")
        canary = part.column("canary").to_numpy(zero_copy_only=False).astype(np.bool_)
    return ids, values.astype(np.int16), canary


def read_ids(path: Path) -> Tensor:
    """The column id of a Parquet table, in its order. Raises UserError."""
    try:
        with open_parquet(path) as file:
            _checked_names(file.schema_arrow.names, ("id",))
            ids = [_integers(part, "id") for part in file.iter_batches(2**16, columns=["id"])]
    except Exception as error:
        raise unreadable(path, error) from error
    return torch.from_numpy(np.concatenate([*ids, np.zeros(0, np.int64)]))


def read_features(path: Path) -> tuple[Tensor, OwnColumns]:
    """ids (n,), and the columns: floating-point ones numeric, whole numbers and text categorical. Raises UserError."""
    try:
        with open_parquet(path) as file:
            names = _checked_names(file.schema_arrow.names, ("id",))
            table = file.read()
        ids = table.column("id").cast(pa.int64()).combine_chunks()
        numeric, categorical = [], []
        for name in names:
            column = table.column(name).combine_chunks()
            if name == "id":
                continue
            if column.null_count:
                raise ValueError(f"column {name[:80]} has rows without a value")
            if pa.types.is_floating(column.type):
                numeric.append(column.cast(pa.float32()).to_numpy(zero_copy_only=False))
            elif pa.types.is_integer(column.type):
                codes = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
                if len(codes) and (codes.min() < 0 or codes.max() >= 2**31):
                    raise ValueError(f"column {name[:80]}: ids of categories are whole numbers from 0, below 2^31")
                categorical.append(codes.astype(np.int32))
            elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                categorical.append(column.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int32))
            else:
                raise ValueError(f"column {name[:80]} must hold numbers or text, not {column.type}")
        numbers = ids.to_numpy(zero_copy_only=False).astype(np.int64)
        _refuse_repeated(numbers)
        columns = OwnColumns(_stacked(numeric, len(numbers), np.float32), _stacked(categorical, len(numbers), np.int32))
        if not bool(columns.numeric.isfinite().all()):
            raise ValueError("it has numbers that are not finite (NaN or infinite)")
    except Exception as error:
        raise unreadable(path, error) from error
    return torch.from_numpy(numbers), columns


def unreadable(path: Path, error: Exception) -> UserError:
    """One paragraph on a table that can't be read."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, FileNotFoundError):
        return UserError("there is no such file", key=path.name, value=path)
    text = " ".join(str(error).split())[:500]
    return UserError(f"it can't be read: {text or type(error).__name__}", key=path.name, value=path)


def _stacked(columns: Sequence[np.ndarray], rows: int, kind: type) -> Tensor:
    return torch.from_numpy(np.stack(columns, 1) if columns else np.zeros((rows, 0), kind))


def _integers(part: pa.RecordBatch, name: str) -> np.ndarray:
    column = part.column(name)
    if column.null_count or not pa.types.is_integer(column.type):
        raise ValueError(f"column {name} must hold a whole number in every row, not {column.type}")
    return np.array(column.cast(pa.int64()).to_numpy(zero_copy_only=False))


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
