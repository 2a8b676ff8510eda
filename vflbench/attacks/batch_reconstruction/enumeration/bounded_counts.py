"""Bounded integer solutions of a few equations: how many rows of each group have a one in the next column."""

from collections.abc import Iterator

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.time_limit import TimeLimit
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME

# The largest number of combinations of the free unknowns that are tried at once.
_COMBINATIONS = 1 << 14


def bounded_counts(
    member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray, time_limit: TimeLimit
) -> Iterator[np.ndarray]:
    """Every integer n with low <= n <= high and member n = target, each once.

    member: (k, g) of 0 and 1, target: (k,), low, high: (g,), all int64. Yields (g,) int64 arrays. Each equation tightens the
    bounds. The remaining unknowns are solved by elimination modulo a prime, which loses no solution, and each solution is
    checked in integers. Raises TimeLimitReached.
    """
    stack = [(low, high)]
    while stack:
        time_limit.check()
        bounds = _tighten(member, target, *stack.pop())
        if bounds is None:
            continue
        low, high = bounds
        free = np.flatnonzero(high > low)
        if not len(free):
            yield low
            continue
        if len(free) > 3:
            solved = _solve(member[:, free], target - member @ low, high[free] - low[free])
            if isinstance(solved, np.ndarray):
                for n in solved:
                    full = low.copy()
                    full[free] += n
                    yield full
                continue
            branch = free[solved]
        else:
            branch = free[(high - low)[free].argmin()]
        middle = (low[branch] + high[branch]) // 2
        upper, lower = low.copy(), high.copy()
        upper[branch], lower[branch] = middle + 1, middle
        stack += [(low, lower), (upper, high)]


def _tighten(
    member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds that all equations together imply, or None if one equation can't hold."""
    outside = (member == 0) * (1 << 40)
    while True:
        need, spare = target - member @ low, member @ high - target
        if (need < 0).any() or (spare < 0).any():
            return None
        if not len(target):
            return low, high
        top = np.minimum(high, low + (outside + need[:, None]).min(0))
        bottom = np.maximum(low, high - (outside + spare[:, None]).min(0))
        if (bottom > top).any():
            return None
        if (top == high).all() and (bottom == low).all():
            return low, high
        low, high = bottom, top


def _solve(member: np.ndarray, target: np.ndarray, most: np.ndarray) -> np.ndarray | int:
    """All n with 0 <= n <= most and member n = target, (N, g), or, if too many unknowns are free, the index to branch on."""
    order = np.argsort(-most, kind="stable")
    system, pivots = _reduced(np.c_[member[:, order], target])
    unknowns = len(most)
    if pivots and pivots[-1] == unknowns:
        return np.empty((0, unknowns), dtype=np.int64)
    free = [i for i in range(unknowns) if i not in set(pivots)]
    sizes = [int(most[order[i]]) + 1 for i in free]
    if np.prod(sizes, dtype=float) > _COMBINATIONS:
        return int(order[free[-1]])
    values = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=np.int64)
    solutions = np.empty((values.shape[1], unknowns), dtype=np.int64)
    solutions[:, order[free]] = values.T
    solutions[:, order[pivots]] = ((system[: len(pivots), -1, None] - system[: len(pivots), free] @ values) % PRIME).T
    solutions = solutions[(solutions <= most).all(1)]
    return solutions[(solutions @ member.T == target).all(1)]


def _reduced(a: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The reduced echelon form modulo the prime, and its pivot columns."""
    a = a % PRIME
    pivots: list[int] = []
    for column in range(a.shape[1]):
        if len(pivots) == len(a):
            break
        rows = np.flatnonzero(a[len(pivots) :, column])
        if not len(rows):
            continue
        here, there = len(pivots), len(pivots) + rows[0]
        a[[here, there]] = a[[there, here]]
        row = a[here] * pow(int(a[here, column]), -1, PRIME) % PRIME
        a = (a - a[:, column, None] * row % PRIME) % PRIME
        a[here] = row
        pivots.append(column)
    return a, pivots
