"""Auxiliary rows: rows that an attacker has whole, and that nobody trains on."""

import dataclasses

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.raw import RawTable
from vflbench.data.rows import BUFFER_ROWS, EncodedRows
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.messages.peer_facts import Auxiliary

_COMPARED = 1000  # rows of another source that are looked for among those of the run


def auxiliary_rows(held_out: EncodedRows, count: int, seed: int) -> Auxiliary:
    """At most so many held-out rows, in a random order: the columns of every party, and the classes."""
    rows = held_out.sample(count)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count].to(rows.ids.device)
    drawn = rows.rows(order)
    columns = {party: OwnColumns(block.numeric, block.categorical) for party, block in drawn.features.items()}
    return Auxiliary(columns, drawn.labels)


def rows_of_another_source(dataset: Dataset, path: str, train: EncodedRows, rng: torch.Generator) -> EncodedRows:
    """The rows at `path`, read by the dataset's own loader and encoded as the training rows are.

    Raises UserError if they have other columns, more classes or categorical columns (whose vocabularies can't be compared), or
    if most are rows of the run.
    """

    def refused(problem: str) -> UserError:
        return UserError(problem, key="audit.auxiliary_path", value=path)

    options = {field.name for field in dataclasses.fields(dataset)}  # type: ignore[arg-type]
    if "path" not in options:
        raise refused(f"dataset={type(dataset).__name__} reads no path; auxiliary rows are then test rows (null)")
    changes = {"path": path, "rows": None} | {name: None for name in ("images", "labels") if name in options}
    try:
        raw, _ = dataclasses.replace(dataset, **changes).read(rng)  # type: ignore[type-var]
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
    if raw.fingerprint == own.fingerprint or _shared_rows(raw, own):
        raise refused("it holds rows of the run itself; auxiliary rows must be other ones")
    return EncodedRows(raw, train.encoding, np.ones(len(raw), dtype=np.uint8), 1, train.device)


def _shared_rows(raw: RawTable, own: RawTable) -> bool:
    """Whether most of the first rows of one source are rows of the other, in the same columns."""
    first = raw.take(np.arange(min(len(raw), _COMPARED))).numeric
    known = {row.tobytes() for row in own.take(np.arange(min(len(own), BUFFER_ROWS))).numeric.astype(first.dtype)}
    return sum(row.tobytes() in known for row in first) * 2 > len(first)
