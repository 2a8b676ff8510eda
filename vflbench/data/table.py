"""Tables: raw columns as a source holds them, and what every loader returns of them: rows that all parties share, columns
split between them. Between the two stands an encoding (missing values, vocabularies, transformation, min-max), which is
fitted once, and applied as rows are read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from vflbench.errors import UserError, shown

CHUNK_ROWS = 1024
"""Rows in a chunk. Rows of a chunk are neighbours on disk; they are drawn, checked and shuffled together."""


@dataclass(frozen=True)
class RawTable:
    """Raw rows in the order of the source, in memory or memory-mapped.

    names: all columns in the order of the source.
    numeric: (n, k) float64 with NaN where missing.
    categorical: (n, c) int32 codes. Codes of column j are 0 .. sizes[j] - 1, in the order of the values.
    labels: (n,) classes 0 .. classes - 1. fingerprint: digest of the content.
    limits: minimum and maximum of each numeric column, (k,) each, NaN where the kind of column fixes none; of pixels,
    `numeric` may be (n, k) uint8.
    folder: of a table on disk, which has a file for each of `numeric`, `categorical` and `labels`.
    """

    names: tuple[str, ...]
    numeric_names: tuple[str, ...]
    categorical_names: tuple[str, ...]
    sizes: tuple[int, ...]
    numeric: np.ndarray
    categorical: np.ndarray
    labels: np.ndarray
    classes: int = 2
    fingerprint: str = ""
    limits: tuple[np.ndarray, np.ndarray] | None = field(default=None, compare=False)
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> RawTable:
        """Copy the rows at these positions. Files are mapped anew each time: pages that were read don't stay in memory."""
        held = {name: getattr(self, name) for name in ("numeric", "categorical", "labels")}
        if self.folder is not None:
            held = {name: mapped(self.folder / name, values.dtype, values.shape) for name, values in held.items()}
        return replace(self, **{name: values[positions] for name, values in held.items()}, fingerprint="", folder=None)


def mapped(file: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.ndarray:
    """The array in a file of a prepared table."""
    try:
        return np.memmap(file, dtype, "r", shape=shape) if math.prod(shape) else np.empty(shape, dtype)
    except (OSError, ValueError) as error:
        problem = f"the prepared data is damaged ({shown(str(error), 200)}); run the command again to prepare it anew"
        raise UserError(problem, key="VFLBENCH_CACHE", value=file.parent) from error


def raw_table(columns: Mapping[str, np.ndarray | tuple[np.ndarray, int]], labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table of columns in memory.

    columns: name -> (n,) numbers, NaN where missing; or (n,) codes into a vocabulary, in the order of its values, and its
    size. A missing category is the empty string, a value like any other. labels: (n,) classes 0 .. classes - 1.
    """
    words = {name: column for name, column in columns.items() if isinstance(column, tuple)}
    numbers = {name: column for name, column in columns.items() if not isinstance(column, tuple)}
    table = RawTable(
        names=tuple(columns),
        numeric_names=tuple(numbers),
        categorical_names=tuple(words),
        sizes=tuple(size for _, size in words.values()),
        numeric=np.column_stack([np.empty((len(labels), 0)), *numbers.values()]),
        categorical=np.column_stack([np.empty((len(labels), 0), np.int32), *(codes for codes, _ in words.values())]).astype(
            np.int32
        ),
        labels=np.asarray(labels),
        classes=classes,
    )
    digest = hashlib.sha256(repr((table.names, table.numeric_names, table.sizes, classes)).encode())
    for values in (table.numeric, table.categorical, np.ascontiguousarray(table.labels, dtype=np.int64)):
        digest.update(values)
    return replace(table, fingerprint=digest.hexdigest())


LABEL_PARTY = "label"
"""The name of the party that holds the labels; it may hold features as well."""


@dataclass(frozen=True)
class Columns:
    """Names and sizes of one party's columns: all that a model needs to know of the data.

    numeric: names of the numeric columns, each in [0, 1].
    categorical: names of the categorical columns.
    cardinalities: ids of column j are 0 .. cardinalities[j] - 1.
    """

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    cardinalities: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.numeric) + len(self.categorical)


def _take(values: Tensor, index: Tensor | slice) -> Tensor:
    """values[index]; whole rows by position, which copies them in one go, several times faster."""
    if not isinstance(index, slice) and index.dtype == torch.int64:
        return values.index_select(0, index)
    return values[index]


@dataclass(frozen=True)
class Features:
    """One party's block: numeric (n, k) float32 and categorical (n, c) int32 ids, counted from 0 in each column."""

    columns: Columns
    numeric: Tensor
    categorical: Tensor

    def rows(self, index: Tensor | slice) -> Features:
        return Features(self.columns, _take(self.numeric, index), _take(self.categorical, index))

    def to(self, device: torch.device) -> Features:
        return Features(self.columns, self.numeric.to(device), self.categorical.to(device))


@dataclass(frozen=True)
class VerticalTable:
    """Rows that all parties share; columns split between them.

    ids: (n,) int64, stable row ids: the row's position in the source, the same in every epoch and split.
    features: one block a party, by party name; `label` is there only if the label party holds features.
    labels: (n,) int64 classes 0 .. classes - 1, held by the label party alone.
    """

    ids: Tensor
    features: Mapping[str, Features]
    labels: Tensor
    classes: int

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, index: Tensor | slice) -> VerticalTable:
        features = {party: block.rows(index) for party, block in self.features.items()}
        return VerticalTable(_take(self.ids, index), features, _take(self.labels, index), self.classes)

    def to(self, device: torch.device) -> VerticalTable:
        features = {party: block.to(device) for party, block in self.features.items()}
        return VerticalTable(self.ids.to(device), features, self.labels.to(device), self.classes)

    @property
    def columns(self) -> dict[str, Columns]:
        return {party: block.columns for party, block in self.features.items()}

    def buffers(self, rng: torch.Generator | None) -> Iterator[Tensor]:
        """The ids of all rows at once: they are in memory already."""
        yield self.ids

    def blocks(self, rng: torch.Generator | None) -> Iterator[VerticalTable]:
        """All rows at once."""
        yield self


def non_label_parties(columns: Mapping[str, Columns]) -> tuple[str, ...]:
    return tuple(party for party in columns if party != LABEL_PARTY)


_PIECE_ROWS, _PIECE_CELLS = 16_384, 1 << 19  # encoded at a time, so that intermediate values stay in the processor's cache


def _measured(raw: RawTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Of the rows at these positions, at least one: (k,) minimum and maximum of each numeric column, where a missing value
    counts as 0; and for each categorical column (size,), how often each value occurs.
    """
    low, high = np.array(raw.limits) if raw.limits else np.full((2, len(raw.numeric_names)), np.nan)
    free = np.flatnonzero(np.isnan(low))
    counts = [np.zeros(size, dtype=np.int64) for size in raw.sizes]
    for start in range(0, len(rows), 1 << 18):
        piece = raw.take(rows[start : start + (1 << 18)])
        if len(free):
            x = to_float(piece.numeric[:, free])
            low[free], high[free] = np.fmin(low[free], x.min(axis=0)), np.fmax(high[free], x.max(axis=0))
        for j, count in enumerate(counts):
            count += np.bincount(piece.categorical[:, j], minlength=len(count))
    return low, high, counts


def to_float(values: np.ndarray) -> np.ndarray:
    """Numeric columns as (n, k) float64, 0 where missing."""
    return np.nan_to_num(values.astype(np.float64), copy=False, nan=0.0, posinf=None, neginf=None)


def transformed(x: np.ndarray, transform: str) -> np.ndarray:
    """x for `none`, sign(x) log(1 + |x|) for `log`. Both keep the order of the values."""
    return x if transform == "none" else np.copysign(np.log1p(np.abs(x)), x)


_LEAST_RANGE = 4 * float(np.finfo(np.float64).tiny)  # half of a range; above it nothing is denormal


def scaled(values: np.ndarray, low: np.ndarray, high: np.ndarray, transform: str) -> np.ndarray:
    """Scale numeric columns to [0, 1].

        x <- 0 where missing;  x <- sign(x) log(1 + |x|) for transform = log;  x <- (x - min) / (max - min)

    values: (n, k) as in a RawTable. low, high: (k,), minimum and maximum of the fitted rows, before the transformation.
    Values outside that range are clipped; a constant column becomes 0, and so does one of less than 1e-307 from end to end,
    which a process that flushes denormal numbers takes for constant. Returns (n, k) float32.
    """
    low, high = transformed(low, transform), transformed(high, transform)
    x = transformed(to_float(values), transform)
    constant = ~(high / 2 - low / 2 >= _LEAST_RANGE)
    x /= 2  # halves can't overflow
    x -= low / 2
    x /= np.where(constant, 1.0, high / 2 - low / 2)
    np.clip(x, 0.0, 1.0, out=x)
    x[:, constant] = 0.0
    return x.astype(np.float32)


def category_ids(counts: np.ndarray, min_count: int, *, every_row_fitted: bool) -> tuple[np.ndarray | None, int]:
    """Ids 0 .. m-1 of one categorical column, in the order of its values. Rare values share the last id.

    A value is rare if it occurs fewer than `min_count` times. If only some rows are fitted, the shared id always exists
    and also stands for values that do not occur among them. counts: (size,), over the fitted rows.
    Returns the id of each code, (size,) int32, or None if each code is its own id; and the number m of ids.
    """
    kept = counts >= min_count
    if every_row_fitted and kept.all():
        return None, len(counts)
    shared = int(kept.sum())
    ids = np.where(kept, np.cumsum(kept) - 1, shared).astype(np.int32)
    needs_shared = not every_row_fitted or bool(((counts > 0) & ~kept).any())
    return ids, shared + needs_shared


@dataclass(frozen=True)
class PartyEncoding:
    """A fitted map from raw rows to the features of one party.

    numeric, categorical: positions of its columns among those of the raw table. low, high: (k,) of the fitted rows.
    ids: of each categorical column, the id of each code; None where codes are ids.
    """

    columns: Columns
    numeric: np.ndarray
    low: np.ndarray
    high: np.ndarray
    categorical: np.ndarray
    ids: tuple[np.ndarray | None, ...]
    transform: str = "none"

    def of(self, raw: RawTable) -> Features:
        """The features of all rows of a table in memory."""
        return self(raw.numeric.take(self.numeric, axis=1), raw.categorical.take(self.categorical, axis=1))

    def __call__(self, numeric: np.ndarray, codes: np.ndarray) -> Features:
        """numeric: (n, k), codes: (n, c), of this party's columns alone."""
        numbers, categorical = np.empty(numeric.shape, np.float32), codes.astype(np.int32)
        rows = max(1, min(_PIECE_ROWS, _PIECE_CELLS // max(1, numeric.shape[1])))
        for start in range(0, len(numeric), rows):
            piece = slice(start, start + rows)
            if len(self.low):
                numbers[piece] = scaled(numeric[piece], self.low, self.high, self.transform)
            for j, ids in enumerate(self.ids):
                if ids is not None:
                    categorical[piece, j] = ids[codes[piece, j]]
        return Features(self.columns, torch.from_numpy(numbers), torch.from_numpy(categorical))


@dataclass(frozen=True)
class Encoding:
    """A fitted map from raw rows to the features of each party."""

    parties: Mapping[str, PartyEncoding]
    transform: str

    @property
    def columns(self) -> dict[str, Columns]:
        return {party: encoding.columns for party, encoding in self.parties.items()}

    def update(self, digest: hashlib._Hash) -> None:
        """Add everything that determines this encoding to a digest."""
        digest.update(self.transform.encode())
        for name, party in self.parties.items():
            digest.update(repr((name, party.columns)).encode())
            for values in (party.numeric, party.low, party.high, party.categorical):
                digest.update(np.ascontiguousarray(values))
            for ids in party.ids:
                digest.update(b"as they are" if ids is None else ids)


def fit(
    raw: RawTable,
    assignment: Mapping[str, Sequence[str]],
    rows: np.ndarray,
    *,
    every_row_fitted: bool,
    min_count: int = 1,
    numeric_transform: str = "none",
) -> Encoding:
    """Fit the encoding of all assigned columns to the rows at these positions, at least one. min_count = 0 keeps every value
    of a vocabulary.
    """
    low, high, counts = _measured(raw, rows)
    parties = {}
    places = [{name: j for j, name in enumerate(names)} for names in (raw.numeric_names, raw.categorical_names)]
    for party, names in assignment.items():
        numeric, categorical = (np.array([at[name] for name in names if name in at], np.int64) for at in places)
        fitted = [category_ids(counts[j], min_count, every_row_fitted=every_row_fitted) for j in categorical]
        columns = Columns(
            tuple(raw.numeric_names[j] for j in numeric),
            tuple(raw.categorical_names[j] for j in categorical),
            tuple(size for _, size in fitted),
        )
        ids = tuple(ids for ids, _ in fitted)
        parties[party] = PartyEncoding(columns, numeric, low[numeric], high[numeric], categorical, ids, numeric_transform)
    return Encoding(parties, numeric_transform)
