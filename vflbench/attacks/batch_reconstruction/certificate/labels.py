"""The labels of a batch in integers: whether some fit, whether listed ones do, and whether any is missing."""

from collections.abc import Callable, Sequence
from itertools import islice
from math import lcm

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.elimination import eliminate
from vflbench.attacks.batch_reconstruction.certificate.matched_sums import matched_sums

# The most values of the rows that depend on others that are tried at once.
_COMBINATIONS = 1 << 12


def have_beta(x: np.ndarray, labellings: Sequence[np.ndarray], beta: np.ndarray) -> bool:
    """Whether some labels -1 and +1 have these shares of positives among equal rows, and the sums beta, for each labelling.

    x: (m, d) of 0 and 1. labellings: each (m,) in [0, 1], ignored for rows of zeros. beta: (d,) integers.
    """
    groups, of_row, sizes = np.unique(x.astype(np.int64), axis=0, return_inverse=True, return_counts=True)
    of_row = of_row.reshape(-1)
    shares = np.array(labellings, dtype=float).reshape(len(labellings), len(x))
    shares[:, ~x.any(axis=1)] = 0.0
    first = np.zeros(len(groups), dtype=np.int64)
    first[of_row] = np.arange(len(x))
    positives = np.rint(shares[:, first] * sizes).astype(np.int64)
    if not np.allclose(positives[:, of_row] / sizes[of_row], shares, rtol=0, atol=1e-9):
        return False
    distinct = len(np.unique(positives, axis=0)) == len(positives) if len(groups) else len(positives) == 1
    inside = (positives >= 0).all() and (positives <= sizes).all()
    return bool(distinct and inside and ((2 * positives - sizes) @ groups == beta).all())


def number_of_labellings(
    x: np.ndarray, alpha: np.ndarray, beta: np.ndarray, known: np.ndarray | None, most: int, check: Callable[[int], None]
) -> int:
    """How many labellings have the sums beta, counted up to `most`.

    x: (m, d) of 0 and 1 with this alpha. known: one of them, as shares of positives, if there is one. check: called with the
    amount of work. Relative to a known one, the rows that depend on others may change, and the others follow.
    """
    used = x[x.any(axis=1)].astype(np.int64)
    groups, first, sizes = np.unique(used, axis=0, return_index=True, return_counts=True)
    if not len(groups):
        return 1 if not beta.any() else 0
    if known is not None:
        positives = np.rint(np.asarray(known)[x.any(axis=1)][first] * sizes).astype(np.int64)
        count = _others(groups, sizes, positives, check)
        if count is not None:
            return min(count, most)
    target = (beta + np.diagonal(alpha)) // 2
    return len(list(islice(matched_sums(groups, target, np.zeros_like(sizes), sizes, check), most)))


def _others(groups: np.ndarray, sizes: np.ndarray, known: np.ndarray, check: Callable[[int], None]) -> int | None:
    """The number of n with 0 <= n <= sizes and n @ groups = known @ groups, or None if too many would have to be tried."""
    elimination = eliminate(groups @ groups.T, check)
    if elimination is None:
        return None
    relations = [relation for of_pivot in elimination.dependent for relation in of_pivot]
    if np.prod([float(sizes[i] + 1) for i, _, _ in relations]) > _COMBINATIONS:
        return None
    whole = lcm(*(denominator for _, _, denominator in relations)) if relations else 1
    shape = [int(sizes[i]) + 1 for i, _, _ in relations]
    values = np.indices(shape).reshape(len(shape), -1).T if shape else np.zeros((1, 0), dtype=np.int64)
    check(len(values))
    # Row i is a combination of the pivots' rows: one more of it takes c / e of each of these away.
    taken = np.zeros((len(relations), len(elimination.pivots)), dtype=object)
    for place, (_, numerators, denominator) in enumerate(relations):
        taken[place, : len(numerators)] = [c * (whole // denominator) for c in numerators]
    change = (values - np.array([known[i] for i, _, _ in relations], dtype=np.int64)).astype(object) @ taken
    left = np.array([int(known[i]) * whole for i in elimination.pivots], dtype=object) - change
    room = np.array([int(sizes[i]) * whole for i in elimination.pivots], dtype=object)
    fits = (left >= 0) & (left <= room) & (left % whole == 0)
    return int(fits.astype(bool).all(axis=1).sum())
