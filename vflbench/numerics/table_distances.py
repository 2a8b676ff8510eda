"""Distances between the rows of a table with numeric and categorical columns, doubly centred, block by block."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vflbench.numerics.point_distances import Points, block_pairs

_FEW_COLUMNS = 16  # so many are subtracted pair by pair


@dataclass(frozen=True)
class Table:
    """Rows of numeric columns (n, k), and of categorical ones (n, c), integers; either may have no column."""

    numeric: Tensor
    categorical: Tensor

    def __len__(self) -> int:
        return len(self.numeric)


class _Distances(Protocol):
    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]: ...

    def distances(self, rows: slice, columns: slice) -> Tensor: ...


@dataclass(frozen=True)
class Differences:
    """Euclidean distances of numbers (n, k), pair by pair: exact, and dear where columns are many."""

    values: Tensor

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        for rows, columns in block_pairs(len(self.values), self.values.device):
            yield rows, columns, self.distances(rows, columns)

    def distances(self, rows: slice, columns: slice) -> Tensor:
        """(rows, columns) distances."""
        return torch.cdist(self.values[rows], self.values[columns], compute_mode="donot_use_mm_for_euclid_dist")


class CentredRows:
    """B_ij = b_ij - b_i. - b_.j + b..,   b_ij^2 = |y_i - y_j|^2 + number of categorical columns in which i and j differ.

    variance: mean B^2, 0 where nothing varies. trace: of B. keeps: whether blocks of B are kept between `sums` and
    `numerators`, until `forget`. Where b is one block, it is always kept.
    """

    def __init__(self, y: Table, numeric: _Distances, *, keeps: bool = False):
        """numeric: distances of the numeric columns, in float64."""
        self._numeric, self._categorical, self._keeps = numeric, y.categorical, keeps
        self._kept: dict[tuple[int, int], Tensor] = {}
        self._only: Tensor | None = None
        n, device = len(y), y.numeric.device
        sums, squares = (
            torch.zeros(n, dtype=torch.float64, device=device),
            torch.zeros((), dtype=torch.float64, device=device),
        )
        for rows, columns, distances in numeric.blocks():
            b = _with_categories(distances, y.categorical, rows, columns)
            sums[rows] += b.sum(dim=1)
            if rows != columns:
                sums[columns] += b.sum(dim=0)
            squares += (1 if rows == columns else 2) * b.square().sum()
            self._only = b if len(b) == n else None
        means = sums / n
        mean = means.mean()
        self._half = means - mean / 2
        self.trace = -2 * self._half.sum()
        variance, square = torch.stack([squares / n**2 + mean**2 - 2 * means.square().mean(), squares / n**2]).tolist()
        self.variance = 0.0 if variance <= 1e-14 * square else variance

    @staticmethod
    def of_numbers(y: Tensor, *, keeps: bool = False) -> "CentredRows":
        """Of real numbers (n,) or (n, k), in units of the largest."""
        values = (y[:, None] if y.dim() == 1 else y).double()
        values = values - values.mean(dim=0)
        values = values / values.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)
        return CentredRows(Table(values, values.new_zeros(len(y), 0)), Differences(values), keeps=keeps)

    @staticmethod
    def of_table(y: Table, *, keeps: bool = False) -> "CentredRows":
        """Of the rows of a table."""
        numeric = y.numeric.double()
        few = numeric.shape[1] <= _FEW_COLUMNS
        return CentredRows(y, Differences(numeric) if few else Points(numeric), keeps=keeps)

    def sums(self, rows: slice, columns: slice, e: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of a block's columns (columns,), and sum e_ij B_ij in float64. e: (rows, columns)."""
        return e.sum(dim=0), (e * self._block(rows, columns, e.dtype)).sum(dim=1).sum(dtype=torch.float64)

    def numerators(self, alpha: float, shift: Tensor) -> Callable[[slice, slice, torch.dtype], Tensor]:
        """A function of rows, columns and a type: alpha B_ij + shift_i + shift_j (rows, columns). shift: (n,) float64."""
        in_type = functools.cache(shift.to)

        def numerator(rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
            shifts = in_type(dtype)
            return (self._block(rows, columns, dtype) * alpha).add_(shifts[rows, None]).add_(shifts[columns])

        return numerator

    def forget(self) -> None:
        """Free what is kept."""
        self._kept.clear()

    def _block(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """B (rows, columns)."""
        place = (rows.start, columns.start)
        if place not in self._kept:
            b = self._only
            if b is None:
                b = _with_categories(self._numeric.distances(rows, columns), self._categorical, rows, columns)
            centred = (b - self._half[rows, None]).sub_(self._half[columns]).to(dtype)
            if not self._keeps or dtype == torch.float64:
                return centred
            self._kept[place] = centred
        return self._kept[place]


def _with_categories(b: Tensor, categorical: Tensor, rows: slice, columns: slice) -> Tensor:
    """sqrt(b^2 + number of categorical columns that differ). b: distances of the numeric columns."""
    if not categorical.shape[1]:
        return b
    squares = b.square()
    for column in categorical.T:
        squares += column[rows, None] != column[None, columns]
    return squares.sqrt_()
