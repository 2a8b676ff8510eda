"""What updates determine of alpha and beta where the models stay in a subspace: nothing beyond it is taken for granted."""

from dataclasses import dataclass, field

import numpy as np

from vflbench.attacks.batch_reconstruction.recovery.affine import AffineFit, fit_affine

_DIRECTION, _NO_DIRECTION = 1e-8, 1e-13
"""Singular values, relative to the largest: at least this for a direction of the points, at most that for none."""
_NOTHING = 1e-9  # length of a rest of a unit vector that is rounding
_LARGEST_BOUND = 1 / 4  # of an entry's error by columns that are equal up to rounding


@dataclass(frozen=True)
class KnownColumns:
    """Facts about the columns of a batch X that hold whatever the updates are.

    null: (d, z), directions with X v = 0 for each v; ones: (d,) with X u = 1, or None; rows: |X u|^2 = m, or None; binary:
    (d,) bool, the columns that hold only 0 and 1. One-hot groups have equal sums, so their differences are null directions.
    """

    null: np.ndarray
    binary: np.ndarray
    ones: np.ndarray | None = None
    rows: float | None = None

    @classmethod
    def nothing(cls, d: int) -> "KnownColumns":
        return cls(np.zeros((d, 0)), np.zeros(d, dtype=bool))


@dataclass(frozen=True)
class DirectionsFit:
    """alpha and beta by rows, nan where they are not determined.

    linear: (d, k), row i the products of column i with the k coordinates of the values; constant: (k,); linear_error and
    constant_error: their standard errors. determined: (d,) bool, the rows that are known. fit: of the directions that the
    points took, with its condition, residual and refusal.
    """

    fit: AffineFit
    linear: np.ndarray = field(repr=False)
    constant: np.ndarray = field(repr=False)
    linear_error: np.ndarray = field(repr=False)
    constant_error: np.ndarray = field(repr=False)
    determined: np.ndarray = field(repr=False)


def fit_directions(
    points: np.ndarray, values: np.ndarray, *, floor: float, known: KnownColumns, nothing_beyond: bool = False
) -> DirectionsFit:
    """values = points @ linear + constant, linear = alpha^T, as far as the points determine it.

    Points p + G s, with G (d, r) an orthonormal basis of the directions that they took, give alpha G and alpha p - 2 beta,
    and no more: alpha + N and beta + N p / 2 fit as well, for every symmetric N with N G = 0. So entry ij of alpha is
    determined if, and only if, e_i or e_j lies in span(G): N = P M P with the projection P across G, and N_ij = 0 for all M
    only if P e_i = 0 or P e_j = 0. A row that the models never moved along may hold anything.

    Null directions v of the data extend the span, because alpha v = 0. With X u = 1, a binary column has sum x = sum x^2, so
    alpha_jj = alpha_j.u is known if u is in the span. The rest p = P e_j then has the squared length
    |X p|^2 = alpha_jj - (e_j + p)^T alpha (e_j - p). If it is 0, p is a null direction. If it is only small, entry kj is off
    by |x_k| |X p| at most, which is added to the errors (an eighth of it: 8 errors are what a true value may be off). The
    rest of u itself is such a direction if |X u|^2 = m is reached within the span.

    points: (n, d), values: (n, k). floor: absolute rounding error of the values. nothing_beyond: assume that no row of the
    data has a part across the span, so that everything is determined. The constant is determined where p = 0, or, with
    k = d, where row i is.
    """
    n, d = points.shape
    if n < 2:
        return all_determined(AffineFit(n, n - d - 1, refusal=f"too few rounds: there are {n}"), d)
    null = _orthonormal(known.null)
    taken = _directions(points, null)
    if taken.shape[1] == d:
        return all_determined(fit_affine(points, values, floor=floor), d)
    if not taken.shape[1]:
        return all_determined(AffineFit(n, n - 1, refusal=f"the models of all {n} rounds are the same"), d)
    fit = fit_affine(points @ taken, values, floor=floor)
    if fit.refusal:
        return all_determined(fit, d)
    rest = np.eye(d) - taken @ taken.T - null @ null.T
    # Movements that were too small for a direction are errors of the values.
    small = np.abs((points - points.mean(axis=0)) @ rest).max() * np.abs(fit.linear).max() * np.sqrt(d)
    fit = fit_affine(points @ taken, values, floor=floor + small)
    if nothing_beyond:
        whole = np.ones(d, dtype=bool)
        return DirectionsFit(fit, taken @ fit.linear, fit.constant, _error(taken, fit), fit.constant_error, whole)
    bound = np.zeros((d, values.shape[1]))
    determined = np.linalg.norm(rest, axis=0) <= _NOTHING
    if known.ones is not None and values.shape[1] == d:
        bound = _bound_of_rests(fit, taken, rest, known)
        determined |= (bound <= _LARGEST_BOUND)[:, known.binary].all(axis=1)
    linear, error = taken @ fit.linear, _error(taken, fit) + np.where(determined[:, None], bound, 0) / 8
    linear[~determined], error[~determined] = np.nan, np.nan
    mean = points.mean(axis=0)
    across = mean - taken @ (taken.T @ mean) - null @ (null.T @ mean)
    constant, constant_error = fit.constant.copy(), fit.constant_error.copy()
    if np.abs(across).max() > _NO_DIRECTION * np.abs(points).max():
        if values.shape[1] == d:
            constant[determined] -= linear[determined] @ across
            constant_error[determined] += error[determined] @ np.abs(across)
            constant[~determined], constant_error[~determined] = np.nan, np.nan
        else:
            constant[:], constant_error[:] = np.nan, np.nan
    return DirectionsFit(fit, linear, constant, error, constant_error, determined)


def all_determined(fit: AffineFit, d: int) -> DirectionsFit:
    """A fit with all d directions, or, if it refused, with none."""
    if fit.refusal:
        matrix, vector = np.full((d, d), np.nan), np.full(d, np.nan)
        return DirectionsFit(fit, matrix, vector, matrix, vector, np.zeros(d, dtype=bool))
    return DirectionsFit(fit, fit.linear, fit.constant, fit.linear_error, fit.constant_error, np.ones(d, dtype=bool))


def _orthonormal(vectors: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of the columns."""
    if not vectors.shape[1]:
        return vectors
    u, singular, _ = np.linalg.svd(vectors, full_matrices=False)
    return u[:, singular > _NOTHING * singular.max()]


def _directions(points: np.ndarray, null: np.ndarray) -> np.ndarray:
    """(d, r) orthonormal and across `null`: the directions that the points take; all of them if it is not clear which."""
    d = points.shape[1]
    if null.shape[1]:
        u, _, _ = np.linalg.svd(null, full_matrices=True)
        complement = u[:, null.shape[1] :]
    else:
        complement = np.eye(d)
    if not complement.shape[1]:
        return complement
    centred = (points - points.mean(axis=0)) @ complement
    _, singular, vt = np.linalg.svd(centred, full_matrices=False)
    if not singular.max(initial=0.0):
        return complement[:, :0]
    taken = singular >= _DIRECTION * singular[0]
    if (taken.all() and len(singular) == complement.shape[1]) or (singular[~taken] > _NO_DIRECTION * singular[0]).any():
        return complement
    return complement @ vt[taken].T


def _error(directions: np.ndarray, fit: AffineFit) -> np.ndarray:
    """(n, k): standard errors of directions (n, r) @ linear."""
    return np.outer(np.linalg.norm(directions @ fit.inverse, axis=1), fit.value_error)


def _bound_of_rests(fit: AffineFit, taken: np.ndarray, rest: np.ndarray, known: KnownColumns) -> np.ndarray:
    """(d, d): how far alpha_jk may be from the product of column k with the part of e_j in the span. inf if unknown.

    It is |x_k| |X p| for a binary column j with rest p, and follows for the others if their rest is a sum of such.
    """
    d = len(rest)
    of_taken = (taken @ fit.linear).T  # (d, d): column j is alpha times the part of e_j in the span
    error = _error(taken, fit).T
    squares = of_taken @ known.ones  # alpha_kk of binary columns k
    squares_error = _error((taken.T @ known.ones)[None], fit)[0]
    ones_rest = rest @ known.ones
    if np.linalg.norm(ones_rest) > _NOTHING * np.sqrt(d):
        if known.rows is None:
            return np.full((d, d), np.inf)
        most = known.rows - (known.ones + ones_rest) @ squares + 8 * np.abs(known.ones + ones_rest) @ squares_error
        squares_error = squares_error + np.sqrt(max(most, 0.0) * known.rows) / 8
    mirrored = np.eye(d) + rest  # columns e_j + p
    length = squares - np.einsum("kj,kj->j", mirrored, of_taken)
    length_error = squares_error + np.einsum("kj,kj->j", np.abs(mirrored), error)
    most = np.sqrt(np.maximum(length, 0) + 8 * length_error)  # |X p|
    own = np.where(known.binary & (np.linalg.norm(rest, axis=0) > _NOTHING), most, np.inf)
    column = np.sqrt(np.maximum(squares, 0) + 8 * squares_error)  # |x_k|
    column = np.where(known.binary, column, column.max(initial=1.0, where=known.binary))
    bound = np.outer(own, column)
    small = np.isfinite(own) & (np.sqrt(d) * own * column[known.binary].max(initial=0.0) <= _LARGEST_BOUND)
    if small.any():
        shares = np.linalg.lstsq(rest[:, small], rest, rcond=1e-6)[0]
        inside = np.linalg.norm(rest[:, small] @ shares - rest, axis=0) <= _NOTHING
        sums = np.abs(shares).T @ own[small]
        bound[inside] = np.minimum(bound[inside], np.outer(sums[inside], column))
    return np.where(np.linalg.norm(rest, axis=0)[:, None] <= _NOTHING, 0.0, bound)
