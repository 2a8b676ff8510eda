"""Column placement: every batch with a Gram matrix, each exactly once up to the order of its rows."""

from collections.abc import Iterator

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.bounded_counts import bounded_counts
from vflbench.attacks.batch_reconstruction.enumeration.column_order import Level
from vflbench.attacks.batch_reconstruction.enumeration.row_candidates import (
    RowCandidates,
    dependent_bits_are_valid,
    leverages,
    of_intercept,
    rows_allowed,
)
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import TimeLimit


class ColumnSearch:
    """Depth first over the levels. Rows with equal bits so far form a group; the next column is a count for each group.

    The counts n_g of ones in the next column j satisfy, for every placed column i,

        sum_{g: i is 1 in g} n_g = alpha_ij,   0 <= n_g <= s_g,

    where the intercept is the first column placed. Different counts are different batches, whatever the order of rows.
    Dependent columns split no group: the placed columns determine their bits, which must be 0 or 1.

    gram: (d + 1, d + 1), of [1, X]. row_candidates: the prefixes that rows can have, or None for a search without them.
    """

    def __init__(self, gram: np.ndarray, levels: list[Level], row_candidates: RowCandidates | None, time_limit: TimeLimit):
        self._gram, self._levels, self._row_candidates, self._time_limit = gram, levels, row_candidates, time_limit
        self._rows = int(gram[0, 0])

    def batches(self) -> Iterator[np.ndarray]:
        """(m, d) batches, unverified, rows in no order. Raises TimeLimitReached."""
        start = np.ones((1, 1), dtype=np.int64)
        if not dependent_bits_are_valid(self._levels[0], start).all():
            return
        sizes = np.full(1, self._rows)
        yield from self._place(1, start, of_intercept(self._levels), sizes, np.zeros(1, dtype=np.int64))

    def _place(
        self, level: int, bits: np.ndarray, leverage: np.ndarray, sizes: np.ndarray, nodes: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Groups at a level: bits (g, level), leverages (g,), sizes (g,), the tree nodes of their prefixes (g,)."""
        if level == len(self._levels):
            yield self._batch(bits, sizes)
            return
        extended = [np.c_[bits, np.full(len(bits), bit)] for bit in (0, 1)]
        both = leverages(self._levels, level, bits.astype(float), leverage)
        children, most = zip(*(self._most(level, nodes, bit, extended[bit], both[bit]) for bit in (0, 1)), strict=True)
        low, high = np.maximum(sizes - most[0], 0), np.minimum(most[1], sizes)
        if (low > high).any():
            return
        placed = [earlier.column for earlier in self._levels[:level]]
        column = self._levels[level].column
        ones = self._gram[placed, column]
        member = np.r_[bits.T, 1 - bits.T[1:]]
        target = np.r_[ones, ones[0] - ones[1:]]
        for n in bounded_counts(member, target, low, high, self._time_limit):
            counts = np.r_[sizes - n, n]
            kept = counts > 0
            yield from self._place(
                level + 1,
                np.r_[extended[0], extended[1]][kept],
                np.concatenate(both)[kept],
                counts[kept],
                np.concatenate(children)[kept],
            )

    def _most(
        self, level: int, nodes: np.ndarray, bit: int, extended: np.ndarray, leverage: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tree nodes of the prefixes continued by a bit, and the largest number of rows of each."""
        most = rows_allowed(leverage, self._rows)
        if self._row_candidates is not None and level <= len(self._row_candidates.child):
            children, limit = self._row_candidates.limits(level - 1, nodes, bit)
            return children, np.minimum(most, limit)
        return nodes, np.where(dependent_bits_are_valid(self._levels[level], extended), most, 0)

    def _batch(self, bits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        batch = np.empty((len(bits), len(self._gram)), dtype=np.int64)
        for k, level in enumerate(self._levels):
            batch[:, level.column] = bits[:, k]
            batch[:, level.dependent] = bits[:, : k + 1] @ level.coefficients % level.prime
        return np.repeat(batch[:, 1:], sizes, axis=0)
