"""All batches with a Gram matrix once more, by another search in integers, to compare with what the first one claims."""

from collections.abc import Callable, Iterator

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.elimination import Elimination, eliminate
from vflbench.attacks.batch_reconstruction.certificate.matched_sums import matched_sums
from vflbench.attacks.batch_reconstruction.certificate.row_bounds import RowBounds

# Beginnings of rows that are listed at most; longer ones are bounded one by one.
_WIDEST = 1 << 14


class WorkLimitReached(Exception):  # noqa: N818 (not an error)
    """The search did more steps than it may."""


def second_search(gram: np.ndarray, check: Callable[[int], None]) -> Iterator[np.ndarray]:
    """Every X (m, d) of 0 and 1 with this Gram matrix of [1, X], each once up to row order, rows sorted, uint8.

    gram: (d + 1, d + 1) int64, not impossible entry by entry. check: called with the amount of work; what it raises ends the
    search.
    """
    rows, alpha = int(gram[0, 0]), gram[1:, 1:]
    if rows == 0:
        yield np.zeros((0, len(alpha)), dtype=np.uint8)
        return
    elimination = eliminate(gram, check)
    if elimination is None or len(elimination.pivots) > rows:
        return
    bounds = RowBounds(gram, elimination, _WIDEST, check)
    bits, length = bounds.start()
    _, most = bounds.extend(0, np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), 1)
    if most[0] < rows:
        return
    for pivots, counts in _split(bounds, gram, elimination.pivots, bits, length, np.full(1, rows), check):
        x = _whole_rows(pivots, elimination, len(gram))[:, 1:]
        if ((x != 0) & (x != 1)).any():
            continue
        x = np.repeat(x, counts, axis=0)
        if np.array_equal(x.T @ x, alpha):
            yield x[np.lexsort(x.T[::-1])].astype(np.uint8) if x.size else x.astype(np.uint8)


def _split(
    bounds: RowBounds,
    gram: np.ndarray,
    pivots: list[int],
    bits: np.ndarray,
    length: np.ndarray,
    sizes: np.ndarray,
    check: Callable[[int], None],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The groups of rows that begin alike, split by the bits of one more pivot in every way that its sums allow."""
    k = bits.shape[1]
    if k == len(pivots):
        yield bits, sizes
        return
    zero, most_zeros = bounds.extend(k, bits, length, 0)
    one, most_ones = bounds.extend(k, bits, length, 1)
    member, target = np.c_[bits, 1 - bits[:, 1:]], gram[pivots[:k], pivots[k]]
    target = np.r_[target, target[0] - target[1:]]
    low, high = np.maximum(sizes - most_zeros, 0), np.minimum(sizes, most_ones)
    for n in matched_sums(member, target, low, high, check):
        counts = np.r_[sizes - n, n]
        kept = counts > 0
        extended = np.r_[np.c_[bits, np.zeros_like(sizes)], np.c_[bits, np.ones_like(sizes)]]
        yield from _split(bounds, gram, pivots, extended[kept], np.r_[zero, one][kept], counts[kept], check)


def _whole_rows(bits: np.ndarray, elimination: Elimination, width: int) -> np.ndarray:
    """All columns of the rows from the bits of the pivots, exactly; -1 where an entry is no integer."""
    rows = np.zeros((len(bits), width), dtype=np.int64)
    rows[:, elimination.pivots] = bits
    for k, dependent in enumerate(elimination.dependent):
        for column, numerators, denominator in dependent:
            for row, beginning in zip(rows, bits[:, : k + 1].tolist(), strict=True):
                entry, rest = divmod(sum(c for c, b in zip(numerators, beginning, strict=True) if b), denominator)
                row[column] = entry if rest == 0 and 0 <= entry <= 1 else -1
    return rows
