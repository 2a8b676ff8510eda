"""Fraction-free elimination of a Gram matrix: exact slopes, dependences and definiteness."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Elimination:
    """Exact facts on every matrix Z with Z^T Z = A.

    pivots: r independent columns. combinations: for each pivot the integers v over the pivots so far, the last one
    positive, with Z v orthogonal to the earlier pivots. lengths: |Z v|^2 for each. dependent: for each pivot the columns
    that depend on the pivots so far, and for each the integers (c, e) with e z = c_1 z_1 + ... for the pivots' columns z_1,
    ...
    """

    pivots: list[int]
    combinations: list[list[int]]
    lengths: list[int]
    dependent: list[list[tuple[int, list[int], int]]]


def eliminate(gram: np.ndarray, check: Callable[[int], None]) -> Elimination | None:
    """Gauss-Jordan elimination in integers (Bareiss), the smallest Schur complement first after column 0.

    gram: (n, n) symmetric integers A. check: called for each column. Returns None if A is no Gram matrix of any real
    matrix: it isn't semidefinite.
    """
    a, before = np.array(gram, dtype=np.int64), 1
    result = Elimination([], [], [], [])
    left = list(range(len(a)))
    while left:
        check(1)
        diagonal = [int(a[i, i]) for i in left]
        if min(diagonal) < 0:
            return None
        positive = [(value, i) for value, i in zip(diagonal, left, strict=True) if value]
        if len(positive) < len(left):
            zero = [i for i in left if not a[i, i]]
            if a[np.ix_(zero, left)].any():
                return None
            if result.pivots:
                result.dependent[-1].extend((i, [int(a[k, i]) for k in result.pivots], before) for i in zero)
            left = [i for i in left if a[i, i]]
        if not left:
            break
        pivot = min(positive)[1] if result.pivots else left[0]
        value = int(a[pivot, pivot])
        result.combinations.append([*(-int(a[k, pivot]) for k in result.pivots), before])
        result.lengths.append(before * value)
        result.pivots.append(pivot)
        result.dependent.append([])
        left.remove(pivot)
        if a.dtype != object and 2 * int(np.abs(a).max()) ** 2 >= 1 << 62:
            a = a.astype(object)
        row = a[pivot].copy()
        a = (value * a - np.outer(a[:, pivot], row)) // before
        a[pivot] = row
        before = value
    return result
