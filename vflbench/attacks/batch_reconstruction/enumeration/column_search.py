"""Column placement: every batch with a Gram matrix, each exactly once up to the order of its rows."""

from collections.abc import Iterator

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.bounded_counts import placements
from vflbench.attacks.batch_reconstruction.enumeration.column_order import Level
from vflbench.attacks.batch_reconstruction.enumeration.row_candidates import (
    Candidates,
    forced_are_bits,
    leverages,
    rows_allowed,
)
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME


class ColumnSearch:
    """Depth first over the levels. Rows with equal bits so far form a group; the next column is a count for each group.

    The counts n_g of ones in the next column j meet, for every placed column i,

        sum_{g: i is 1 in g} n_g = alpha_ij,   0 <= n_g <= s_g,

    where the intercept is the first column placed. Different counts are different batches, whatever the order of rows.
    Dependent columns split no group: their bits are forced, and prune.

    gram: (d + 1, d + 1), of [1, X]. candidates: the prefixes that rows can have, or None to go without.
    """

    def __init__(self, gram: np.ndarray, levels: list[Level], candidates: Candidates | None, clock: Clock):
        self._gram, self._levels, self._candidates, self._clock = gram, levels, candidates, clock
        self._rows = int(gram[0, 0])

    def batches(self) -> Iterator[np.ndarray]:
        """(m, d) batches, unverified, rows in no order. Raises TimeIsUp."""
        start = np.ones((1, 1), dtype=np.int64)
        if not forced_are_bits(self._levels[0], start).all():
            return
        sizes = np.full(1, self._rows)
        yield from self._place(1, start, np.full(1, 1 / self._rows), sizes, np.zeros(1, dtype=np.int64))

    def _place(self, level: int, bits, h, sizes, nodes) -> Iterator[np.ndarray]:
        """Groups at a level: bits (g, level), leverages h (g,), sizes (g,), their prefixes' nodes (g,)."""
        if level == len(self._levels):
            yield self._batch(bits, sizes)
            return
        extended = [np.c_[bits, np.full(len(bits), bit)] for bit in (0, 1)]
        leverage = leverages(self._levels, level, bits.astype(float), h)
        children, most = zip(*(self._most(level, nodes, bit, extended[bit], leverage[bit]) for bit in (0, 1)), strict=True)
        low, high = np.maximum(sizes - most[0], 0), np.minimum(most[1], sizes)
        if (low > high).any():
            return
        placed = [earlier.column for earlier in self._levels[:level]]
        column = self._levels[level].column
        ones = self._gram[placed, column]
        member = np.r_[bits.T, 1 - bits.T[1:]]
        target = np.r_[ones, ones[0] - ones[1:]]
        for n in placements(member, target, low, high, self._clock):
            counts = np.r_[sizes - n, n]
            kept = counts > 0
            yield from self._place(
                level + 1,
                np.r_[extended[0], extended[1]][kept],
                np.concatenate(leverage)[kept],
                counts[kept],
                np.concatenate(children)[kept],
            )

    def _most(self, level: int, nodes, bit: int, extended, leverage) -> tuple[np.ndarray, np.ndarray]:
        """Where prefixes go with a bit, and how many rows can go there."""
        most = rows_allowed(leverage, self._rows)
        if self._candidates is not None and level <= len(self._candidates.child):
            children, room = self._candidates.limits(level - 1, nodes, bit)
            return children, np.minimum(most, room)
        return nodes, np.where(forced_are_bits(self._levels[level], extended), most, 0)

    def _batch(self, bits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        whole = np.empty((len(bits), len(self._gram)), dtype=np.int64)
        for k, level in enumerate(self._levels):
            whole[:, level.column] = bits[:, k]
            whole[:, level.dependent] = bits[:, : k + 1] @ level.forced % PRIME
        return np.repeat(whole[:, 1:], sizes, axis=0)
