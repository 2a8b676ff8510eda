"""Embeddings as whole numbers of a bounded norm, and discrete noise on them."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from vflbench.metrics.zero_concentrated import concentrated_sigma
from vflbench.numerics import gaussian_table
from vflbench.numerics.discrete_noise import LARGEST_SCALE, Bits, discrete_gaussian, discrete_laplace

_FINEST, _COARSEST = 2**20, 64  # levels: single precision has no finer ones; with fewer, rounding is seen


@dataclass(frozen=True)
class Grid:
    """levels: R, the largest norm of a row of whole numbers. scale: s of their noise."""

    levels: int
    scale: int

    def noisy(self, h: Tensor, norm: float, order: int, bits: Bits, *, gaussian: bool) -> Tensor:
        """(q(h) + noise) norm / R, (n, d) of the type of h. order: 1 or 2, of the norm. Rows that are not finite stay so.

        Whatever floating-point arithmetic does to h before, q(h) are whole numbers with |q| <= R, which is checked in whole
        numbers; what it does to the sum after is done to a number that may be known.
        """
        draw = gaussian_table.tabled_gaussian if gaussian and self.scale <= gaussian_table.LARGEST_SCALE else None
        draw = draw or (discrete_gaussian if gaussian else discrete_laplace)
        noise = draw(bits, self.scale).view(h.shape).to(h.device)
        sent = ((self.rounded(h, norm, order) + noise).double() * (norm / self.levels)).to(h.dtype)
        return torch.where(h.isfinite().all(dim=1, keepdim=True), sent, h)

    def rounded(self, h: Tensor, norm: float, order: int) -> Tensor:
        """q(h), (n, d) int64: h shortened to the norm, in steps of norm / R, towards 0."""
        length = torch.linalg.vector_norm(h.double(), order, dim=1, keepdim=True)
        q = torch.nan_to_num(h.double() * (self.levels / length.clamp_min(norm)), 0.0, 0.0, 0.0).trunc().long()
        q = torch.where(self._is_short(q, order), q, q - q.sign())  # rounding may have left it too long by little
        return torch.where(self._is_short(q, order), q, 0)

    def _is_short(self, q: Tensor, order: int) -> Tensor:
        size = q.abs().sum(dim=1, keepdim=True) if order == 1 else q.square().sum(dim=1, keepdim=True)
        return size <= self.levels**order


@cache
def gaussian_grid(eps: float, delta: float) -> Grid:
    """The finest of at least 64 levels whose noise comes from a table; that of 64, or fewer, for the smallest eps."""
    ratio = 2 * concentrated_sigma(eps, delta)
    levels = min(_FINEST, max(_COARSEST, math.floor(gaussian_table.LARGEST_SCALE / ratio)))
    levels = min(levels, math.floor(LARGEST_SCALE / ratio))
    return Grid(levels, math.ceil(levels * ratio))


def laplace_grid(eps: float) -> Grid:
    """s >= 2 R / eps, so that e^(2 R / s), the largest ratio, is e^eps at most."""
    levels = min(_FINEST, math.floor(LARGEST_SCALE * (eps / 2)))
    scale = math.ceil(2 * levels / eps)
    return Grid(levels, scale + (scale * eps < 2 * levels))
