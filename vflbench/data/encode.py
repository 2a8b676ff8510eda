"""Raw columns -> numbers: NA handling, vocabularies, transformation and min-max."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from vflbench.data.parties import Assignment
from vflbench.data.table import Columns, Features, VerticalTable


@dataclass(frozen=True)
class RawNumeric:
    """values: (n,) float64, NaN where missing."""

    name: str
    values: np.ndarray

    def rows(self, index: np.ndarray) -> "RawNumeric":
        return replace(self, values=self.values[index])


@dataclass(frozen=True)
class RawCategorical:
    """codes: (n,) integers into a vocabulary of `size` values, in the order of the values themselves.

    A missing value is a value like any other (the empty string).
    """

    name: str
    codes: np.ndarray
    size: int

    def rows(self, index: np.ndarray) -> "RawCategorical":
        return replace(self, codes=self.codes[index])


@dataclass(frozen=True)
class RawTable:
    """A file as it was read, before anything is fitted. labels: (n,) classes 0 .. classes - 1."""

    columns: tuple[RawNumeric | RawCategorical, ...]
    labels: np.ndarray
    classes: int = 2

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, index: np.ndarray) -> "RawTable":
        return replace(self, columns=tuple(c.rows(index) for c in self.columns), labels=self.labels[index])


def scale_numeric(values: np.ndarray, fit: np.ndarray, transform: str) -> np.ndarray:
    """One numeric column in [0, 1].

        x <- 0 where missing;  x <- sign(x) log(1 + |x|) for transform = log;  x <- (x - min) / (max - min)

    values: (n,) float64; fit: (n,) bool, the rows that min and max are taken over. Rows outside that range are clipped to
    it; a constant column becomes 0. Returns (n,) float32.
    """
    x = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=None, neginf=None)
    if transform == "log":
        x = np.sign(x) * np.log1p(np.abs(x))
    low, high = x[fit].min(), x[fit].max()
    if high == low:
        return np.zeros(len(x), dtype=np.float32)
    return np.clip((x / 2 - low / 2) / (high / 2 - low / 2), 0.0, 1.0).astype(np.float32)  # halves: no overflow


def index_categories(codes: np.ndarray, size: int, fit: np.ndarray, min_count: int) -> tuple[np.ndarray, int]:
    """Ids 0 .. n-1 for one categorical column, in the order of the values; rare ones share the last id.

    A value seen fewer than `min_count` times among the rows in `fit` is rare. When not every row is fitted on, the shared
    id also stands for values that were never seen, and always exists.
    codes: (n,) in 0 .. size - 1; fit: (n,) bool. Returns (n,) int32 ids and their number.
    """
    counts = np.bincount(codes[fit], minlength=size)
    kept = counts >= min_count
    shared = int(kept.sum())
    ids = np.where(kept, np.cumsum(kept) - 1, shared).astype(np.int32)
    needs_shared = not kept[codes].all() or not fit.all()
    return ids[codes], shared + needs_shared


def encode(
    raw: RawTable, assignment: Assignment, fit: np.ndarray, *, min_count: int = 1, numeric_transform: str = "none"
) -> VerticalTable:
    """All columns of `raw` that a party holds, encoded, in the file's row order; row ids count from 0.

    fit: (n,) bool, the rows that vocabularies and min-max see. min_count 0 keeps every value of a vocabulary.
    """
    by_name = {column.name: column for column in raw.columns}
    features = {}
    for party, names in assignment.items():
        numeric = [by_name[n] for n in names if isinstance(by_name[n], RawNumeric)]
        categorical = [by_name[n] for n in names if isinstance(by_name[n], RawCategorical)]
        indexed = [index_categories(c.codes, c.size, fit, min_count) for c in categorical]
        columns = Columns(
            tuple(c.name for c in numeric), tuple(c.name for c in categorical), tuple(size for _, size in indexed)
        )
        features[party] = Features(
            columns,
            _stack([scale_numeric(c.values, fit, numeric_transform) for c in numeric], len(raw), np.float32),
            _stack([ids for ids, _ in indexed], len(raw), np.int32),
        )
    labels = torch.from_numpy(raw.labels.astype(np.int64))
    return VerticalTable(torch.arange(len(raw)), features, labels, raw.classes)


def _stack(columns: list[np.ndarray], rows: int, dtype: type) -> torch.Tensor:
    table = np.empty((rows, len(columns)), dtype=dtype)
    for j, column in enumerate(columns):
        table[:, j] = column
    return torch.from_numpy(table)
