"""Raw columns -> numbers: NA handling, vocabularies, transformation, min-max; fitted once, applied as rows are read."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from vflbench.data.assignment import Assignment
from vflbench.data.table import Columns, Features

MISSING_INTEGER = np.iinfo(np.int32).min
"""What stands for a missing value where numeric columns are kept as int32."""

CHUNK_ROWS = 1024
"""Rows are drawn, checked and shuffled in runs of so many, which lie side by side on disk."""

_PIECE_ROWS = 16_384  # encoded at a time, so that intermediate values stay in the cache


@dataclass(frozen=True)
class RawNumeric:
    """values: (n,) float64, NaN where missing."""

    name: str
    values: np.ndarray


@dataclass(frozen=True)
class RawCategorical:
    """codes: (n,) integers into a vocabulary of `size` values, in the order of the values themselves.

    A missing value is a value like any other (the empty string).
    """

    name: str
    codes: np.ndarray
    size: int


@dataclass(frozen=True)
class RawTable:
    """What a source holds before anything is fitted, row by row in the source's order; in memory or mapped from disk.

    names: all columns in the source's order. numeric: (n, k) float64 with NaN where missing, or int32 with MISSING_INTEGER.
    categorical: (n, c) int32 codes; those of column j are 0 .. sizes[j] - 1, in the order of the values. labels: (n,)
    classes 0 .. classes - 1. fingerprint: tells this content from any other. check: raises if chunks of rows, given by
    number, are damaged. forget: lets go of memory that reading has mapped.
    statistics: of every row, where they are known beforehand. limits: least and greatest of each numeric column, (k,) each,
    where they follow from what it is, as those of a pixel do; numeric may then be (n, k) uint8.
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
    check: Callable[[np.ndarray], None] = field(default=lambda _chunks: None, compare=False)
    forget: Callable[[], None] = field(default=lambda: None, compare=False)
    statistics: "Statistics | None" = None
    limits: tuple[np.ndarray, np.ndarray] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> "RawTable":
        """Copies of the rows at these positions."""
        self.check(np.unique(positions // CHUNK_ROWS))
        return replace(
            self,
            numeric=self.numeric[positions],
            categorical=self.categorical[positions],
            labels=self.labels[positions],
            fingerprint="",
            statistics=None,
        )


def raw_table(columns: Sequence[RawNumeric | RawCategorical], labels: np.ndarray, classes: int = 2) -> RawTable:
    """Columns that lie in memory. labels: (n,) classes 0 .. classes - 1."""
    numeric = [c for c in columns if isinstance(c, RawNumeric)]
    categorical = [c for c in columns if isinstance(c, RawCategorical)]
    table = RawTable(
        names=tuple(c.name for c in columns),
        numeric_names=tuple(c.name for c in numeric),
        categorical_names=tuple(c.name for c in categorical),
        sizes=tuple(c.size for c in categorical),
        numeric=_stack([c.values for c in numeric], len(labels), np.float64),
        categorical=_stack([c.codes for c in categorical], len(labels), np.int32),
        labels=np.asarray(labels),
        classes=classes,
    )
    digest = hashlib.sha256(repr((table.names, table.numeric_names, table.sizes, classes)).encode())
    for values in (table.numeric, table.categorical, np.ascontiguousarray(table.labels, dtype=np.int64)):
        digest.update(values)
    return replace(table, fingerprint=digest.hexdigest())


@dataclass(frozen=True)
class Statistics:
    """What encodings are fitted on: sums over some rows.

    low, high: (k,) least and greatest of each numeric column, missing as 0. counts: one (size,) array a categorical column.
    """

    low: np.ndarray
    high: np.ndarray
    counts: tuple[np.ndarray, ...]


def measure(raw: RawTable, pieces: Iterator[np.ndarray]) -> Statistics:
    """Statistics of the rows at the positions that come piece by piece; at least one."""
    low = np.full(len(raw.numeric_names), np.inf)
    high = np.full(len(raw.numeric_names), -np.inf)
    counts = tuple(np.zeros(size, dtype=np.int64) for size in raw.sizes)
    for positions in pieces:
        rows = raw.take(positions)
        if len(low) and len(rows) and raw.limits is None:
            x = numbers(rows.numeric)
            low, high = np.minimum(low, x.min(axis=0)), np.maximum(high, x.max(axis=0))
        for j, count in enumerate(counts):
            np.add.at(count, rows.categorical[:, j], 1)
        raw.forget()
    return Statistics(*(raw.limits or (low, high)), counts)


def numbers(values: np.ndarray) -> np.ndarray:
    """Numeric columns as (n, k) float64, 0 where missing."""
    if values.dtype == np.int32:
        x = values.astype(np.float64)
        x[values == MISSING_INTEGER] = 0.0
        return x
    return np.nan_to_num(values.astype(np.float64), copy=False, nan=0.0, posinf=None, neginf=None)


def transformed(x: np.ndarray, transform: str) -> np.ndarray:
    """x, or sign(x) log(1 + |x|) for `log`: it keeps the order, so that least and greatest stay so."""
    return x if transform == "none" else np.copysign(np.log1p(np.abs(x)), x)


def scaled(values: np.ndarray, low: np.ndarray, high: np.ndarray, transform: str) -> np.ndarray:
    """Numeric columns in [0, 1].

        x <- 0 where missing;  x <- sign(x) log(1 + |x|) for transform = log;  x <- (x - min) / (max - min)

    values: (n, k) as in a RawTable; low, high: (k,), least and greatest before the transformation, of the rows that are
    fitted on. Others are clipped to that range; a constant column becomes 0. Returns (n, k) float32.
    """
    low, high = transformed(low, transform), transformed(high, transform)
    x = transformed(numbers(values), transform)
    constant = low == high
    x /= 2  # halves: no overflow
    x -= low / 2
    x /= np.where(constant, 1.0, high / 2 - low / 2)
    np.clip(x, 0.0, 1.0, out=x)
    x[:, constant] = 0.0
    return x.astype(np.float32)


def category_ids(counts: np.ndarray, min_count: int, *, every_row_fitted: bool) -> tuple[np.ndarray | None, int]:
    """Ids 0 .. n-1 for one categorical column, in the order of the values; rare ones share the last id.

    A value counted fewer than `min_count` times is rare. When not every row is fitted on, the shared id also stands for
    values that were never seen, and always exists. counts: (size,), of the rows that are fitted on.
    Returns (size,) int32, code -> id, or None where each code is its own id; and the number of ids.
    """
    kept = counts >= min_count
    if every_row_fitted and kept.all():
        return None, len(counts)
    shared = int(kept.sum())
    ids = np.where(kept, np.cumsum(kept) - 1, shared).astype(np.int32)
    needs_shared = not every_row_fitted or bool(((counts > 0) & ~kept).any())
    return ids, shared + needs_shared


@dataclass(frozen=True)
class _PartyEncoding:
    columns: Columns
    numeric: np.ndarray  # positions among the numeric columns
    low: np.ndarray
    high: np.ndarray
    categorical: np.ndarray  # positions among the categorical columns
    ids: tuple[np.ndarray | None, ...]


@dataclass(frozen=True)
class Encoding:
    """How raw rows become each party's features."""

    parties: Mapping[str, _PartyEncoding]
    transform: str

    @property
    def columns(self) -> dict[str, Columns]:
        return {party: encoding.columns for party, encoding in self.parties.items()}

    def __call__(self, raw: RawTable) -> dict[str, Features]:
        """Features of all rows of `raw`, which lie in memory."""
        return {party: self._features(encoding, raw) for party, encoding in self.parties.items()}

    def _features(self, party: _PartyEncoding, raw: RawTable) -> Features:
        numeric = np.empty((len(raw), len(party.numeric)), dtype=np.float32)
        categorical = np.empty((len(raw), len(party.categorical)), dtype=np.int32)
        for start in range(0, len(raw), _PIECE_ROWS):
            piece = slice(start, start + _PIECE_ROWS)
            if len(party.numeric):
                columns = raw.numeric[piece].take(party.numeric, axis=1)
                numeric[piece] = scaled(columns, party.low, party.high, self.transform)
            for place, (j, ids) in enumerate(zip(party.categorical, party.ids, strict=True)):
                codes = raw.categorical[piece, j]
                categorical[piece, place] = codes if ids is None else ids[codes]
        return Features(party.columns, torch.from_numpy(numeric), torch.from_numpy(categorical))

    def update(self, digest: "hashlib._Hash") -> None:
        """Add all that this encoding does to a digest."""
        digest.update(self.transform.encode())
        for name, party in self.parties.items():
            digest.update(repr((name, party.columns)).encode())
            for values in (party.numeric, party.low, party.high, party.categorical):
                digest.update(np.ascontiguousarray(values))
            for ids in party.ids:
                digest.update(b"as they are" if ids is None else ids)


def fit(
    raw: RawTable,
    assignment: Assignment,
    statistics: Statistics,
    *,
    every_row_fitted: bool,
    min_count: int = 1,
    numeric_transform: str = "none",
) -> Encoding:
    """The encoding of the columns that a party holds. min_count 0 keeps every value of a vocabulary."""
    found: dict[str, tuple[np.ndarray | None, int]] = {}
    parties = {}
    for party, names in assignment.items():
        numeric = [raw.numeric_names.index(n) for n in names if n in raw.numeric_names]
        categorical = [raw.categorical_names.index(n) for n in names if n in raw.categorical_names]
        for j in categorical:
            found[raw.categorical_names[j]] = category_ids(
                statistics.counts[j], min_count, every_row_fitted=every_row_fitted
            )
        indexed = [found[raw.categorical_names[j]] for j in categorical]
        columns = Columns(
            tuple(raw.numeric_names[j] for j in numeric),
            tuple(raw.categorical_names[j] for j in categorical),
            tuple(size for _, size in indexed),
        )
        parties[party] = _PartyEncoding(
            columns,
            np.array(numeric, dtype=np.int64),
            statistics.low[numeric],
            statistics.high[numeric],
            np.array(categorical, dtype=np.int64),
            tuple(ids for ids, _ in indexed),
        )
    return Encoding(parties, numeric_transform)


def _stack(columns: Sequence[np.ndarray], rows: int, dtype: type) -> np.ndarray:
    table = np.empty((rows, len(columns)), dtype=dtype)
    for j, column in enumerate(columns):
        table[:, j] = column
    return table
