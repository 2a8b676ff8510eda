"""The labels of the rows of two local batches, once these are told apart."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.bounded_integers import bounded_integers, equal_rows


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
    z, membership = _checked(z, membership, beta_sum)
    if second_labels is None:
        membership = np.zeros_like(membership)
    distinct, first, group, sizes = _by_batch(z, membership)
    traced = distinct.any(1)
    matrix, right = distinct[traced].T, np.asarray(beta_sum).astype(np.int64)
    if second_labels is not None:
        alpha_2 = z[membership == 0].T @ z[membership == 0]
        early = alpha_2 @ (distinct * first[:, None])[traced].T
        matrix, right = np.vstack([matrix, early]), np.append(right, np.asarray(second_labels).astype(np.int64))
    positive = right + matrix @ sizes[traced]  # y = 2 p - 1: M (2 p - size) = right for counts p of positives
    if (positive % 2).any():
        return Labels(refusal="no labels of these rows have such sums: their parity is another")

    def fits(counts: np.ndarray) -> bool:
        return np.array_equal(2 * (matrix @ counts), positive)

    found, complete = bounded_integers(matrix, positive // 2, sizes[traced], fits, most)
    return _told(found, complete, group, sizes, traced, most)


def labels_pushed(
    z: np.ndarray,
    membership: np.ndarray,
    eta: np.ndarray,
    rate: float,
    *,
    tolerance: float = 1e-6,
    most: int = 4096,
) -> Labels:
    """The labels straight from eta: for rates that hide beta_sum, but not the batches.

        2/rate eta = (I - rate/4 alpha_2) Z_1^T y_1 + Z_2^T y_2,   y in {-1, +1}

    d equations for the rows of both batches; where they leave some open, these are tried, up to `most`. eta: (d,), of
    `recover_map`; rate: of summed gradients, rate / m for mean ones. tolerance: absolute, of 2/rate eta, for what fits.
    Small rates make both batches' equations the same: `labels_apart` is for them. Otherwise as there.
    """
    z, membership = _checked(z, membership, eta)
    distinct, first, group, sizes = _by_batch(z, membership)
    traced = distinct.any(1)
    alpha_2 = z[membership == 0].T @ z[membership == 0]
    later = np.eye(z.shape[1]) - rate / 4 * alpha_2
    matrix = np.where(first[traced], later @ distinct[traced].T, distinct[traced].T)
    scaled = 2 / rate * np.asarray(eta, dtype=float)

    def fits(counts: np.ndarray) -> bool:
        return bool(np.abs(matrix @ (2 * counts - sizes[traced]) - scaled).max(initial=0.0) <= tolerance)

    found, complete = bounded_integers(matrix, (scaled + matrix @ sizes[traced]) / 2, sizes[traced], fits, most)
    return _told(found, complete, group, sizes, traced, most)


def _checked(z: np.ndarray, membership: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z, membership = np.asarray(z).astype(np.int64), np.asarray(membership).astype(np.int64)
    if z.ndim != 2 or membership.shape != z.shape[:1] or np.shape(right) != z.shape[1:]:
        raise ValueError("rows are (N, d), the membership (N,) and beta (d,)")
    return z, membership


def _by_batch(z: np.ndarray, membership: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of each batch, whether of the first, each row's own among them, and how many there are of each."""
    keyed, group, sizes = equal_rows(np.column_stack([z, membership]))
    return keyed[:, :-1], keyed[:, -1] == 1, group, sizes


def _told(
    found: list[np.ndarray], complete: bool, group: np.ndarray, sizes: np.ndarray, traced: np.ndarray, most: int
) -> Labels:
    if not found:
        why = "no labels of these rows have such sums" if complete else f"none of {most} labellings tried fits"
        return Labels(complete=complete, refusal=why)
    mean = np.zeros(len(sizes))
    mean[traced] = 2 * found[0] / sizes[traced] - 1
    return Labels(mean[group], len(found) == 1 and complete, len(found), complete)
