"""An affine map by least squares from noisy pairs, and the standard errors of its entries."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

_DEVIATIONS = 6.0  # standard errors; a larger error has probability 2e-9
FLOAT64 = 2.0**-53
FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class AffineFit:
    """values = points @ linear + constant, by least squares.

    linear: (d, k) and its standard errors linear_error (d, k); constant: (k,) and constant_error (k,). The errors combine
    the spread of the residual and the `floor`. They are scaled by Student's quantile, so that 6 of them mean the same for
    any number of pairs.
    residual: root mean square, in units of the values. condition: of the centred points with columns of equal length.
    spare: pairs beyond the d + 1 that determine a map; without any the residual is 0 whatever the noise.
    floor_dominates: whether the errors come from rounding of the values and the condition, not from the residual.
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
    spread: float = 0.0
    condition: float | None = None
    floor_dominates: bool = True
    refusal: str | None = None
    inverse: np.ndarray | None = None
    value_error: np.ndarray | None = None


def rounding_unit(thetas: np.ndarray, updates: np.ndarray, unit: float | None = None) -> float:
    """The relative rounding of the messages: 2^-24 if float32 represents either array exactly, else 2^-53; `unit` if given.

    Updates computed from differences of float32 parameters need not be float32 numbers themselves.
    """
    if unit is not None:
        return unit
    single = any(np.array_equal(sent, sent.astype(np.float32)) for sent in (thetas, updates))
    return FLOAT32 if single else FLOAT64


def checked_pairs(points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64. Raises ValueError unless both are (n, d), d >= 1, and finite."""
    points, values = np.asarray(points, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or points.shape != values.shape or points.shape[1] == 0:
        raise ValueError(f"thetas and updates must both be (n, d) with d >= 1, not {points.shape} and {values.shape}")
    if not (np.isfinite(points).all() and np.isfinite(values).all()):
        raise ValueError("thetas and updates must be finite numbers")
    return points, values


def fit_affine(points: np.ndarray, values: np.ndarray, *, floor: float) -> AffineFit:
    """Least squares through the singular values of the centred points, columns scaled to equal length.

    points: (n, d) float64, exact. values: (n, k) float64, each with an absolute rounding error of about `floor`. The fit
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
    if not length.all():
        fixed = np.flatnonzero(length == 0)[:5].tolist()
        return AffineFit(n, spare, refusal=f"the thetas are not affinely independent: coordinates {fixed} never change")
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
    freedom = spare * values.shape[1]
    spread = np.zeros(values.shape[1])
    if freedom:
        each = np.sqrt((residuals**2).sum(0) / spare)
        pooled = float(np.sqrt((residuals**2).sum() / freedom))
        spread = np.maximum(each, pooled) * student_quantile(freedom)
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
        float(spread.max(initial=0.0)),
        condition,
        bool(floor >= spread.max(initial=0.0)),
        inverse=inverse,
        value_error=error,
    )


def student_quantile(freedom: int) -> float:
    """By what to multiply a spread from `freedom` spare values, so that 6 of it are exceeded with probability 2e-9."""
    return float(student.isf(1e-9, freedom)) / _DEVIATIONS


def fit_shared(points: np.ndarray, values: np.ndarray, shared: np.ndarray, *, floor: float) -> AffineFit:
    """As `fit_affine`, but each coordinate of the values from the rounds in which it was shared. shared: (n, k) bool.

    rounds, spare: of the coordinate with the fewest; condition: the worst; residual: over all. All points are known.
    """
    fits = [fit_affine(points[sent], values[sent, k : k + 1], floor=floor) for k, sent in enumerate(shared.T)]
    rounds, spare = min(fit.rounds for fit in fits), min(fit.spare for fit in fits)
    if refused := [k for k, fit in enumerate(fits) if fit.refusal]:
        first = refused[0]
        return AffineFit(
            rounds, spare, condition=fits[first].condition, refusal=f"coordinate {first}: {fits[first].refusal}"
        )
    squares = sum(fit.residual**2 * fit.rounds for fit in fits) / sum(fit.rounds for fit in fits)
    return AffineFit(
        rounds,
        spare,
        np.hstack([fit.linear for fit in fits]),
        np.concatenate([fit.constant for fit in fits]),
        np.hstack([fit.linear_error for fit in fits]),
        np.concatenate([fit.constant_error for fit in fits]),
        float(np.sqrt(squares)),
        max(fit.spread for fit in fits),
        max(fit.condition for fit in fits),
        all(fit.floor_dominates for fit in fits),
    )


def chance_limit(entries: int, tries: int = 1) -> float:
    """The distance r to an integer that `entries` random numbers all stay within with probability 10^-6 / `tries` or less.

    (2 r)^entries <= 1e-6 / tries,  and r <= 5/16 for any number of entries
    """
    return min(5 / 16, 0.5 * (1e-6 / tries) ** (1 / max(entries, 1)))
