"""The least Gaussian noise that bounds the sumKL of two classes of Gaussian gradients.

Negative gradients are N(m0, u I), positive gradients N(m1, v I) in R^d; g = |m1 - m0|^2, and p is the share of positives.
Noise N(0, S_y),

    S_y = (l1y - l2y) e e^T + l2y I,    e = (m1 - m0) / sqrt(g)

is added to class y. The variances become a = u + l10 and b = v + l11 along e, and a2 = u + l20 and b2 = v + l21 along each
of the d - 1 directions across it. The divergence that remains between the classes is

    sumKL = KL(0 || 1) + KL(1 || 0) = 1/2 [ (d-1) (a2 - b2)^2 / (a2 b2) + (a - b)^2 / (a b) + g (1/a + 1/b) ]

and the cost of the noise is its power, p tr S_1 + (1-p) tr S_0. The solution is derived and computed in `sumkl_path`.

Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, theorem 2 and appendix; the form of
sumKL without cancellation is derived here.
"""

from math import inf
from typing import Any, NamedTuple

import numpy as np

from vflbench.numerics.sumkl_path import compiled, solve, sumkl_without_noise

__all__ = ["Noise", "solve_power", "solve_target", "sumkl_without_noise"]


class Noise(NamedTuple):
    """Variances to add, and their effect: floats, or arrays of one shape.

    First digit: 1 along e, 2 across it. Second digit: the class. sumkl: what remains. power: p tr S_1 + (1-p) tr S_0.
    """

    l10: Any
    l20: Any
    l11: Any
    l21: Any
    sumkl: Any
    power: Any


def solve_power(u: Any, v: Any, d: Any, g: Any, p: Any, power: Any) -> Noise:
    """The noise of at most this power that minimises sumKL.

    u, v: variance per coordinate of class 0 and 1, >= 0. d: coordinates, >= 1. g: squared distance of the class means, >= 0.
    p: share of class 1, in [0, 1]. power: >= 0 and finite, in the units of u, v and g. Less power is used where it suffices
    to make the classes equal (g = 0).

    Numbers give numbers. If any argument is an array, all are broadcast and the problems are solved one by one, compiled if
    numba is installed. Relative accuracy about 1e-12, in any units. Raises ValueError for arguments out of range.
    """
    return _solve_all(u, v, d, g, p, power, True)


def solve_target(u: Any, v: Any, d: Any, g: Any, p: Any, sumkl: Any) -> Noise:
    """The noise of least power that leaves at most this sumKL, > 0. Otherwise as `solve_power`.

    No noise is added if the sumKL is that small without noise, and none for inf.
    """
    return _solve_all(u, v, d, g, p, sumkl, False)


def _solve_all(u: Any, v: Any, d: Any, g: Any, p: Any, goal: Any, by_power: bool) -> Noise:
    if all(isinstance(value, float | int) for value in (u, v, d, g, p, goal)):
        if not _is_valid(u, v, d, g, p, goal, by_power):
            raise ValueError(_range_message(u, v, d, g, p, goal, by_power))
        return Noise(*solve(float(u), float(v), float(d), float(g), float(p), float(goal), by_power))
    columns = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (u, v, d, g, p, goal)))
    shape = columns[0].shape
    problems = np.stack([column.ravel() for column in columns], axis=1)
    for invalid in problems[~_are_valid(problems.T, by_power)][:1]:
        u, v, d, g, p, goal = invalid.tolist()
        raise ValueError(_range_message(u, v, d, g, p, goal, by_power))
    solved = compiled()(problems, by_power)
    return Noise(*(solved[:, i].reshape(shape) for i in range(6)))


def _is_valid(u: float, v: float, d: float, g: float, p: float, goal: float, by_power: bool) -> bool:
    valid = 0 <= u < inf and 0 <= v < inf and 1 <= d < inf and 0 <= g < inf and 0 <= p <= 1
    return valid and (0 <= goal < inf if by_power else goal > 0)


def _are_valid(columns: np.ndarray, by_power: bool) -> np.ndarray:
    u, v, d, g, p, goal = columns
    valid = (u >= 0) & (v >= 0) & (d >= 1) & (g >= 0) & (p >= 0) & (p <= 1)
    valid &= np.isfinite(u) & np.isfinite(v) & np.isfinite(d) & np.isfinite(g)
    return valid & ((goal >= 0) & np.isfinite(goal) if by_power else goal > 0)


def _range_message(u: float, v: float, d: float, g: float, p: float, goal: float, by_power: bool) -> str:
    name, allowed = ("power", "power finite and >= 0") if by_power else ("sumkl", "sumkl > 0")
    return (
        f"u={u}, v={v}, d={d}, g={g}, p={p}, {name}={goal}: u, v and g must be finite and >= 0, d finite and >= 1, "
        f"p in [0, 1], {allowed}"
    )
