"""The rows that a batch can have, in integers: how often each beginning of a row can occur."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.elimination import Elimination

_SCALE = 20  # bits: of the cuts and of the lengths that they measure
_LONGEST = 60  # bits of a row in one int64


@dataclass(frozen=True)
class Column:
    """One pivot of the elimination: vector (k + 1,) int64, the cut; most, least: int64, bounds of its square length.

    dependent: (q,) columns. numerators: (k + 1, q), denominators: (q,), int64 modulo 2^64: a row's entry in them is 0 or 1,
    so its bits times the numerators are 0 or the denominator.
    """

    vector: np.ndarray
    most: int
    least: int
    dependent: np.ndarray
    numerators: np.ndarray
    denominators: np.ndarray


class RowBounds:
    """For each beginning of a row, over the pivots in order, the largest number of rows that begin with it.

    For every integer matrix V, n equal rows r have n (V^T r)(V^T r)^T <= M = V^T A V <= diag(q) as quadratic forms, where
    q_k = sum_l |M_kl| (diagonal dominance), hence n sum_k floor(2^20 (v_k . r)^2 / q_k) <= 2^20. If the rank is m, then
    r^T A^-1 r = 1 for every row, and sum_k ceil(2^20 (v_k . r)^2 / p_k) >= 2^20, p_k = M_kk - sum_(l != k) |M_kl| > 0.
    """

    def __init__(self, gram: np.ndarray, elimination: Elimination, widest: int, check: Callable[[int], None]):
        self.rows = int(gram[0, 0])
        self.columns = _columns(gram, elimination)
        self._full = len(self.columns) == self.rows and all(min(column.least, column.most) > 0 for column in self.columns)
        self._codes, self._most = self._tree(widest, check)

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The beginning that all rows have: bits (1, 1), length (1,)."""
        bits = np.ones((1, 1), dtype=np.int64)
        return bits, self._longer(0, np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), 1)

    def extend(self, k: int, bits: np.ndarray, length: np.ndarray, bit: int) -> tuple[np.ndarray, np.ndarray]:
        """Beginnings (g, k) of length (g,) with one more bit: their lengths, and the most rows with each, both (g,)."""
        longer = self._longer(k, bits, length, bit)
        extended = np.c_[bits, np.full(len(bits), bit)]
        most = np.where(self._possible(k, extended, longer), self._allowed(longer), 0)
        if k < len(self._codes):
            codes = _code(extended)
            place = np.minimum(np.searchsorted(self._codes[k], codes), max(len(self._codes[k]) - 1, 0))
            known = len(self._codes[k]) > 0
            found = self._codes[k][place] == codes if known else np.zeros(len(codes), dtype=bool)
            most = np.where(found, np.minimum(most, self._most[k][place]), 0) if known else np.zeros_like(most)
        return longer, most

    def listed(self) -> tuple[np.ndarray, np.ndarray] | None:
        """All possible rows, (N, r) bits of the pivots, and the most of each, (N,); None if they were too many to list."""
        if len(self._codes) < len(self.columns):
            return None
        places = np.arange(len(self.columns) - 1, -1, -1, dtype=np.int64)
        return self._codes[-1][:, None] >> places & 1, self._most[-1]

    def _longer(self, k: int, bits: np.ndarray, length: np.ndarray, bit: int) -> np.ndarray:
        column = self.columns[k]
        if not column.most:
            return length
        product = np.abs(bits @ column.vector[:-1] + bit * column.vector[-1])
        product = np.minimum(product, isqrt(column.most) + 1)  # longer rows are excluded already
        return length + (product**2 << _SCALE) // column.most

    def _allowed(self, length: np.ndarray) -> np.ndarray:
        return np.minimum((1 << _SCALE) // np.maximum(length, 1), self.rows)

    def _possible(self, k: int, bits: np.ndarray, length: np.ndarray) -> np.ndarray:
        column = self.columns[k]
        sums = bits @ column.numerators
        possible = ((sums == 0) | (sums == column.denominators)).all(1) & (length <= 1 << _SCALE)
        if self._full and k + 1 == len(self.columns) and possible.any():
            whole = np.zeros(len(bits), dtype=np.int64)
            for j, other in enumerate(self.columns):
                product = np.minimum(np.abs(bits[:, : j + 1] @ other.vector), 1 << 21)
                whole += -((-(product**2) << _SCALE) // other.least)
            possible &= whole >= 1 << _SCALE
        return possible

    def _tree(self, widest: int, check: Callable[[int], None]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Codes (sorted) and most rows of all beginnings, level by level, as long as there are at most `widest`."""
        bits, length = self.start()
        every, most = [_code(bits)], [np.where(self._possible(0, bits, length), self._allowed(length), 0)]
        for k in range(1, min(len(self.columns), _LONGEST)):
            check(len(bits))
            both, lengths = [], []
            for bit in (0, 1):
                longer, extended = self._longer(k, bits, length, bit), np.c_[bits, np.full(len(bits), bit)]
                kept = self._possible(k, extended, longer)
                both.append(extended[kept])
                lengths.append(longer[kept])
            if sum(map(len, both)) > widest:
                break
            bits, length = np.concatenate(both), np.concatenate(lengths)
            codes = _code(bits)
            order = np.argsort(codes)
            bits, length = bits[order], length[order]
            every.append(codes[order])
            most.append(self._allowed(length))
        for k in range(len(every) - 2, -1, -1):  # no more rows than its continuations have
            below = np.zeros(len(every[k]), dtype=np.int64)
            np.add.at(below, np.searchsorted(every[k], every[k + 1] >> 1), most[k + 1])
            most[k] = np.minimum(most[k], below)
        return every, most


def _columns(gram: np.ndarray, elimination: Elimination) -> list[Column]:
    pivots = elimination.pivots
    vectors = np.zeros((len(pivots), len(pivots)), dtype=np.int64)
    for k, (combination, length) in enumerate(zip(elimination.combinations, elimination.lengths, strict=True)):
        scaled = [(2 * (entry << _SCALE) + isqrt(length)) // (2 * isqrt(length)) for entry in combination]
        if sum(map(abs, scaled)) < 1 << 58:
            vectors[: k + 1, k] = scaled
    inside = gram[np.ix_(pivots, pivots)]
    largest = int(np.abs(vectors).sum(0).max())
    kind = np.int64 if largest**2 * int(np.abs(inside).max()) < 1 << 62 else object
    products = vectors.T.astype(kind) @ inside.astype(kind) @ vectors.astype(kind)
    columns = []
    for k, of_pivot in enumerate(elimination.dependent):
        whole = sum(abs(int(entry)) for entry in products[k])
        least = 2 * int(products[k, k]) - whole
        numerators = [[_wrapped(c) for c in entries] for _, entries, _ in of_pivot]
        columns.append(
            Column(
                vectors[: k + 1, k],
                whole if whole < 1 << 42 else 0,
                least,
                np.array([i for i, _, _ in of_pivot], dtype=np.int64),
                np.array(numerators, dtype=np.int64).reshape(-1, k + 1).T,
                np.array([_wrapped(e) for _, _, e in of_pivot], dtype=np.int64),
            )
        )
    return columns


def _code(bits: np.ndarray) -> np.ndarray:
    """The bits as one number, the first bit the highest."""
    return bits @ (1 << np.arange(bits.shape[1] - 1, -1, -1, dtype=np.int64))


def _wrapped(number: int) -> int:
    """Modulo 2^64, as int64."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
