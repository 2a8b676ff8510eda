"""Bounded integer solutions of a few equations: how many of each group of equal rows have a one in the next column."""

from collections.abc import Iterator

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME

# So many values of the undetermined counts are tried at once.
_AT_ONCE = 1 << 14


def placements(member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray, clock: Clock) -> Iterator:
    """Every integer n with low <= n <= high and member n = target, each once.

    member: (k, g) of 0 and 1, target: (k,), low, high: (g,), all int64. Yields (g,) int64 arrays. Bounds are tightened by
    each equation; what they leave open is solved by elimination modulo a prime, which no solution escapes, and checked in
    integers. Raises TimeIsUp.
    """
    stack = [(low, high)]
    while stack:
        clock.tick()
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


def _tighten(member, target, low, high) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds after each equation has had its say, or None where one can't be met."""
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
    """All n with 0 <= n <= most and member n = target, (N, g), or, where too much is open, the index to branch on."""
    order = np.argsort(-most, kind="stable")
    system, pivots = _reduced(np.c_[member[:, order], target])
    unknowns = len(most)
    if pivots and pivots[-1] == unknowns:
        return np.empty((0, unknowns), dtype=np.int64)
    free = [i for i in range(unknowns) if i not in set(pivots)]
    sizes = [int(most[order[i]]) + 1 for i in free]
    if np.prod(sizes, dtype=float) > _AT_ONCE:
        return int(order[free[-1]])
    values = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=np.int64)
    found = np.empty((values.shape[1], unknowns), dtype=np.int64)
    found[:, order[free]] = values.T
    found[:, order[pivots]] = ((system[: len(pivots), -1, None] - system[: len(pivots), free] @ values) % PRIME).T
    found = found[(found <= most).all(1)]
    return found[(found @ member.T == target).all(1)]


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
