"""alpha = X^T X and beta = X^T Y of a private batch by least squares, from parameters and the updates that answer them."""

from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.recovery.affine import checked_pairs, fit_shared, rounding_unit
from vflbench.attacks.batch_reconstruction.recovery.directions import KnownColumns, all_determined, fit_directions
from vflbench.attacks.batch_reconstruction.recovery.rounding import (
    SAFE_ERROR,
    RecoveredSums,
    groups_of,
    inconsistency,
    round_sums,
    unrounded_sums,
    why_unsafe,
    with_batch_size,
)
from vflbench.messages.rules import Schema

__all__ = ["SAFE_ERROR", "RecoveredSums", "Reduction", "inconsistency", "least_squares", "rounding_floor"]

Reduction = Literal["sum", "mean"]


def least_squares(
    thetas: np.ndarray,
    updates: np.ndarray,
    *,
    rate: float,
    reduction: Reduction,
    rows: int | None = None,
    most_rows: int = 4096,
    unit: float | None = None,
    shared: np.ndarray | None = None,
    schema: Schema | None = None,
    nothing_beyond: bool = False,
) -> RecoveredSums:
    """alpha and beta by least squares, rounded if that is safe.

        update = -rate g(theta),   4 g = alpha theta - 2 beta   (sum; for mean the right side over m)

    thetas: (n, d), the parameters; updates: (n, d), the answers to them. All of alpha takes n >= d + 1 affinely independent
    thetas: with d pairs alpha + v v^T and beta + (p.v) v / 2 fit as well, where v is the normal of the thetas' hyperplane
    v.theta = p. Of thetas in a subspace `fit_directions` says which columns are determined; the others are left out.
    rate: the step size of the sender, > 0. rows: m, if known. With `sum` it follows from an intercept or a one-hot group.
    With `mean` and rows None, m is the least integer up to `most_rows` that makes every entry integral and consistent; its
    multiples fit too. unit: relative rounding of the updates, estimated from the values if None. shared: (n, d) bool, the
    coordinates of each update that were sent (selective updates), all if None; each coordinate then needs d + 1 rounds of
    its own. schema: of the columns; only the binary ones are rounded. Without it all are. nothing_beyond: assume that no row
    has a part in a direction that the thetas did not take.

    A refusal names the problem: few rounds, dependent thetas, a design too ill-conditioned for safe rounding (full batches:
    the thetas lie on a Krylov sequence), noise, clipping, a batch that changes, or columns that are not binary. Noise that
    many rounds average out is not refused. Raises ValueError for invalid shapes, sizes or numbers.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    thetas, updates = checked_pairs(thetas, updates)
    check_rate_and_rows(rate, rows)
    values = -4 / rate * updates
    scale = (rows or 1) if reduction == "mean" else 1
    floor = scale * rounding_floor(thetas, updates, rate, unit, rows=rows if reduction == "sum" else 1)
    known = known_columns(schema, thetas.shape[1], rows or (1 if reduction == "mean" else None))
    if shared is None:
        fit = fit_directions(thetas, scale * values, floor=floor, known=known, nothing_beyond=nothing_beyond)
    else:
        shared = np.asarray(shared, dtype=bool)
        if shared.shape != updates.shape:
            raise ValueError(f"`shared` must have the shape of the updates, {updates.shape}, not {shared.shape}")
        fit = all_determined(fit_shared(thetas, scale * values, shared, floor=floor), thetas.shape[1])
    refusal = fit.fit.refusal or (None if fit.determined.any() else _why_nothing(*thetas.shape))
    if refusal:
        return RecoveredSums(fit.fit.rounds, rows=rows, condition=fit.fit.condition, refusal=refusal)
    recovered = unrounded_sums(fit, rows, schema)
    if reduction == "mean" and rows is None and len(recovered.columns):
        return why_unsafe(fit, recovered, updates) or with_batch_size(recovered, most_rows, updates)
    return round_sums(recovered, fit, updates, schema)


def known_columns(schema: Schema | None, d: int, rows: float | None = None) -> KnownColumns:
    """What the schema says of the directions of the data. d: columns. rows: m, in units of alpha."""
    if schema is None:
        return KnownColumns.nothing(d)
    binary = np.zeros(d, dtype=bool)
    binary[list(schema.binary)] = True
    sums = np.zeros((d, 0))
    for first, size in groups_of(schema):
        group = np.zeros((d, 1))
        group[first : first + size] = 1
        sums = np.hstack([sums, group])
    if not sums.shape[1]:
        return KnownColumns(sums, binary)
    return KnownColumns(sums[:, 1:] - sums[:, :1], binary, sums[:, 0], rows)


def _why_nothing(n: int, d: int) -> str:
    if n < d + 1:
        return f"too few rounds: {d} coordinates need {d + 1} pairs, there are {n}"
    return f"the thetas of {n} rounds are not affinely independent, and no column's own sums are determined"


def rounding_floor(
    thetas: np.ndarray, updates: np.ndarray, rate: float, unit: float | None, *, rows: float | None = None
) -> float:
    """The absolute rounding error of 4 g. It is relative to the parameters: updates may be their differences.

    rows: m (1 for mean gradients), if known. The terms -y/2 of the rows are rounded too, also where labels cancel.
    """
    largest = np.abs(thetas).max(initial=0.0) + np.abs(updates).max(initial=0.0) + rate / 2 * (rows or 0)
    return 4 / rate * 4 * rounding_unit(thetas, updates, unit) * float(largest)


def check_rate_and_rows(rate: float, rows: int | None) -> None:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"the rate must be a positive number, not {rate}")
    if rows is not None and rows < 1:
        raise ValueError(f"a batch must have at least one row, not {rows}")
