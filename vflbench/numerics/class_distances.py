"""Distances between classes, 1 if they differ, doubly centred: a product of thin matrices."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor


class CentredClasses:
    """B = -C C^T with the centred one-hot labels C (n, K); for two classes, B = -2 c c^T with one of both columns.

    columns: C, or sqrt(2) c, in float64. variance: dCov^2(Y, Y) = |C^T C / n|^2. trace: of B.
    """

    def __init__(self, y: Tensor):
        """y: (n,) integers or booleans."""
        if y.dim() != 1:
            raise ValueError(f"classes must be (n,), got {tuple(y.shape)}")
        values, places = y.long().unique(return_inverse=True)
        one_hot = (places[:, None] == torch.arange(len(values), device=y.device)).double()
        centred = one_hot - one_hot.mean(dim=0)
        if len(values) == 2:
            centred = 2**0.5 * centred[:, :1]
        self.columns, self._negative = centred, -centred.T
        self.variance = (centred.T @ centred / len(y)).square().sum().item() if len(values) > 1 else 0.0
        self.trace = self._negative.square().sum().neg()
        self._thin_of: dict[torch.dtype, Tensor] = {}

    def sums(self, rows: slice, columns: slice, e: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of a block's columns (columns,), and sum e_ij B_ij in float64. e: (rows, columns)."""
        sums = self._thin(e.dtype)[rows].T @ e
        return sums[0], (sums[1:] * self._negative[:, columns]).sum()

    def _thin(self, dtype: torch.dtype) -> Tensor:
        """A column of ones and C (n, K + 1)."""
        if dtype not in self._thin_of:
            self._thin_of[dtype] = torch.cat([torch.ones_like(self.columns[:, :1]), self.columns], dim=1).to(dtype)
        return self._thin_of[dtype]

    def numerators(self, alpha: float, shift: Tensor) -> Callable[[slice, slice, torch.dtype], Tensor]:
        """A function of rows, columns and a type: alpha B_ij + shift_i + shift_j (rows, columns). shift: (n,) float64."""
        shifts, ones = shift[:, None], torch.ones_like(shift)[:, None]
        factors = torch.cat([-alpha * self.columns, shifts, ones], dim=1), torch.cat([self.columns, ones, shifts], dim=1)
        in_type = functools.cache(lambda dtype: [factor.to(dtype) for factor in factors])

        def numerator(rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
            left, right = in_type(dtype)
            return left[rows] @ right[columns].T

        return numerator

    def forget(self) -> None:
        """Nothing is kept."""
