"""A proof that a batch is alone with its Gram matrix: a quadratic form that vanishes on its rows, and on no other row."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.elimination import Elimination, eliminate
from vflbench.attacks.batch_reconstruction.certificate.row_bounds import RowBounds

_WIDEST = 1 << 16
_PRIME = (1 << 31) - 1


def is_alone_among(gram: np.ndarray, x: np.ndarray, form: np.ndarray, check: Callable[[int], None]) -> bool:
    """Whether the form proves that no other batch has this Gram matrix.

    gram: (n, n), A of [1, X]. x: (m, d), a batch with it. form: (n, n) integers Y. Every batch has sum_c n_c c^T Y c = tr(Y
    A), where n_c counts its rows c, at most b_c. If the form exceeds both 0 and

        tr(Y A) - sum over rows c in x of min(0, b_c c^T Y c)

    on every possible row that is not in x, then no such row occurs. The rows in x occur as often as there, since their c
    c^T are linearly independent. All possible rows are listed by `RowBounds`. False means nothing.
    """
    elimination = eliminate(gram, check)
    if elimination is None:
        return False
    bounds = RowBounds(gram, elimination, _WIDEST, check)
    listed = bounds.listed()
    if listed is None:
        return False
    bits, most = listed
    inside = np.zeros((len(gram), len(gram)), dtype=np.int64)
    pivots = elimination.pivots
    inside[np.ix_(pivots, pivots)] = form[np.ix_(pivots, pivots)]
    largest = int(np.abs(inside).sum())
    if not np.array_equal(inside, form) or largest * max(int(gram.max()), 1) ** 2 >= 1 << 62:
        return False
    values = ((bits @ form[np.ix_(pivots, pivots)]) * bits).sum(1)
    rows = np.c_[np.ones(len(x), dtype=np.int64), x.astype(np.int64)][:, pivots]
    own = {row.tobytes() for row in rows}
    in_x = np.array([row.tobytes() in own for row in np.ascontiguousarray(bits)])
    if in_x.sum() < len(own) or not _independent(np.unique(rows, axis=0)):
        return False
    total = int((form * gram).sum())
    slack = total - sum(min(0, int(v) * int(b)) for v, b in zip(values[in_x], most[in_x], strict=True))
    undecided = bits[~in_x & (values <= max(slack, 0))]
    check(len(undecided))
    return all(_leverage(row, elimination) > 1 for row in undecided.tolist())


def _leverage(row: list[int], elimination: Elimination) -> Fraction:
    """r^T A^-1 r over the pivots, exactly: at most 1 for every row of a batch."""
    products = (sum(v * bit for v, bit in zip(vector, row, strict=False)) for vector in elimination.combinations)
    squares = (Fraction(product**2, length) for product, length in zip(products, elimination.lengths, strict=True))
    return sum(squares, Fraction(0))


def _independent(rows: np.ndarray) -> bool:
    """Whether the matrices c c^T of these rows are linearly independent, by their rank modulo a prime."""
    first, second = np.triu_indices(rows.shape[1])
    a = rows[:, first] * rows[:, second]
    for k in range(len(a)):
        used = np.flatnonzero(a[k])
        if not len(used):
            return False
        row = a[k] * pow(int(a[k, used[0]]), -1, _PRIME) % _PRIME
        a[k + 1 :] = (a[k + 1 :] - np.outer(a[k + 1 :, used[0]], row) % _PRIME) % _PRIME
    return True
