"""Bounded integer solutions of equations with coefficients 0 and 1: both halves of the unknowns, matched by their sums."""

from collections.abc import Callable, Iterator

import numpy as np

# The most sums of one half; with more, an unknown is split first.
_HALF = 1 << 12


def matched_sums(
    member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray, check: Callable[[int], None]
) -> Iterator[np.ndarray]:
    """Every integer n with low <= n <= high and n @ member = target, each once.

    member: (g, k) of 0 and 1, target: (k,), low, high: (g,), int64. check: called with the amount of work. Equal sums have
    equal products with any numbers modulo 2^64, so matching by these loses nothing; each match is verified.
    """
    waiting = [(low, high)]
    while waiting:
        check(1)
        low, high = waiting.pop()
        if (low > high).any() or not _narrow(member, target, low := low.copy(), high := high.copy()):
            continue
        free = np.flatnonzero(high > low)
        halves = _halves(free, high - low)
        sizes = [float(np.prod((high - low + 1)[half], dtype=float)) for half in halves]
        if max(sizes) > _HALF:
            widest = free[(high - low)[free].argmax()]
            middle = (low[widest] + high[widest]) // 2
            under, over = high.copy(), low.copy()
            under[widest], over[widest] = middle, middle + 1
            waiting += [(over, high), (low, under)]
            continue
        check(int(sum(sizes)) >> 6)
        for n in _matches(member, target - low @ member, (high - low), halves):
            yield low + n


def _narrow(member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
    """Narrow the bounds in place by all equations, until none does. False if one has no solution."""
    outside = np.where(member > 0, 0, 1 << 40)  # (g, k)
    while True:
        over, under = target - low @ member, high @ member - target
        if not len(target):
            return True
        if over.min() < 0 or under.min() < 0:
            return False
        top, bottom = low + (outside + over).min(1), high - (outside + under).min(1)
        if (top >= high).all() and (bottom <= low).all():
            return True
        np.minimum(high, top, out=high)
        np.maximum(low, bottom, out=low)
        if (low > high).any():
            return False


def _halves(free: np.ndarray, room: np.ndarray) -> tuple[list[int], list[int]]:
    """The free unknowns in two parts with about as many combinations each."""
    parts: tuple[list[int], list[int]] = ([], [])
    sizes = [1.0, 1.0]
    for unknown in sorted(free.tolist(), key=lambda unknown: -int(room[unknown])):
        part = int(sizes[1] < sizes[0])
        parts[part].append(unknown)
        sizes[part] *= float(room[unknown]) + 1
    return parts


def _matches(
    member: np.ndarray, target: np.ndarray, room: np.ndarray, halves: tuple[list[int], list[int]]
) -> Iterator[np.ndarray]:
    multipliers = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, member.shape[1])
    keys = member @ multipliers
    goal = (target * multipliers).sum()
    one, other = (_sums(keys, room, half) for half in halves)
    order = np.argsort(other, kind="stable")
    wanted = goal - one
    first = np.searchsorted(other[order], wanted, "left")
    last = np.searchsorted(other[order], wanted, "right")
    for i in np.flatnonzero(last > first):
        for j in order[first[i] : last[i]]:
            n = np.zeros(len(member), dtype=np.int64)
            for half, index in zip(halves, (int(i), int(j)), strict=True):
                for unknown in half:
                    index, n[unknown] = divmod(index, int(room[unknown]) + 1)
            if np.array_equal(n @ member, target):
                yield n


def _sums(keys: np.ndarray, room: np.ndarray, half: list[int]) -> np.ndarray:
    """The keys of all combinations; the first unknown changes fastest."""
    sums = np.zeros(1, dtype=np.int64)
    for unknown in half:
        sums = (sums[None] + keys[unknown] * np.arange(int(room[unknown]) + 1)[:, None]).reshape(-1)
    return sums
