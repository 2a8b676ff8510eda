"""The 0/1 vectors that can be a row of the batch, by prefix in the order of the levels."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.column_order import Level
from vflbench.attacks.batch_reconstruction.enumeration.leverage import ROUNDING
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import TimeLimit


@dataclass(frozen=True)
class RowCandidates:
    """A tree of row prefixes. child[t]: (N_t, 2), the continuations of each prefix of t + 1 bits by 0 and by 1, or -1.

    most[t]: (N_t,), the largest number of rows with each prefix of t + 1 bits. The tree ends early if it becomes too wide.
    """

    child: list[np.ndarray]
    most: list[np.ndarray]
    rows: int

    def limits(self, level: int, nodes: np.ndarray, bit: int) -> tuple[np.ndarray, np.ndarray]:
        """The prefixes continued by a bit, and the most rows of each. nodes: (g,) at `level`. Returns two (g,)."""
        child = self.child[level][nodes, bit]
        return child, np.where(child >= 0, self.most[level + 1][child], 0)


def leverages(levels: list[Level], level: int, bits: np.ndarray, leverage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower bounds of r^T alpha^+ r for the prefixes r continued with a 0 and with a 1 at `level`.

    bits: (g, level) float, leverage: (g,) of the prefixes. At each level it grows by the squared distance of the bit from
    its prediction by the earlier bits, over the Schur complement, as far as the level's cut is certain of it. n equal rows
    of leverage h satisfy n h <= 1.
    """
    cut = levels[level].cut
    zero = bits @ cut.vector[:-1]
    return leverage + zero**2 * cut.weight, leverage + (zero + cut.vector[-1]) ** 2 * cut.weight


def of_intercept(levels: list[Level]) -> np.ndarray:
    """(1,): the bound of the leverage of the prefix that all rows have."""
    return levels[0].cut.vector ** 2 * levels[0].cut.weight


def rows_allowed(leverage: np.ndarray, rows: int) -> np.ndarray:
    """The largest number of equal rows with a leverage. leverage: (g,) >= 0."""
    return np.minimum(np.floor((1 + ROUNDING) / np.maximum(leverage, 1 / (2 * rows))), rows).astype(np.int64)


def dependent_bits_are_valid(level: Level, bits: np.ndarray) -> np.ndarray:
    """Whether every column that depends on the levels so far is 0 or 1. bits: (g, level + 1) int64. Returns (g,) bool."""
    if not len(level.dependent) or not len(bits):
        return np.ones(len(bits), dtype=bool)
    return ((bits @ level.coefficients) % level.prime <= 1).all(1)


def row_candidates(levels: list[Level], rows: int, widest: int, time_limit: TimeLimit) -> RowCandidates:
    """The tree of the prefixes that a row can have: in the range of alpha, with a leverage of at most 1.

    levels: of the Gram matrix of [1, X]. widest: the largest number of prefixes of a level; the tree stops before. If the
    rank is the number of rows, every row has leverage 1. Raises TimeLimitReached.
    """
    bits, leverage = np.ones((1, 1), dtype=np.int64), of_intercept(levels)
    child: list[np.ndarray] = []
    allowed = [np.where(dependent_bits_are_valid(levels[0], bits), rows, 0)]
    least = min(level.cut.least for level in levels)
    for t in range(1, len(levels)):
        time_limit.check()
        both = np.concatenate(leverages(levels, t, bits.astype(float), leverage))
        inside = np.flatnonzero(both <= 1 + ROUNDING)
        if len(inside) > widest:
            return _without_dead_ends(child, allowed, rows)
        parents = len(bits)
        bit, parent = np.divmod(inside, parents)
        bits, leverage = np.c_[bits[parent], bit], both[inside]
        valid = dependent_bits_are_valid(levels[t], bits)
        if t + 1 == rows:
            valid &= leverage >= least
        bits, leverage = bits[valid], leverage[valid]
        child.append(np.full((parents, 2), -1))
        child[-1][parent[valid], bit[valid]] = np.arange(len(bits))
        allowed.append(rows_allowed(leverage, rows))
    return _without_dead_ends(child, allowed, rows)


def _without_dead_ends(child: list[np.ndarray], allowed: list[np.ndarray], rows: int) -> RowCandidates:
    """A prefix has at most as many rows as its continuations have together."""
    most = [*allowed[:-1], allowed[-1]]
    for t in range(len(child) - 1, -1, -1):
        below = (
            np.where(child[t] >= 0, most[t + 1][child[t]], 0).sum(1) if len(most[t + 1]) else np.zeros(len(child[t]), int)
        )
        most[t] = np.minimum(allowed[t], below)
    return RowCandidates(child, most, rows)
