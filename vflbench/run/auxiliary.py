"""Auxiliary rows: rows that an attacker has whole, and that nobody trains on."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.raw import RawTable
from vflbench.data.rows import BUFFER_ROWS, EncodedRows
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.messages.peer_facts import Auxiliary


def auxiliary_rows(held_out: EncodedRows, count: int, seed: int) -> Auxiliary:
    """At most so many held-out rows, in a random order: the columns of every party, and the classes."""
    rows = held_out.sample(count)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count].to(rows.ids.device)
    drawn = rows.rows(order)
    columns = {party: OwnColumns(block.numeric, block.categorical) for party, block in drawn.features.items()}
    return Auxiliary(columns, drawn.labels)


def rows_of_another_source(dataset: Dataset, path: str, train: EncodedRows, rng: torch.Generator) -> EncodedRows:
    """The rows at `path`, read by the dataset's own loader and encoded as the training rows are; rows that are rows of the
    run, to the bit, are left out.

    Raises UserError if they have other columns, more classes or categorical columns (whose vocabularies can't be compared),
    or if most are rows of the run.
    """

    def refused(problem: str) -> UserError:
        return UserError(problem, key="audit.auxiliary_path", value=path)

    options = {field.name for field in dataclasses.fields(dataset)}
    if "path" not in options:
        raise refused(f"dataset={type(dataset).__name__} reads no path; auxiliary rows are then test rows (null)")
    changes: dict[str, Any] = {"path": path, "rows": None} | {name: None for name in ("images", "labels") if name in options}
    try:
        raw, _ = dataclasses.replace(dataset, **changes).read(rng)
    except UserError as error:
        raise refused(f"it can't be read like the dataset: {error}") from error
    own = train.raw
    if raw.numeric_names != own.numeric_names or raw.categorical_names != own.categorical_names:
        other = sorted({*raw.names} ^ {*own.names})[:3]
        which = f" ({', '.join(other)}, ... are in one alone)" if other else ", in another order"
        raise refused(f"it must have the dataset's columns; it has {len(raw.names)}, the dataset {len(own.names)}{which}")
    if raw.categorical_names:
        raise refused("the columns must be numeric: ids of categories are counted in each source by itself")
    if raw.classes > own.classes:
        raise refused(f"it has {raw.classes} classes, and the dataset has {own.classes}")
    is_new = np.ones(len(raw), dtype=np.uint8) if raw.fingerprint != own.fingerprint else np.zeros(len(raw), dtype=np.uint8)
    if is_new.any():
        is_new[_shared_rows(raw, own)] = 0
    if 2 * int(is_new.sum()) < len(raw) or not is_new.any():
        raise refused("it holds rows of the run itself; auxiliary rows must be other ones")
    return EncodedRows(raw, train.encoding, is_new, 1, train.device)


def _shared_rows(raw: RawTable, own: RawTable) -> np.ndarray:
    """(n,) bool: rows of one source that are rows of the other, in the same columns."""
    kind = raw.take(np.arange(1)).numeric.dtype
    known = {hash(row.tobytes()) for rows in _numeric(own) for row in rows.astype(kind)}
    return np.array([hash(row.tobytes()) in known for rows in _numeric(raw) for row in rows], dtype=bool)


def _numeric(table: RawTable) -> Iterator[np.ndarray]:
    for start in range(0, len(table), BUFFER_ROWS):
        yield table.take(np.arange(start, min(start + BUFFER_ROWS, len(table)))).numeric
