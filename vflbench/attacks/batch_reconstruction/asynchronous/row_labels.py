"""The labels of the rows of two local batches, once it is known which row belongs to which."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.bounded_integers import bounded_integers, equal_rows


@dataclass(frozen=True)
class RowLabels:
    """y: (rows,) in [-1, 1], the mean label of the equal rows of a batch, which is all that sums determine; 0 for zero rows.

    unique, count, complete, refusal: as in `RowMembership`.
    """

    y: np.ndarray | None = None
    unique: bool = False
    count: int = 0
    complete: bool = True
    refusal: str | None = None


def labels_from_sums(
    z: np.ndarray,
    membership: np.ndarray,
    beta_sum: np.ndarray,
    second_labels: np.ndarray | None = None,
    *,
    max_tries: int = 4096,
) -> RowLabels:
    """The labels of the rows of two local batches, from sums of labelled rows.

        Z_1^T y_1 + Z_2^T y_2 = beta_sum,   alpha_2 Z_1^T y_1 = second_labels,   y in {-1, +1}

    z: (N, d) of 0 and 1; membership: (N,), 1 for the first batch. beta_sum, second_labels: (d,) int64; without second_labels
    the rows of both batches are treated as one batch. Raises ValueError for wrong shapes.
    """
    z, membership = _checked(z, membership, beta_sum)
    if second_labels is None:
        membership = np.zeros_like(membership)
    distinct, first, group, sizes = _equal_rows_by_batch(z, membership)
    nonzero = np.asarray(distinct.any(axis=1))
    matrix, right = distinct[nonzero].T, np.asarray(beta_sum).astype(np.int64)
    if second_labels is not None:
        alpha_2 = z[membership == 0].T @ z[membership == 0]
        second_matrix = alpha_2 @ (distinct * first[:, None])[nonzero].T
        matrix, right = np.vstack([matrix, second_matrix]), np.append(right, np.asarray(second_labels).astype(np.int64))
    positive = right + matrix @ sizes[nonzero]  # y = 2 p - 1: M (2 p - size) = right for counts p of positives
    if (positive % 2).any():
        return RowLabels(refusal="no labels of these rows have such sums: the parity is wrong")

    def fits(counts: np.ndarray) -> bool:
        return np.array_equal(2 * (matrix @ counts), positive)

    solutions, complete = bounded_integers(matrix, positive // 2, sizes[nonzero], fits, max_tries)
    return _row_labels(solutions, complete, group, sizes, nonzero, max_tries)


def labels_from_eta(
    z: np.ndarray,
    membership: np.ndarray,
    eta: np.ndarray,
    rate: float,
    *,
    tolerance: float = 1e-6,
    max_tries: int = 4096,
) -> RowLabels:
    """The labels directly from eta: for rates that hide beta_sum, but not the batches.

        2/rate eta = (I - rate/4 alpha_2) Z_1^T y_1 + Z_2^T y_2,   y in {-1, +1}

    d equations for the rows of both batches; if they leave some labels free, their values are tried, up to `max_tries`. eta:
    (d,), of `recover_map`; rate: of summed gradients, rate / m for mean ones. tolerance: absolute, of 2/rate eta, for a fit.
    For small rates the equations of both batches coincide: use `labels_from_sums`. Otherwise as there.
    """
    z, membership = _checked(z, membership, eta)
    distinct, first, group, sizes = _equal_rows_by_batch(z, membership)
    nonzero = np.asarray(distinct.any(axis=1))
    alpha_2 = z[membership == 0].T @ z[membership == 0]
    later = np.eye(z.shape[1]) - rate / 4 * alpha_2
    matrix = np.where(first[nonzero], later @ distinct[nonzero].T, distinct[nonzero].T)
    scaled = 2 / rate * np.asarray(eta, dtype=float)

    def fits(counts: np.ndarray) -> bool:
        return bool(np.abs(matrix @ (2 * counts - sizes[nonzero]) - scaled).max(initial=0.0) <= tolerance)

    solutions, complete = bounded_integers(matrix, (scaled + matrix @ sizes[nonzero]) / 2, sizes[nonzero], fits, max_tries)
    return _row_labels(solutions, complete, group, sizes, nonzero, max_tries)


def _checked(z: np.ndarray, membership: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z, membership = np.asarray(z).astype(np.int64), np.asarray(membership).astype(np.int64)
    if z.ndim != 2 or membership.shape != z.shape[:1] or np.shape(right) != z.shape[1:]:
        raise ValueError("rows must be (N, d), the membership (N,) and beta (d,)")
    return z, membership


def _equal_rows_by_batch(z: np.ndarray, membership: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of each batch, whether of the first batch, the index of each row's distinct row, and their sizes."""
    keyed, group, sizes = equal_rows(np.column_stack([z, membership]))
    return keyed[:, :-1], keyed[:, -1] == 1, group, sizes


def _row_labels(
    solutions: list[np.ndarray], complete: bool, group: np.ndarray, sizes: np.ndarray, nonzero: np.ndarray, max_tries: int
) -> RowLabels:
    if not solutions:
        why = "no labels of these rows have such sums" if complete else f"none of {max_tries} labellings fits"
        return RowLabels(complete=complete, refusal=why)
    mean = np.zeros(len(sizes))
    mean[nonzero] = 2 * solutions[0] / sizes[nonzero] - 1
    return RowLabels(mean[group], len(solutions) == 1 and complete, len(solutions), complete)
