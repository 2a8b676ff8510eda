"""Ids of categorical columns that fit linear equations."""

import math
from itertools import product

import torch
from torch import Tensor

from vflbench.attacks.equation_solving_linear import Equations
from vflbench.numerics.nearest_in_box import singular_rows

_SWEEPS = 3  # over the columns, where not all combinations are tried
_AT_ONCE = 1 << 22  # numbers
_MISFIT, _OUTSIDE, _FAR = 1e8, 1.0, 1e-4  # weights: of equations, of the box, of the distance from the guess
_LOOSE = 8.0  # bounds of rounding within which two combinations fit equally well


class Fitting:
    """How well ids fit, whatever the numeric columns are that they leave to be solved.

        misfit = |(1 - A A^+) (y - sum_j T_j[id_j])|^2,   A, T: left sides of the numeric columns and of the ids

    Then x = g + A^+ (y - sum_j T_j[id_j] - A g) should lie in the box, and near the guess g.

    guess: (m, numeric) of the numeric columns.
    """

    def __init__(self, equations: Equations, cardinalities: tuple[int, ...], guess: Tensor, tolerance: float):
        c = equations.c[equations.equal]
        k = guess.shape[1]
        self._right, self._guess, self._rounding = equations.right, guess, equations.rounding
        self._tables = [block.T for block in c[:, k:].split(list(cardinalities), dim=1)]
        u, s, v = singular_rows(c[:, :k], tolerance)
        self._rest = torch.eye(len(c), dtype=c.dtype, device=c.device) - u @ u.T
        self._inverse = (u / s) @ v  # (r, k)
        self._is_full = len(s) == k
        self._slack = _LOOSE * equations.rounding * (1 + (float(1 / s[-1]) if len(s) else 0.0))

    @property
    def tells(self) -> bool:
        """Whether there is any equation."""
        return bool(len(self._rest))

    def sums(self, ids: Tensor) -> Tensor:
        """(..., r): sum_j T_j[id_j]. ids: (..., c)."""
        return torch.stack([table[ids[..., j].long()] for j, table in enumerate(self._tables)]).sum(dim=0)

    def score(self, rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Less is better, (m, s), and whether each fits up to rounding. rows: (m,). ids: (m, s, c), or (1, s, c)."""
        left = self._right[rows][:, None] - self.sums(ids)  # (m, s, r)
        misfit = (left @ self._rest).square().sum(dim=-1)
        fits = misfit <= (_LOOSE * self._rounding) ** 2 * max(1, len(self._rest))
        value = _MISFIT * misfit
        if self._guess.shape[1]:
            guess = self._guess[rows][:, None]
            x = guess + (left @ self._inverse - guess @ self._seen)
            outside = (x - x.clamp(0, 1)).square().sum(dim=-1)
            value = value + _OUTSIDE * outside + _FAR * (x - guess).square().sum(dim=-1)
            if self._is_full:
                fits = fits & (outside <= self._slack**2 * x.shape[-1])
        return value, fits

    @property
    def _seen(self) -> Tensor:
        """(k, k) A^+ A, a projection."""
        inverse = self._inverse
        return (
            torch.linalg.pinv(inverse) @ inverse
            if inverse.numel()
            else inverse.new_zeros(inverse.shape[1], inverse.shape[1])
        )


def fitting_ids(
    equations: Equations,
    cardinalities: tuple[int, ...],
    relaxed: Tensor,
    guess: Tensor,
    *,
    combinations: int,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """Ids (m, c) that fit best, and how many combinations fit as well (m,); nan where not all were tried.

    relaxed: (m, sum of cardinalities), one-hot vectors that need not be whole. guess: (m, numeric). combinations: up to
    so many are all tried; where there are more, each column in turn, from the largest entries of the relaxed vectors.
    """
    fitting = Fitting(equations, cardinalities, guess, tolerance)
    m, device = len(relaxed), relaxed.device
    ids = torch.stack([block.argmax(dim=1) for block in relaxed.split(list(cardinalities), dim=1)], dim=1)
    counts = torch.full((m,), math.nan, dtype=torch.float64, device=device)
    rows = torch.arange(m, device=device)
    if not fitting.tells:
        return ids.int(), counts
    if math.prod(cardinalities) <= combinations:
        tried = torch.tensor(list(product(*map(range, cardinalities))), device=device)[None]  # (1, s, c)
        for part in rows.split(max(1, _AT_ONCE // (tried.shape[1] * (len(equations.c) + guess.shape[1] + 1)))):
            value, fits = fitting.score(part, tried)
            ids[part] = tried[0, value.argmin(dim=1)]
            counts[part] = fits.sum(dim=1).double()
        return ids.int(), counts
    for _ in range(_SWEEPS):
        for j, size in enumerate(cardinalities):
            for part in rows.split(max(1, _AT_ONCE // (size * (len(equations.c) + guess.shape[1] + len(cardinalities))))):
                tried = ids[part][:, None].repeat(1, size, 1)
                tried[:, :, j] = torch.arange(size, device=device)
                ids[part, j] = fitting.score(part, tried)[0].argmin(dim=1)
    return ids.int(), counts
