"""Two local batches told apart, from the second term of a pushed difference."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.bounded_integers import bounded_integers, equal_rows


@dataclass(frozen=True)
class Apart:
    """membership: (rows,) uint8, 1 for the batch of the first step; of equal rows the first ones, which are as good as any.

    unique: whether it is the only one, rows of zeros apart (they leave no trace). count: how many were found; at least that
    many if not `complete`. refusal: why there is none, or None.
    """

    membership: np.ndarray | None = None
    unique: bool = False
    count: int = 0
    complete: bool = True
    refusal: str | None = None


def tell_apart(z: np.ndarray, second: np.ndarray, *, rows: int | None = None, most: int = 4096) -> Apart:
    """Which rows were in the first of two local batches, the order of the steps included.

        P = alpha_2 alpha_1 = (A - alpha_1) alpha_1,   A = Z^T Z,   alpha_1 = sum_r w_r z_r z_r^T,   w_r in {0, 1}
        P - P^T = A alpha_1 - alpha_1 A = sum_r w_r (A z_r z_r^T - z_r z_r^T A)

    linear in w. One freedom always remains, w + c 1, since A commutes with itself: `rows` or w in {0, 1} closes it. If the
    system leaves more of them, their integer values are tried, up to `most`. Each answer is verified: P = alpha_2 alpha_1.

    z: (N, d) of 0 and 1, the rows of both batches. second: (d, d) int64, P. rows: how many are in the first batch, if known.
    Raises ValueError for shapes that do not fit.
    """
    z, second = np.asarray(z).astype(np.int64), np.asarray(second).astype(np.int64)
    if z.ndim != 2 or second.shape != (z.shape[1], z.shape[1]):
        raise ValueError(f"the rows are (N, d) and the second term (d, d), not {z.shape} and {second.shape}")
    alpha = z.T @ z
    distinct, group, sizes = equal_rows(z)
    traced = distinct.any(1)
    image = distinct[traced] @ alpha
    upper = np.triu_indices(z.shape[1], 1)
    changes = image[:, :, None] * distinct[traced][:, None, :]
    matrix = (changes - changes.transpose(0, 2, 1))[:, upper[0], upper[1]].T
    right = (second - second.T)[upper]
    blank = int(sizes[~traced].sum())
    if rows is not None and not blank:
        matrix, right = np.vstack([matrix, np.ones((1, len(image)), np.int64)]), np.append(right, rows)

    def fits(counts: np.ndarray) -> bool:
        first = (distinct[traced].T * counts) @ distinct[traced]
        if rows is not None and not 0 <= rows - counts.sum() <= blank:
            return False
        return np.array_equal((alpha - first) @ first, second)

    found, complete = bounded_integers(matrix, right, sizes[traced], fits, most)
    if not found:
        why = "no division of these rows has this second term" if complete else f"none of {most} divisions tried fits"
        return Apart(complete=complete, refusal=why)
    counts = np.zeros(len(distinct), dtype=np.int64)
    counts[traced] = found[0]
    if rows is not None:
        counts[~traced] = rows - found[0].sum()
    return Apart(_first_of(group, counts), len(found) == 1 and complete, len(found), complete)


def _first_of(group: np.ndarray, counts: np.ndarray) -> np.ndarray:
    membership = np.zeros(len(group), dtype=np.uint8)
    for index, count in enumerate(counts):
        membership[np.flatnonzero(group == index)[:count]] = 1
    return membership
