"""Bounds on how many rows can be equal: certain, though computed in floats."""

from dataclasses import dataclass

import numpy as np

# The cuts are integers below 2^52, and so is every partial sum of their products with bits and with alpha: floats are exact.
_EXACT = 2.0**52
# No cut needs more precision than this.
_FINEST = 2.0**30
# Covers the rounding of a few hundred float operations on positive numbers.
ROUNDING = 1e-10
_REFINEMENTS = 3


@dataclass(frozen=True)
class Cut:
    """An integer combination of a level's column and the earlier ones, nearly uncorrelated with the earlier cuts.

    vector: (k + 1,) float64 of integers, v. weight: w, so that sum_k w_k (v_k . r)^2 <= 1 / n for n equal rows r. least: at
    full rank, where each row has leverage 1, that sum over all levels is at least the smallest `least`; not if it is <= 0.
    """

    vector: np.ndarray
    weight: float
    least: float


def cuts(gram: np.ndarray) -> list[Cut]:
    """For each column of [1, X] in this order a cut, so that the sums above are near to leverages r^T alpha^-1 r.

    gram: (k, k) int64, the Gram matrix A of these columns. For any integer matrix V, n equal rows r of any batch satisfy

        n (V^T r)(V^T r)^T <= M = V^T A V <= diag(q),   q_k = sum_l |M_kl|,   so n sum_k (v_k . r)^2 / q_k <= 1,

    where <= compares quadratic forms: diag(q) - M is diagonally dominant. So no error in V makes the bound wrong, only weak.
    V is a rounded multiple of the inverse Cholesky factor, for which M is nearly a multiple of I. A V is exact, and M has a
    bound of its error, which is added to q.
    """
    size, largest = len(gram), float(gram.max())
    factor = _inverse_factor(gram.astype(float))
    for _ in range(_REFINEMENTS):
        scale = min(_FINEST, _EXACT / (4 * size * max(largest, 1) * np.abs(factor).max()))
        scale = 2.0 ** np.floor(np.log2(scale))
        vectors = np.rint(factor * scale)
        products, error = _products(gram, vectors)
        if np.abs(products - np.diag(np.diagonal(products))).sum(0).max() < 1e-6 * scale**2:
            break
        correction = np.triu(products) / scale**2
        np.fill_diagonal(correction, (np.diagonal(correction) - 1) / 2)
        factor = factor - factor @ np.clip(correction, -0.5, 0.5)
    magnitude = np.abs(products) + error
    diagonal, beside = np.diagonal(products), magnitude.sum(0) - np.diagonal(magnitude)
    most = (np.diagonal(magnitude) + beside) * (1 + ROUNDING)
    least = (diagonal - np.diagonal(error) - beside) / most - ROUNDING
    return [
        Cut(vectors[: k + 1, k], 1 / most[k] if most[k] > 0 else 0.0, float(least[k]) if most[k] > 0 else 0.0)
        for k in range(size)
    ]


def _inverse_factor(gram: np.ndarray) -> np.ndarray:
    """W, upper triangular, with W^T A W near I, also if A is singular in floats."""
    for damping in (0.0, 1e-12, 1e-9, 1e-6):
        try:
            lower = np.linalg.cholesky(gram + damping * np.trace(gram) * np.eye(len(gram)))
            inverse = np.linalg.inv(lower).T
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(inverse).all():
            return np.triu(inverse)
    return np.diag(1 / np.sqrt(np.maximum(np.diagonal(gram), 1)))


def _products(gram: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M = V^T A V for upper triangular V, and a bound of its error. A V is exact; above the diagonal it nearly vanishes."""
    right = gram.astype(float) @ vectors
    above = np.triu(right)
    upper = np.triu(vectors.T @ above)
    error = np.triu(np.abs(vectors).T @ np.abs(above)) * (4 * len(gram) * np.finfo(float).eps)
    return upper + np.triu(upper, 1).T, error + np.triu(error, 1).T
