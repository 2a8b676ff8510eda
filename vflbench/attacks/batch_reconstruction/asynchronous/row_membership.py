"""Which rows belong to which of two local batches, from the second-order term of an update."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.bounded_integers import bounded_integers, equal_rows


@dataclass(frozen=True)
class RowMembership:
    """membership: (rows,) uint8, 1 for the batch of the first step; of equal rows the first ones, an arbitrary choice.

    unique: whether it is the only solution, apart from rows of zeros, which enter no sum. count: the number of solutions; a
    lower bound unless `complete`. refusal: why there is none, or None.
    """

    membership: np.ndarray | None = None
    unique: bool = False
    count: int = 0
    complete: bool = True
    refusal: str | None = None


def row_membership(z: np.ndarray, second: np.ndarray, *, rows: int | None = None, max_tries: int = 4096) -> RowMembership:
    """Which rows are in the first of two local batches, the order of the steps included.

        P = alpha_2 alpha_1 = (A - alpha_1) alpha_1,   A = Z^T Z,   alpha_1 = sum_r w_r z_r z_r^T,   w_r in {0, 1}
        P - P^T = A alpha_1 - alpha_1 A = sum_r w_r (A z_r z_r^T - z_r z_r^T A)

    This is linear in w. One freedom always remains, w + c 1, since A commutes with itself: `rows` or w in {0, 1} removes it.
    For any further free unknowns, up to `max_tries` integer values are tried. Each solution is verified: P = alpha_2
    alpha_1.

    z: (N, d) of 0 and 1, the rows of both batches. second: (d, d) int64, P. rows: the size of the first batch, if known.
    Raises ValueError for wrong shapes.
    """
    z, second = np.asarray(z).astype(np.int64), np.asarray(second).astype(np.int64)
    if z.ndim != 2 or second.shape != (z.shape[1], z.shape[1]):
        raise ValueError(f"the rows must be (N, d) and the second-order term (d, d), not {z.shape} and {second.shape}")
    alpha = z.T @ z
    distinct, group, sizes = equal_rows(z)
    nonzero = distinct.any(1)
    image = distinct[nonzero] @ alpha
    upper = np.triu_indices(z.shape[1], 1)
    changes = image[:, :, None] * distinct[nonzero][:, None, :]
    matrix = (changes - changes.transpose(0, 2, 1))[:, upper[0], upper[1]].T
    right = (second - second.T)[upper]
    zeros = int(sizes[~nonzero].sum())
    if rows is not None and not zeros:
        matrix, right = np.vstack([matrix, np.ones((1, len(image)), np.int64)]), np.append(right, rows)

    def fits(counts: np.ndarray) -> bool:
        first = (distinct[nonzero].T * counts) @ distinct[nonzero]
        if rows is not None and not 0 <= rows - counts.sum() <= zeros:
            return False
        return np.array_equal((alpha - first) @ first, second)

    solutions, complete = bounded_integers(matrix, right, sizes[nonzero], fits, max_tries)
    if not solutions:
        why = "no division of these rows has this second-order term" if complete else f"none of {max_tries} divisions fits"
        return RowMembership(complete=complete, refusal=why)
    counts = np.zeros(len(distinct), dtype=np.int64)
    counts[nonzero] = solutions[0]
    if rows is not None:
        counts[~nonzero] = rows - solutions[0].sum()
    return RowMembership(_first_rows_of(group, counts), len(solutions) == 1 and complete, len(solutions), complete)


def _first_rows_of(group: np.ndarray, counts: np.ndarray) -> np.ndarray:
    membership = np.zeros(len(group), dtype=np.uint8)
    for index, count in enumerate(counts):
        membership[np.flatnonzero(group == index)[:count]] = 1
    return membership
