"""Two local batches told apart, and their labels, from the second term of a pushed difference."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np


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
    distinct, group, sizes = _groups(z)
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

    found, complete = _integers(matrix, right, sizes[traced], fits, most)
    if not found:
        why = "no division of these rows has this second term" if complete else f"none of {most} divisions tried fits"
        return Apart(complete=complete, refusal=why)
    counts = np.zeros(len(distinct), dtype=np.int64)
    counts[traced] = found[0]
    if rows is not None:
        counts[~traced] = rows - found[0].sum()
    return Apart(_first_of(group, counts), len(found) == 1 and complete, len(found), complete)


@dataclass(frozen=True)
class Labels:
    """y: (rows,) in [-1, 1]: the mean label of the equal rows of a batch, which is all that sums tell; 0 for rows of zeros.

    unique, count, complete, refusal: as in `Apart`.
    """

    y: np.ndarray | None = None
    unique: bool = False
    count: int = 0
    complete: bool = True
    refusal: str | None = None


def labels_apart(
    z: np.ndarray, membership: np.ndarray, beta_sum: np.ndarray, second_labels: np.ndarray | None = None, *, most: int = 4096
) -> Labels:
    """The labels of the rows of two local batches.

        Z_1^T y_1 + Z_2^T y_2 = beta_sum,   alpha_2 Z_1^T y_1 = second_labels,   y in {-1, +1}

    z: (N, d) of 0 and 1; membership: (N,), 1 for the first batch. beta_sum, second_labels: (d,) int64; without the last
    the rows of both batches are one. Raises ValueError for shapes that do not fit.
    """
    z, membership = np.asarray(z).astype(np.int64), np.asarray(membership).astype(np.int64)
    if z.ndim != 2 or membership.shape != z.shape[:1] or np.shape(beta_sum) != z.shape[1:]:
        raise ValueError("rows are (N, d), the membership (N,) and beta (d,)")
    if second_labels is None:
        membership = np.zeros_like(membership)
    keyed, group, sizes = _groups(np.column_stack([z, membership]))
    distinct, first = keyed[:, :-1], keyed[:, -1] == 1
    traced = distinct.any(1)
    second_alpha = z[membership == 0].T @ z[membership == 0]
    matrix, right = distinct[traced].T, np.asarray(beta_sum).astype(np.int64)
    if second_labels is not None:
        early = second_alpha @ (distinct * first[:, None])[traced].T
        matrix, right = np.vstack([matrix, early]), np.append(right, np.asarray(second_labels).astype(np.int64))
    positive = right + matrix @ sizes[traced]  # y = 2 p - 1: M (2 p - size) = right for counts p of positives
    if (positive % 2).any():
        return Labels(refusal="no labels of these rows have such sums: their parity is another")

    def fits(counts: np.ndarray) -> bool:
        return np.array_equal(2 * (matrix @ counts), positive)

    found, complete = _integers(matrix, positive // 2, sizes[traced], fits, most)
    if not found:
        why = "no labels of these rows have such sums" if complete else f"none of {most} labellings tried fits"
        return Labels(complete=complete, refusal=why)
    mean = np.zeros(len(distinct))
    mean[traced] = 2 * found[0] / sizes[traced] - 1
    return Labels(mean[group], len(found) == 1 and complete, len(found), complete)


def _groups(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows, for each row the index of its own, and how many there are of each."""
    distinct, group, sizes = np.unique(z, axis=0, return_inverse=True, return_counts=True)
    return distinct, group.ravel(), sizes


def _first_of(group: np.ndarray, counts: np.ndarray) -> np.ndarray:
    membership = np.zeros(len(group), dtype=np.uint8)
    for index, count in enumerate(counts):
        membership[np.flatnonzero(group == index)[:count]] = 1
    return membership


def _integers(
    matrix: np.ndarray, right: np.ndarray, most_of: np.ndarray, fits: Callable[[np.ndarray], bool], most: int
) -> tuple[list[np.ndarray], bool]:
    """Integer x in [0, most_of] with matrix @ x = right that `fits`, and whether these are all.

    Gauss-Jordan in float64 with full pivoting; the unknowns without a pivot are tried one by one.
    """
    pivots, free, reduced, target = _eliminated(matrix, right)
    if target is None:
        return [], True
    options = [range(int(most_of[f]) + 1) for f in free]
    size = float(np.prod([len(o) for o in options], dtype=float))
    found = []
    for tried, values in enumerate(product(*options)):
        if tried == most:
            return found, False
        x = np.zeros(len(most_of), dtype=np.int64)
        x[free] = values
        solved = target - reduced @ x[free]
        whole = np.rint(solved)
        if (np.abs(solved - whole) > 1e-3).any() or (whole < 0).any() or (whole > most_of[pivots]).any():
            continue
        x[pivots] = whole.astype(np.int64)
        if fits(x):
            found.append(x)
    return found, size <= most


def _eliminated(matrix: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """x[pivots] = target - reduced @ x[free]; target None where the equations contradict each other."""
    a, b = matrix.astype(float), right.astype(float)
    unknowns = np.arange(a.shape[1])
    scale = max(1.0, float(np.abs(a).max(initial=0.0)))
    step = 0
    while step < min(a.shape):
        i, j = np.unravel_index(np.abs(a[step:, step:]).argmax(), (a.shape[0] - step, a.shape[1] - step))
        if np.abs(a[step + i, step + j]) < 1e-8 * scale:
            break
        a[[step, step + i]], b[[step, step + i]] = a[[step + i, step]], b[[step + i, step]]
        a[:, [step, step + j]], unknowns[[step, step + j]] = a[:, [step + j, step]], unknowns[[step + j, step]]
        b[step] /= a[step, step]
        a[step] /= a[step, step]
        others = np.arange(len(a)) != step
        b[others] -= a[others, step] * b[step]
        a[others] -= np.outer(a[others, step], a[step])
        step += 1
    contradiction = np.abs(b[step:]).max(initial=0.0) > 1e-5 * max(scale, float(np.abs(right).max(initial=0)))
    return unknowns[:step], unknowns[step:], a[:step, step:], None if contradiction else b[:step]
