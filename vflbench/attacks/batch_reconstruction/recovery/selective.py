"""alpha and beta from updates of which only some coordinates were sent: row i from the rounds that sent coordinate i."""

from dataclasses import replace

import numpy as np

from vflbench.attacks.batch_reconstruction.recovery.affine import AffineFit, student_quantile
from vflbench.attacks.batch_reconstruction.recovery.directions import DirectionsFit, fit_directions
from vflbench.attacks.batch_reconstruction.recovery.least_squares import known_columns, rounding_floor
from vflbench.attacks.batch_reconstruction.recovery.rounding import (
    SAFE_ERROR,
    RecoveredSums,
    round_sums,
    unrounded_sums,
)
from vflbench.messages.rules import Schema


def selective_sums(
    thetas: np.ndarray,
    updates: np.ndarray,
    shared: np.ndarray,
    *,
    rate: float,
    rows: int,
    schema: Schema | None = None,
) -> RecoveredSums:
    """alpha and beta of the columns whose coordinates were shared often enough.

    thetas, updates: (n, d); shared: (n, d) bool, the coordinates of each update that were sent. rate, rows, schema: as in
    `least_squares`. A column is kept if its row of alpha is known, with a standard error that allows rounding. All kept
    entries must then be integers, within 8 standard errors and within the distance at which random numbers pass with
    probability 1e-6: few entries must be nearer than many. The columns are chosen before any entry is compared.
    """
    n, d = thetas.shape
    known = known_columns(schema, d)
    linear, linear_error = np.full((d, d), np.nan), np.full((d, d), np.inf)
    constant, constant_error = np.full(d, np.nan), np.full(d, np.inf)
    fits: dict[int, DirectionsFit] = {}
    for i in range(d):
        sent = shared[:, i]
        if not sent.any():
            continue
        floor = rounding_floor(thetas[sent], updates[sent], rate, None, rows=rows)
        fit = fit_directions(thetas[sent], -4 / rate * updates[sent][:, [i]], floor=floor, known=known)
        if not fit.fit.refusal and fit.determined[i]:
            fits[i] = fit
    errors = _pooled_errors([fit.fit for fit in fits.values()])
    for (i, fit), ratio in zip(fits.items(), errors, strict=True):
        linear[:, i], linear_error[:, i] = fit.linear[:, 0], fit.linear_error[:, 0] * ratio
        constant[i], constant_error[i] = fit.constant[0], fit.constant_error[0] * ratio
    known_rows = np.maximum(np.diagonal(linear_error), constant_error / 2) <= SAFE_ERROR
    kept = np.flatnonzero(known_rows & np.isfinite(np.diagonal(linear)) & np.isfinite(constant))
    kept = _all_pairs(linear_error, kept)
    if not len(kept):
        why = f"no coordinate was shared often enough: its row of alpha needs {d + 1} rounds with it"
        return RecoveredSums(n, rows=rows, refusal=why)
    determined = np.isin(np.arange(d), kept)
    linear[:, ~determined], linear_error[:, ~determined] = np.nan, np.nan
    worst = max((fits[i].fit for i in kept.tolist()), key=lambda fit: fit.condition)
    whole = DirectionsFit(replace(worst, rounds=n), linear, constant, linear_error, constant_error, determined)
    return round_sums(unrounded_sums(whole, rows, schema), whole, updates, schema)


def _pooled_errors(fits: list[AffineFit]) -> list[float]:
    """By what to multiply the standard errors of each fit, of one coordinate, for the noise that all of them show together.

    A fit with few spare pairs cannot tell its noise alone. As in `fit_affine`, the noise of a coordinate is the larger one
    of its own and the pooled one.
    """
    freedom = sum(fit.spare for fit in fits)
    if not freedom:
        return [1.0] * len(fits)
    squares = [fit.residual**2 * fit.rounds for fit in fits]
    pooled = np.sqrt(sum(squares) / freedom)
    quantile = student_quantile(freedom)
    ratios = []
    for fit, square in zip(fits, squares, strict=True):
        own = np.sqrt(square / fit.spare) if fit.spare else 0.0
        before = float(fit.value_error[0])
        floor = np.sqrt(max(before**2 - fit.spread**2, 0.0))
        ratios.append(float(np.hypot(max(own, pooled) * quantile, floor)) / before if before else 1.0)
    return ratios


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
