"""Distances between the rows of a table with numeric and categorical columns, doubly centred, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Table:
    """Rows of numeric columns (n, k), and of categorical ones (n, c), integers; either may have no column."""

    numeric: Tensor
    categorical: Tensor

    def __len__(self) -> int:
        return len(self.numeric)


class Blocks(Protocol):
    """Euclidean distances of numeric columns, for blocks of rows and columns."""

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]: ...

    def distances(self, rows: slice, columns: slice) -> Tensor: ...


@dataclass(frozen=True)
class CentredRows:
    """B_ij = b_ij - b_i. - b_.j + b..,   b_ij^2 = |y_i - y_j|^2 + number of categorical columns in which i and j differ.

    half: (n,) row means of b, minus half of their mean. variance: mean B^2, 0 where nothing varies. kept: b where it is one
    block; larger ones are computed again each time.
    """

    numeric: Blocks
    categorical: Tensor
    half: Tensor
    variance: float
    kept: Tensor | None

    @staticmethod
    def of(y: Table, numeric: Blocks) -> "CentredRows":
        """numeric: distances of the numeric columns, in float64."""
        n = len(y)
        sums, squares = torch.zeros(n, dtype=torch.float64, device=y.numeric.device), 0.0
        seen: list[Tensor] = []
        for rows, columns, distances in numeric.blocks():
            b = _with_categories(distances, y.categorical, rows, columns)
            sums[rows] += b.sum(dim=1)
            if rows != columns:
                sums[columns] += b.sum(dim=0)
            squares += (1 if rows == columns else 2) * b.square().sum().item()
            seen = [*seen, b] if len(b) == n else []
        means = sums / n
        mean = means.mean().item()
        variance = squares / n**2 + mean**2 - 2 * means.square().mean().item()
        varies = variance > 1e-14 * squares / n**2
        return CentredRows(numeric, y.categorical, means - mean / 2, variance if varies else 0.0, seen[0] if seen else None)

    def block(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """B (rows, columns)."""
        b = self.kept
        if b is None:
            b = _with_categories(self.numeric.distances(rows, columns), self.categorical, rows, columns)
        return (b - self.half[rows][:, None] - self.half[columns]).to(dtype)

    def product(self, rows: slice, columns: slice, a: Tensor) -> float:
        """sum a_ij B_ij over the block."""
        return (a * self.block(rows, columns, a.dtype)).sum(dtype=torch.float64).item()


def _with_categories(b: Tensor, categorical: Tensor, rows: slice, columns: slice) -> Tensor:
    """sqrt(b^2 + number of categorical columns that differ). b: distances of the numeric columns."""
    if not categorical.shape[1]:
        return b
    squares = b.square()
    for column in categorical.T:
        squares += column[rows, None] != column[None, columns]
    return squares.sqrt_()
