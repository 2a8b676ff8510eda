"""Which 0/1 vectors can be a row of the batch at all, by prefix in the order of the levels."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.column_order import Level
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME

# Slack on leverages, which are at most 1 and come from floats.
SLACK = 1e-4
# A column nearer than this to the span of the earlier ones gives no reliable leverage, and is not pruned by.
NEAREST = 1e-7


@dataclass(frozen=True)
class Candidates:
    """A tree of row prefixes. child[t]: (N_t, 2), the prefixes of t + 2 bits that continue each of t + 1 bits, -1 for none.

    most[t]: (N_t,), how many rows can have the prefix of t + 1 bits. It ends early where it grew too wide.
    """

    child: list[np.ndarray]
    most: list[np.ndarray]
    rows: int

    def limits(self, level: int, nodes: np.ndarray, bit: int) -> tuple[np.ndarray, np.ndarray]:
        """The next prefixes of some, and how many rows can have them. nodes: (g,) at `level`. Returns two (g,)."""
        child = self.child[level][nodes, bit]
        return child, np.where(child >= 0, self.most[level + 1][child], 0)


def leverages(levels: list[Level], level: int, bits: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """r^T alpha^+ r of prefixes that go on with a 0 and with a 1 at `level`.

    bits: (g, level) float, h: (g,) the leverages so far. At each level it grows by the squared distance of the bit from
    what the earlier ones predict, over the Schur complement. n equal rows of leverage h need n h <= 1.
    """
    here = levels[level]
    if here.schur < NEAREST:
        return h, h
    predicted = bits @ here.slopes
    return h + predicted**2 / here.schur, h + (1 - predicted) ** 2 / here.schur


def rows_allowed(h: np.ndarray, rows: int) -> np.ndarray:
    """How many rows of leverage h there can be at most. h: (g,) > 0."""
    return np.minimum(np.floor((1 + SLACK) / np.maximum(h, SLACK)), rows).astype(np.int64)


def forced_are_bits(level: Level, bits: np.ndarray) -> np.ndarray:
    """Whether all columns that depend on the levels so far get a 0 or a 1. bits: (g, level + 1) int64. Returns (g,) bool."""
    if not len(level.dependent) or not len(bits):
        return np.ones(len(bits), dtype=bool)
    return ((bits @ level.forced) % PRIME <= 1).all(1)


def candidates(levels: list[Level], rows: int, widest: int, clock: Clock) -> Candidates:
    """The tree of the prefixes that a row can have: in the range of alpha, of leverage at most 1.

    levels: of the Gram matrix of [1, X]. widest: the tree stops before it has more prefixes than that. Where the rank is
    the number of rows, every row's leverage is 1. Raises TimeIsUp.
    """
    bits, h = np.ones((1, 1), dtype=np.int64), np.full(1, 1 / rows)
    child: list[np.ndarray] = []
    allowed = [np.where(forced_are_bits(levels[0], bits), rows, 0)]
    whole = all(level.schur >= NEAREST for level in levels)
    for t in range(1, len(levels)):
        clock.tick()
        both = np.concatenate(leverages(levels, t, bits.astype(float), h))
        inside = np.flatnonzero(both <= 1 + SLACK)
        if len(inside) > widest:
            return _without_dead_ends(child, allowed, rows)
        parents = len(bits)
        bit, parent = np.divmod(inside, parents)
        bits, h = np.c_[bits[parent], bit], both[inside]
        right = forced_are_bits(levels[t], bits)
        if t + 1 == rows and whole:
            right &= h >= 1 - 10 * SLACK
        bits, h = bits[right], h[right]
        child.append(np.full((parents, 2), -1))
        child[-1][parent[right], bit[right]] = np.arange(len(bits))
        allowed.append(rows_allowed(h, rows))
    return _without_dead_ends(child, allowed, rows)


def _without_dead_ends(child: list[np.ndarray], allowed: list[np.ndarray], rows: int) -> Candidates:
    """A prefix holds no more rows than its continuations do together."""
    most = [*allowed[:-1], allowed[-1]]
    for t in range(len(child) - 1, -1, -1):
        below = (
            np.where(child[t] >= 0, most[t + 1][child[t]], 0).sum(1) if len(most[t + 1]) else np.zeros(len(child[t]), int)
        )
        most[t] = np.minimum(allowed[t], below)
    return Candidates(child, most, rows)
