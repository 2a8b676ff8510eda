"""alpha and beta from updates of which only some coordinates were sent: row i from the rounds that sent coordinate i."""

from dataclasses import replace

import numpy as np

from vflbench.attacks.batch_reconstruction.recovery.directions import DirectionsFit, fit_directions
from vflbench.attacks.batch_reconstruction.recovery.least_squares import (
    SAFE_ERROR,
    RecoveredSums,
    known_columns,
    round_sums,
    rounding_floor,
    unrounded_sums,
)
from vflbench.messages.facts import Schema


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
    best: DirectionsFit | None = None
    for i in range(d):
        sent = shared[:, i]
        if not sent.any():
            continue
        floor = rounding_floor(thetas[sent], updates[sent], rate, None)
        fit = fit_directions(thetas[sent], -4 / rate * updates[sent][:, [i]], floor=floor, known=known)
        if fit.fit.refusal or not fit.determined[i]:
            continue
        linear[:, i], linear_error[:, i] = fit.linear[:, 0], fit.linear_error[:, 0]
        constant[i], constant_error[i] = fit.constant[0], fit.constant_error[0]
        if best is None or fit.fit.condition > best.fit.condition:
            best = fit
    known_rows = np.maximum(np.diagonal(linear_error), constant_error / 2) <= SAFE_ERROR
    kept = np.flatnonzero(known_rows & np.isfinite(np.diagonal(linear)) & np.isfinite(constant))
    kept = _all_pairs(linear_error, kept)
    if best is None or not len(kept):
        why = f"no coordinate was shared often enough: its row of alpha needs {d + 1} rounds with it"
        return RecoveredSums(n, rows=rows, refusal=why)
    determined = np.isin(np.arange(d), kept)
    linear[:, ~determined], linear_error[:, ~determined] = np.nan, np.nan
    whole = DirectionsFit(
        replace(best.fit, rounds=n), linear, constant, linear_error, constant_error, determined
    )
    return round_sums(unrounded_sums(whole, rows, schema), whole, updates, schema)


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
