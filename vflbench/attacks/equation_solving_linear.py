"""Rows from linear equations and inequalities: the nearest to a guess."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vflbench.attacks.equation_solving_prior import Guess
from vflbench.attacks.equation_solving_system import System
from vflbench.attacks.prediction_message import log_odds, probabilities
from vflbench.numerics.nearest_in_box import nearest_in_box, singular_rows

NARROW = 1e-4
"""A difference of logits that is known up to this counts as an equation."""


@dataclass(frozen=True)
class Equations:
    """What the predictions of some rows say: low <= c u <= high.

    places: (m,) of these rows. c: (r, u) float64, the same for all of them. low, high: (m, r). equal: (r,) bool, where a
    bound is as good as an equation, whose right side is then (low + high) / 2. rounding: bound of the error of a right side.
    """

    places: Tensor
    c: Tensor
    low: Tensor
    high: Tensor
    equal: Tensor
    rounding: float

    @property
    def right(self) -> Tensor:
        """(m, equations)."""
        return (self.low[:, self.equal] + self.high[:, self.equal]) / 2

    def less(self, numeric: int, known: Tensor) -> Equations:
        """For the numeric columns alone. known: (m, u - numeric), what is in place of the others."""
        done = known @ self.c[:, numeric:].T
        c, low, high = self.c[:, :numeric], self.low - done, self.high - done
        return Equations(self.places, c, low, high, self.equal, self.rounding)


def equations_of(system: System, logits: Tensor, message: str, decimals: int | None) -> Iterator[Equations]:
    """The equations of groups of rows that have the same left sides.

    logits: (n, outputs) as the label party computed them.
    """
    places = torch.arange(len(logits), device=logits.device)
    if message == "logits":
        right = logits.double() - system.offsets
        everything = torch.ones(right.shape[1], dtype=torch.bool, device=right.device)
        yield Equations(places, system.effects, right, right, everything, system.rounding)
        return
    r, low, high = log_odds(probabilities(logits, decimals), decimals)
    width = high - low
    is_equal = width < NARROW
    outputs = logits.shape[1]
    key = torch.cat([r[:, None], is_equal.long()], dim=1)
    for kind in key.unique(dim=0):
        at = places[(key == kind).all(dim=1)]
        reference = int(kind[0])
        others = [j for j in range(outputs) if outputs == 1 or j != reference]
        base = system.effects[reference] if outputs > 1 else torch.zeros_like(system.effects[0])
        offset = system.offsets[at][:, others] - (system.offsets[at][:, [reference]] if outputs > 1 else 0.0)
        equal = kind[1:].bool()[others]
        widest = float(width[at][:, others][:, equal].amax()) / 2 if bool(equal.any()) else 0.0
        low_of, high_of = (bound[at][:, others] - offset for bound in (low, high))
        yield Equations(at, system.effects[others] - base, low_of, high_of, equal, 2 * system.rounding + widest)


@dataclass(frozen=True)
class Solved:
    """u: (m, unknowns) in [0, 1]. missing: directions that the equations leave open. bound: of |u - truth|_2, or inf, if the
    right sides are those of the model. fits: (m,) bool, whether they can be: False where they contradict one another, or the
    box, by more than rounding.
    """

    u: Tensor
    missing: int
    bound: float
    fits: Tensor


def solved(equations: Equations, guess: Guess, sums: Tensor, *, box: bool, noise: float, tolerance: float) -> Solved:
    """u = argmin |u - guess|^2 under the equations, and within the box where that is asked for. guess: of the same rows.

    sums: (c, u), further left sides whose right side is 1. With noise, the mean of u given the right sides, under a normal
    prior around the guess.
    """
    c, unknowns = equations.c[equations.equal], equations.c.shape[1]
    weight = torch.linalg.matrix_norm(c, 2) if c.numel() else c.new_ones(())
    left = torch.cat([c, weight * sums])
    right = torch.cat([equations.right, weight * sums.new_ones(len(equations.places), len(sums))], dim=1)
    u, s, v = singular_rows(left, tolerance)
    target = right @ u / s  # (m, rank): v x
    seen = v @ guess.times(v) * guess.spread**2
    noisy = torch.diag(noise**2 / s.square())
    step = torch.linalg.solve(seen + noisy, (target - guess.mean @ v.T).T).T if len(s) else target
    x = guess.mean + guess.spread**2 * step @ guess.times(v).mT
    missing = unknowns - len(s)
    bound = math.sqrt(len(c)) * equations.rounding / float(s[-1]) if missing == 0 and len(s) else math.inf
    off = (x @ c.T - right[:, : len(c)]).norm(dim=1) if noise == 0 else x.new_zeros(len(x))
    fits = off <= 2 * math.sqrt(max(len(c), 1)) * equations.rounding + 1e-9 * weight
    if missing == 0 and noise == 0:
        fits &= ((x >= -bound - 1e-9) & (x <= 1 + bound + 1e-9)).all(dim=1)
    is_outside = ((x < 0) | (x > 1)).any(dim=1)
    wide = equations.c[~equations.equal]
    if box and noise == 0 and (missing or len(wide)):
        size = wide.norm(dim=1).clamp_min(1e-12)
        low, high = equations.low[:, ~equations.equal] / size, equations.high[:, ~equations.equal] / size
        wide = wide / size[:, None]
        value = x @ wide.T
        chosen = is_outside | ((value < low) | (value > high)).any(dim=1)
        if bool(chosen.any()):
            conditions = torch.cat([v, wide])
            least, most = (torch.cat([target[chosen], edge[chosen]], dim=1) for edge in (low, high))
            x = x.index_put((chosen.nonzero()[:, 0],), nearest_in_box(x[chosen], conditions, least, most))
    return Solved(x.clamp(0, 1), missing, bound, fits)
