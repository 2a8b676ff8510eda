"""alpha and beta of one batch in integers, by least squares: from what the rounds determine, or the reason why not."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import null_space
from scipy.stats import t as student

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.messages.facts import Schema

_DEVIATIONS = 6.0  # standard errors; a larger error has probability 2e-9
FLOAT64 = 2.0**-53
FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class AffineFit:
    """values = points @ linear + constant, by least squares.

    linear: (d, k) and its standard errors linear_error (d, k); constant: (k,) and constant_error (k,); nan where they are
    not determined. determined: (d,) bool, the rows of linear that are known. The errors combine the spread of the residual
    and the `floor`. They are scaled by Student's quantile for the spare values, so that 6 of them are exceeded with
    probability 2e-9 for any number of pairs.
    residual: root mean square, in units of the values. condition: of the centred points with columns of equal length.
    spare: pairs beyond the d + 1 that determine a map; without any the residual is 0 whatever the noise.
    inverse: (d, d), and value_error: (k,); the standard error of (v @ linear)_k is |v @ inverse| value_error_k.
    refusal: why there is no map, or None. The other fields are then None, except rounds, spare and (if any) condition.
    """

    rounds: int
    spare: int
    linear: np.ndarray | None = None
    constant: np.ndarray | None = None
    linear_error: np.ndarray | None = None
    constant_error: np.ndarray | None = None
    residual: float | None = None
    condition: float | None = None
    refusal: str | None = None
    inverse: np.ndarray | None = None
    value_error: np.ndarray | None = None
    determined: np.ndarray | None = None


def rounding_unit(thetas: np.ndarray, updates: np.ndarray) -> float:
    """The relative rounding of the messages: 2^-24 if float32 represents either array exactly, else 2^-53.

    Updates computed from differences of float32 parameters need not be float32 numbers themselves.
    """
    single = any(np.array_equal(sent, sent.astype(np.float32)) for sent in (thetas, updates))
    return FLOAT32 if single else FLOAT64


_Noise = tuple[float, int]
"""A root mean square of residuals, and from how many spare values."""


def fit_affine(points: np.ndarray, values: np.ndarray, *, floor: float, noise: _Noise | None = None) -> AffineFit:
    """Least squares through the singular values of the centred points, columns scaled to equal length.

    points: (n, d) float64, exact. values: (n, k) float64, each with an absolute rounding error of about `floor`. noise: of
    other fits too, where one alone can't tell it; left out, of all columns of the values. The fit
    needs d + 1 affinely independent points: d of them leave a rank-one freedom, L + n w^T and c - (n.p) w^T, with n the
    normal of their hyperplane. `directions.fit_directions` finds what points in a subspace determine.
    """
    n, d = points.shape
    spare = n - d - 1
    if spare < 0:
        return AffineFit(n, spare, refusal=f"too few rounds: {d} coordinates need {d + 1} pairs, there are {n}")
    centre = points.mean(0)
    centred = points - centre
    length = np.linalg.norm(centred, axis=0)
    length[length == 0] = 1
    u, singular, vt = np.linalg.svd(centred / length, full_matrices=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] else float("inf")
    if singular[-1] <= singular[0] * max(n, d) * 2 * FLOAT64:
        why = f"the thetas of {n} rounds are not affinely independent: the condition of the design is {condition:.1e}"
        return AffineFit(n, spare, condition=condition, refusal=why)
    inverse = vt.T / singular / length[:, None]  # (d, d): points' pseudo-inverse is inverse @ u^T
    mean = values.mean(0)
    linear = inverse @ (u.T @ (values - mean))
    constant = mean - centre @ linear
    residuals = values - points @ linear - constant
    residual = float(np.sqrt(np.mean(residuals**2)))
    # The points are exact, but the fit rounds its products, as if each point were off by half a unit in the last place.
    floor = floor + FLOAT64 * float(np.abs(points).max() * np.abs(linear).sum(0).max() + np.abs(constant).max())
    spread = np.zeros(values.shape[1])
    squares, freedom = (residuals**2).sum(0), spare * values.shape[1]
    if noise or freedom:
        pooled, freedom = noise or (float(np.sqrt(squares.sum() / freedom)), freedom)
        each = np.sqrt(squares / spare) if spare else np.zeros(len(squares))
        spread = np.maximum(each, pooled) * float(student.isf(1e-9, freedom)) / _DEVIATIONS
    error = np.hypot(spread, floor)
    slope = np.linalg.norm(inverse, axis=1)
    offset = np.sqrt(1 / n + np.linalg.norm(centre @ inverse) ** 2)
    return AffineFit(
        n,
        spare,
        linear,
        constant,
        np.outer(slope, error),
        offset * error,
        residual,
        condition,
        inverse=inverse,
        value_error=error,
        determined=np.ones(d, dtype=bool),
    )


def chance_limit(entries: int) -> float:
    """The distance r to an integer that `entries` random numbers all stay within with probability 10^-6 or less.

    (2 r)^entries <= 1e-6,  and r <= 5/16 for any number of entries
    """
    return min(5 / 16, 0.5 * 1e-6 ** (1 / max(entries, 1)))


_DIRECTION, _NO_DIRECTION = 1e-8, 1e-13
"""Singular values, relative to the largest: at least this for a direction of the points, at most that for none."""
_NOTHING = 1e-9  # length of a rest of a unit vector that is rounding
_LARGEST_BOUND = 1 / 4  # of an entry's error by columns that are equal up to rounding


def groups_of(schema: Schema) -> tuple[tuple[int, int], ...]:
    """First column and size of each group of columns of which every row has exactly one 1, the intercept among them."""
    return (*([(0, 1)] if schema.intercept else []), *schema.one_hot)


def fit_directions(
    points: np.ndarray,
    values: np.ndarray,
    *,
    floor: float,
    schema: Schema,
    rows: int,
    noise: _Noise | None = None,
    nothing_beyond: bool = False,
) -> AffineFit:
    """values = points @ linear + constant, linear = alpha^T, as far as the points determine it. inverse: of the directions.

    Points p + G s, with G (d, r) an orthonormal basis of the directions that they took, give alpha G and alpha p - 2 beta,
    and no more: alpha + N and beta + N p / 2 fit as well, for every symmetric N with N G = 0. So entry ij of alpha is
    determined if, and only if, e_i or e_j lies in span(G): N = P M P with the projection P across G, and N_ij = 0 for all M
    only if P e_i = 0 or P e_j = 0. A row that the models never moved along may hold anything.

    What the schema says holds for any batch. One-hot groups have equal sums: their differences are null directions v with
    X v = 0, which extend the span, because alpha v = 0. With X u = 1, a binary column has sum x = sum x^2, so
    alpha_jj = alpha_j.u is known if u is in the span. The rest p = P e_j then has the squared length
    |X p|^2 = alpha_jj - (e_j + p)^T alpha (e_j - p). If it is 0, p is a null direction. If it is only small, entry kj is off
    by |x_k| |X p| at most, which is added to the errors (an eighth of it: 8 errors are what a true value may be off). The
    rest of u itself is such a direction if |X u|^2 = m is reached within the span. rows: m.

    points: (n, d), values: (n, k). floor: absolute rounding error of the values. noise: as in `fit_affine`. nothing_beyond:
    assume that no row of the data has a part across the span, so that everything is determined. The constant is determined
    where p = 0, or, with k = d, where row i is.
    """
    n, d = points.shape
    if n < 2:
        return AffineFit(n, n - d - 1, refusal=f"too few rounds: there are {n}")
    groups = groups_of(schema)
    sums = np.array([(np.arange(d) >= first) & (np.arange(d) < first + size) for first, size in groups], dtype=float)
    complement = null_space(sums[1:] - sums[:1]) if len(groups) > 1 else np.eye(d)
    taken = complement @ _directions((points - points.mean(axis=0)) @ complement)
    if taken.shape[1] == d:
        return fit_affine(points, values, floor=floor, noise=noise)
    if not taken.shape[1]:
        return AffineFit(n, n - 1, refusal=f"the models of all {n} rounds are the same")
    fit = fit_affine(points @ taken, values, floor=floor)
    if fit.refusal:
        return fit
    rest = complement @ complement.T - taken @ taken.T
    # Movements that were too small for a direction are errors of the values.
    small = np.abs((points - points.mean(axis=0)) @ rest).max() * np.abs(fit.linear).max() * np.sqrt(d)
    fit = fit_affine(points @ taken, values, floor=floor + small, noise=noise)
    if nothing_beyond:
        whole = np.ones(d, dtype=bool)
        return replace(fit, linear=taken @ fit.linear, linear_error=_error(taken, fit), determined=whole)
    determined = np.linalg.norm(rest, axis=0) <= _NOTHING
    linear, error = taken @ fit.linear, _error(taken, fit)
    if groups and values.shape[1] == d:
        binary = np.array(schema.binary)
        bound = np.where(determined[:, None], 0.0, _bound_of_rests(fit, taken, rest, sums[0], binary, rows))
        determined |= (bound[:, binary] <= _LARGEST_BOUND).all(axis=1)
        error = error + np.where(determined[:, None], bound, 0) / 8
    linear[~determined], error[~determined] = np.nan, np.nan
    across = rest @ points.mean(axis=0)
    constant, constant_error = fit.constant.copy(), fit.constant_error.copy()
    if np.abs(across).max() > _NO_DIRECTION * np.abs(points).max():
        if values.shape[1] == d:
            constant[determined] -= linear[determined] @ across
            constant_error[determined] += error[determined] @ np.abs(across)
            constant[~determined], constant_error[~determined] = np.nan, np.nan
        else:
            constant[:], constant_error[:] = np.nan, np.nan
    return replace(
        fit,
        linear=linear,
        constant=constant,
        linear_error=error,
        constant_error=constant_error,
        determined=determined,
    )


def _directions(centred: np.ndarray) -> np.ndarray:
    """(d, r) orthonormal: the directions that points about their mean take; all of them if it is not clear which."""
    _, singular, vt = np.linalg.svd(centred, full_matrices=False)
    taken = singular >= _DIRECTION * singular.max(initial=0.0)
    if not singular.any():
        return np.zeros((centred.shape[1], 0))
    whole = taken.all() and len(singular) == centred.shape[1]
    return np.eye(centred.shape[1]) if whole or (singular[~taken] > _NO_DIRECTION * singular[0]).any() else vt[taken].T


def _error(directions: np.ndarray, fit: AffineFit) -> np.ndarray:
    """(n, k): standard errors of directions (n, r) @ linear."""
    return np.outer(np.linalg.norm(directions @ fit.inverse, axis=1), fit.value_error)


@np.errstate(invalid="ignore")  # 0 x inf: unknown
def _bound_of_rests(
    fit: AffineFit, taken: np.ndarray, rest: np.ndarray, ones: np.ndarray, binary: np.ndarray, rows: int
) -> np.ndarray:
    """(d, d): |x_k| |X p|, how far alpha_jk may be from the product of column k with the part of e_j in the span; inf of
    columns j that are not binary. ones: (d,) with X u = 1.
    """
    of_taken, error = (taken @ fit.linear).T, _error(taken, fit).T  # column j: alpha times the part of e_j in the span
    squares, squares_error = of_taken @ ones, _error((taken.T @ ones)[None], fit)[0]  # alpha_kk of binary columns k
    mirrored, mirrored_ones = np.eye(len(rest)) + rest, ones + rest @ ones  # columns e_j + p
    if np.linalg.norm(rest @ ones) > _NOTHING * np.sqrt(len(rest)):
        most = rows - mirrored_ones @ squares + 8 * np.abs(mirrored_ones) @ squares_error
        squares_error = squares_error + np.sqrt(max(most, 0.0) * rows) / 8
    length = squares - np.einsum("kj,kj->j", mirrored, of_taken)
    length_error = squares_error + np.einsum("kj,kj->j", np.abs(mirrored), error)
    across = np.full(len(rest), np.inf)
    across[binary] = np.sqrt(np.maximum(length, 0) + 8 * length_error)[binary]
    columns = np.sqrt(np.maximum(squares, 0) + 8 * squares_error)
    columns[np.setdiff1d(np.arange(len(rest)), binary)] = columns[binary].max(initial=1.0)
    return np.outer(across, columns)


_CAUSES = "noise, clipping, several steps in one update or a batch that changes between rounds"
_NEGLIGIBLE = 1e-6  # distance to an integer that is allowed whatever the error
SAFE_ERROR = 1 / 16  # the largest standard error for safe rounding: 1/2 is eight of them away


@dataclass(frozen=True)
class RecoveredSums:
    """alpha and beta of one batch, or the reason why they are not known.

    alpha: (k, k) int64, beta: (k,) int64, of the k columns `columns`, None with a refusal. real_alpha, real_beta: (d, d) and
    (d,), unrounded, float64, of all columns, alpha symmetrised, nan where nothing is determined. alpha_error, beta_error:
    their standard errors. columns: those that are determined and binary by the schema. undetermined: the columns whose own
    sums are not determined. condition: of the design. rounds: pairs used. residual: root mean square of
    4 g - alpha theta + 2 beta, unrounded. refusal: why there are no integers, one sentence, or None.
    """

    rounds: int
    alpha: np.ndarray | None = None
    beta: np.ndarray | None = None
    real_alpha: np.ndarray | None = None
    real_beta: np.ndarray | None = None
    alpha_error: np.ndarray | None = None
    beta_error: np.ndarray | None = None
    condition: float | None = None
    residual: float | None = None
    columns: np.ndarray | None = None
    undetermined: tuple[int, ...] = ()
    refusal: str | None = None


def unrounded_sums(fit: AffineFit, schema: Schema) -> RecoveredSums:
    one, other = fit.linear, fit.linear.T  # each may lack what the other has
    both = np.isfinite(one) & np.isfinite(other)
    alpha = np.where(both, (one + other) / 2, np.where(np.isfinite(one), one, other))
    one_error, other_error = fit.linear_error, fit.linear_error.T
    error = np.where(np.isfinite(one), one_error, other_error)
    return RecoveredSums(
        fit.rounds,
        real_alpha=alpha,
        real_beta=-fit.constant / 2,
        alpha_error=np.where(both, np.hypot(one_error, other_error) / 2, error),
        beta_error=fit.constant_error / 2,
        condition=fit.condition,
        residual=fit.residual,
        columns=np.intersect1d(np.flatnonzero(fit.determined), schema.binary),
        undetermined=tuple(np.flatnonzero(~fit.determined).tolist()),
    )


def round_sums(fit: AffineFit, rows: int, schema: Schema) -> RecoveredSums:
    """The integers of the columns that can be rounded, or a refusal. rows: m."""
    recovered = unrounded_sums(fit, schema)
    if not len(recovered.columns):
        return replace(recovered, refusal="none of the columns whose sums are determined is binary by the schema")
    why = _why_unsafe(fit, recovered) or _why_not_integral(recovered)
    if why:
        return replace(recovered, refusal=why)
    block = np.ix_(recovered.columns, recovered.columns)
    alpha = np.rint(recovered.real_alpha[block]).astype(np.int64)
    beta = np.rint(recovered.real_beta[recovered.columns]).astype(np.int64)
    ones = np.diagonal(alpha)
    for first, size in groups_of(schema):
        group = np.flatnonzero((recovered.columns >= first) & (recovered.columns < first + size))
        if len(group) == size and (ones[group].sum() != rows or (alpha[group].sum(axis=0) != ones).any()):
            why = f"columns {first} to {first + size - 1} do not have one 1 in each row: noise, or a batch that changes"
            return replace(recovered, refusal=why)
    if why := Gram(alpha, beta, rows).inconsistency():
        return replace(recovered, refusal=f"no batch of binary rows has this alpha and beta: {why}")
    return replace(recovered, alpha=alpha, beta=beta)


def _why_unsafe(fit: AffineFit, recovered: RecoveredSums) -> str | None:
    """Why the fit is too uncertain to be rounded, before a look at the integers."""
    block = np.ix_(recovered.columns, recovered.columns)
    alpha_error, linear = recovered.alpha_error[block], fit.linear[block]
    error = max(alpha_error.max(), recovered.beta_error[recovered.columns].max())
    if not error <= SAFE_ERROR:
        return (
            f"the sums are too uncertain to be rounded: a standard error of {error:.2g} after {fit.rounds} rounds (residual "
            f"{fit.residual:.2g}, condition of the design {fit.condition:.1e}); take more rounds, or it is {_CAUSES}"
        )
    asymmetry = np.abs(linear - linear.T)
    if (asymmetry > 12 * np.maximum(alpha_error, SAFE_ERROR / 2)).any():
        return f"alpha is not symmetric (off by {asymmetry.max():.2g}): {_CAUSES}"
    return None


def _why_not_integral(recovered: RecoveredSums) -> str | None:
    columns = recovered.columns
    upper, block = np.triu_indices(len(columns)), np.ix_(columns, columns)
    entries = np.concatenate([recovered.real_alpha[block][upper], recovered.real_beta[columns]])
    error = np.concatenate([recovered.alpha_error[block][upper], recovered.beta_error[columns]])
    distances, allowed = np.abs(entries - np.rint(entries)), 8 * error + _NEGLIGIBLE
    # The errors alone would accept any values that are noisy enough, chance alone small real numbers of a sparse batch.
    if distances.max() <= chance_limit(len(distances)) and (distances <= allowed).all():
        return None
    off = distances.max(where=distances > allowed, initial=0.0) or distances.max()
    return f"alpha and beta are not integral (one is {off:.2g} off): columns that are not binary, {_CAUSES}"


def least_squares(
    thetas: np.ndarray,
    updates: np.ndarray,
    *,
    rate: float,
    rows: int,
    schema: Schema,
    nothing_beyond: bool = False,
) -> RecoveredSums:
    """alpha and beta by least squares, rounded if that is safe.

        update = -rate g(theta),   4 g = alpha theta - 2 beta

    thetas: (n, d), the parameters; updates: (n, d), the answers to them. All of alpha takes n >= d + 1 affinely independent
    thetas: with d pairs alpha + v v^T and beta + (p.v) v / 2 fit as well, where v is the normal of the thetas' hyperplane
    v.theta = p. Of thetas in a subspace `fit_directions` says which columns are determined; the others are left out.
    rate: the step size of the sender, > 0. rows: m. schema: of the columns; only the binary ones are rounded.
    nothing_beyond: assume that no row has a part in a direction that the thetas did not take.

    A refusal names the problem: few rounds, dependent thetas, sums too uncertain for safe rounding (full batches: the thetas
    lie on a Krylov sequence), noise, clipping, a batch that changes, or columns that are not binary. Noise that
    many rounds average out is not refused.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    values = -4 / rate * updates
    floor = rounding_floor(thetas, updates, rate, rows=rows)
    fit = fit_directions(thetas, values, floor=floor, schema=schema, rows=rows, nothing_beyond=nothing_beyond)
    refusal = fit.refusal or (None if fit.determined.any() else _why_nothing(*thetas.shape))
    if refusal:
        return RecoveredSums(fit.rounds, condition=fit.condition, refusal=refusal)
    return round_sums(fit, rows, schema)


def _why_nothing(n: int, d: int) -> str:
    if n < d + 1:
        return f"too few rounds: {d} coordinates need {d + 1} pairs, there are {n}"
    return f"the thetas of {n} rounds are not affinely independent, and no column's own sums are determined"


def rounding_floor(thetas: np.ndarray, updates: np.ndarray, rate: float, *, rows: int) -> float:
    """The absolute rounding error of 4 g. It is relative to the parameters: updates may be their differences.

    rows: m. The terms -y/2 of the rows are rounded too, also where labels cancel.
    """
    largest = np.abs(thetas).max(initial=0.0) + np.abs(updates).max(initial=0.0) + rate / 2 * rows
    return 4 / rate * 4 * rounding_unit(thetas, updates) * float(largest)


def selective_sums(
    thetas: np.ndarray,
    updates: np.ndarray,
    shared: np.ndarray,
    *,
    rate: float,
    rows: int,
    schema: Schema,
) -> RecoveredSums:
    """alpha and beta of the columns whose coordinates were shared often enough.

    thetas, updates: (n, d); shared: (n, d) bool, the coordinates of each update that were sent. rate, rows, schema: as in
    `least_squares`. A column is kept if its row of alpha is known, with a standard error that allows rounding. All kept
    entries must then be integers, within 8 standard errors and within the distance at which random numbers pass with
    probability 1e-6: few entries must be nearer than many. The columns are chosen before any entry is compared.
    """
    n, d = thetas.shape
    noise: _Noise | None = None
    for _ in range(2):  # the second time with the noise that all coordinates show together
        fits: dict[int, AffineFit] = {}
        for i in np.flatnonzero(shared.any(axis=0)).tolist():
            points, values = thetas[shared[:, i]], updates[shared[:, i]]
            floor = rounding_floor(points, values, rate, rows=rows)
            fit = fit_directions(points, -4 / rate * values[:, [i]], floor=floor, schema=schema, rows=rows, noise=noise)
            if not fit.refusal and fit.determined[i]:
                fits[i] = fit
        freedom = sum(fit.spare for fit in fits.values())
        noise = (np.sqrt(sum(fit.residual**2 * fit.rounds for fit in fits.values()) / freedom), freedom) if freedom else None
    sums: dict[str, Any] = {
        name: np.full((d, d), np.inf if "error" in name else np.nan) for name in ("linear", "linear_error")
    }
    sums |= {name: np.full(d, np.inf if "error" in name else np.nan) for name in ("constant", "constant_error")}
    for i, fit in fits.items():
        for name, columns in sums.items():
            columns[..., i] = getattr(fit, name)[..., 0]
    known_rows = np.maximum(np.diagonal(sums["linear_error"]), sums["constant_error"] / 2) <= SAFE_ERROR
    kept = np.flatnonzero(known_rows & np.isfinite(np.diagonal(sums["linear"])) & np.isfinite(sums["constant"]))
    kept = _all_pairs(sums["linear_error"], kept)
    if not len(kept):
        why = f"no coordinate was shared often enough: its row of alpha needs {d + 1} rounds with it"
        return RecoveredSums(n, refusal=why)
    determined = np.isin(np.arange(d), kept)
    sums["linear"][:, ~determined] = sums["linear_error"][:, ~determined] = np.nan
    worst = max((fits[i] for i in kept.tolist()), key=lambda fit: fit.condition)
    whole = replace(worst, rounds=n, determined=determined, **sums)
    return round_sums(whole, rows, schema)


def _all_pairs(linear_error: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Those of the columns all of whose products with each other are known well enough; the worst are left out first."""
    while len(kept):
        part = linear_error[np.ix_(kept, kept)]
        part = np.fmin(part, part.T)
        bad = ~(part <= SAFE_ERROR)
        if not bad.any():
            break
        kept = np.delete(kept, int(bad.sum(axis=1).argmax()))
    return kept
