"""alpha = X^T X and beta = X^T Y of a private batch by least squares, from parameters and the updates that answer them."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.recovery.affine import (
    AffineFit,
    chance_limit,
    checked_pairs,
    fit_shared,
    rounding_unit,
)
from vflbench.attacks.batch_reconstruction.recovery.directions import (
    DirectionsFit,
    KnownColumns,
    all_determined,
    fit_directions,
)
from vflbench.messages.facts import Schema

Reduction = Literal["sum", "mean"]
_NEGLIGIBLE = 1e-6  # distance to an integer that is allowed whatever the error
SAFE_ERROR = 1 / 16  # the largest standard error for safe rounding: 1/2 is eight of them away


@dataclass(frozen=True)
class RecoveredSums:
    """alpha and beta of one batch, or the reason why they are not known.

    alpha: (k, k) int64, beta: (k,) int64, of the k columns `columns`, None with a refusal. rows: m as given or determined,
    None if not known. real_alpha, real_beta: (d, d) and (d,), unrounded, float64, of all columns, alpha symmetrised, nan
    where nothing is determined. With `mean` and an unknown batch size they are alpha / m and beta / m. alpha_error,
    beta_error: their standard errors. columns: those that are determined and not known to be other than binary.
    undetermined: the columns whose own sums are not determined. assumption: what is taken for granted, or "".
    condition: of the design. rounds: pairs used. residual: root mean square of 4 g - alpha theta + 2 beta, unrounded.
    distance: the largest distance of an entry to an integer. refusal: why there are no integers, one sentence, or None.
    """

    rounds: int
    alpha: np.ndarray | None = None
    beta: np.ndarray | None = None
    rows: int | None = None
    real_alpha: np.ndarray | None = None
    real_beta: np.ndarray | None = None
    alpha_error: np.ndarray | None = None
    beta_error: np.ndarray | None = None
    condition: float | None = None
    residual: float | None = None
    distance: float | None = None
    columns: np.ndarray | None = None
    undetermined: tuple[int, ...] = ()
    assumption: str = ""
    refusal: str | None = None
    method: str = field(default="least squares", kw_only=True)

    @property
    def gram(self) -> Gram:
        """The integers for the solvers. Raises ValueError if there are none, or the batch size is not known."""
        if self.refusal is not None or self.rows is None:
            raise ValueError(self.refusal or "the batch size is not known")
        return Gram(self.alpha, self.beta, self.rows)


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
    its own. schema: of the columns; only the binary ones are rounded. Without it all are.

    A refusal names the problem: few rounds, dependent thetas, a design too ill-conditioned for safe rounding (full batches:
    the thetas lie on a Krylov sequence), noise, clipping, a batch that changes, or columns that are not binary. Noise that
    many rounds average out is not refused. Raises ValueError for invalid shapes, sizes or numbers.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    thetas, updates = checked_pairs(thetas, updates)
    check_rate_and_rows(rate, rows)
    values = -4 / rate * updates
    scale = (rows or 1) if reduction == "mean" else 1
    floor = scale * rounding_floor(thetas, updates, rate, unit)
    known = known_columns(schema, thetas.shape[1], rows or (1 if reduction == "mean" else None))
    if shared is None:
        fit = fit_directions(thetas, scale * values, floor=floor, known=known)
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
        return _why_unsafe(fit, recovered, updates) or _batch_size(recovered, most_rows, updates)
    return round_sums(recovered, fit, updates, schema)


def round_sums(recovered: RecoveredSums, fit: DirectionsFit, updates: np.ndarray, schema: Schema | None) -> RecoveredSums:
    """The integers of the columns that can be rounded, or a refusal."""
    if not len(recovered.columns):
        return replace(recovered, refusal="none of the columns whose sums are determined is binary by the schema")
    if unsafe := _why_unsafe(fit, recovered, updates):
        return unsafe
    recovered = _rounded(recovered, recovered.rows, updates)
    return recovered if schema is None or recovered.refusal else _of_schema(recovered, schema)


def known_columns(schema: Schema | None, d: int, rows: float | None = None) -> KnownColumns:
    """What the schema says of the directions of the data. d: columns. rows: m, in units of alpha."""
    if schema is None:
        return KnownColumns.nothing(d)
    binary = np.zeros(d, dtype=bool)
    binary[list(schema.binary)] = True
    sums = np.zeros((d, 0))
    for first, size in (*([(0, 1)] if schema.intercept else []), *schema.one_hot):
        group = np.zeros((d, 1))
        group[first : first + size] = 1
        sums = np.hstack([sums, group])
    if not sums.shape[1]:
        return KnownColumns(sums, binary)
    return KnownColumns(sums[:, 1:] - sums[:, :1], binary, sums[:, 0], rows)


def _of_schema(recovered: RecoveredSums, schema: Schema) -> RecoveredSums:
    """The batch size, if it follows from a group of columns of which every row has exactly one 1; or why they are not such."""
    place = {int(column): k for k, column in enumerate(recovered.columns)}
    for first, size in (*([(0, 1)] if schema.intercept else []), *schema.one_hot):
        if not all(j in place for j in range(first, first + size)):
            continue
        group = [place[j] for j in range(first, first + size)]
        rows = int(np.diagonal(recovered.alpha)[group].sum())
        if (recovered.rows or rows) != rows or (recovered.alpha[group].sum(axis=0) != np.diagonal(recovered.alpha)).any():
            why = f"columns {first} to {first + size - 1} do not have one 1 in each row: noise, or a batch that changes"
            return replace(recovered, refusal=why)
        recovered = replace(recovered, rows=rows)
    if why := inconsistency(recovered.alpha, recovered.beta, recovered.rows):
        return replace(recovered, refusal=f"no batch of binary rows has this alpha and beta: {why}")
    return recovered


def _why_nothing(n: int, d: int) -> str:
    if n < d + 1:
        return f"too few rounds: {d} coordinates need {d + 1} pairs, there are {n}"
    return f"the thetas of {n} rounds are not affinely independent, and no column's own sums are determined"


def rounding_floor(thetas: np.ndarray, updates: np.ndarray, rate: float, unit: float | None) -> float:
    """The absolute rounding error of 4 g. It is relative to the parameters: updates may be their differences."""
    largest = np.abs(thetas).max(initial=0.0) + np.abs(updates).max(initial=0.0)
    return 4 / rate * 4 * rounding_unit(thetas, updates, unit) * float(largest)


def check_rate_and_rows(rate: float, rows: int | None) -> None:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"the rate must be a positive number, not {rate}")
    if rows is not None and rows < 1:
        raise ValueError(f"a batch must have at least one row, not {rows}")


def unrounded_sums(fit: DirectionsFit, rows: int | None, schema: Schema | None) -> RecoveredSums:
    one, other = fit.linear, fit.linear.T  # each may lack what the other has
    both = np.isfinite(one) & np.isfinite(other)
    alpha = np.where(both, (one + other) / 2, np.where(np.isfinite(one), one, other))
    one_error, other_error = fit.linear_error, fit.linear_error.T
    error = np.where(np.isfinite(one), one_error, other_error)
    columns = np.flatnonzero(fit.determined)
    if schema is not None:
        columns = np.intersect1d(columns, schema.binary)
    return RecoveredSums(
        fit.fit.rounds,
        rows=rows,
        real_alpha=alpha,
        real_beta=-fit.constant / 2,
        alpha_error=np.where(both, np.hypot(one_error, other_error) / 2, error),
        beta_error=fit.constant_error / 2,
        condition=fit.fit.condition,
        residual=fit.fit.residual,
        columns=columns,
        undetermined=tuple(np.flatnonzero(~fit.determined).tolist()),
    )


def _why_unsafe(fit: DirectionsFit, recovered: RecoveredSums, updates: np.ndarray) -> RecoveredSums | None:
    """A refusal if the fit is too uncertain to be rounded, before a look at the integers."""
    block = np.ix_(recovered.columns, recovered.columns)
    alpha_error, linear = recovered.alpha_error[block], fit.linear[block]
    error = max(alpha_error.max(), recovered.beta_error[recovered.columns].max())
    if not error <= SAFE_ERROR:
        why = f"the residual is too large ({fit.fit.residual:.2g}, a standard error of {error:.2g} after"
        why = f"{why} {fit.fit.rounds} rounds): {_causes(updates)}"
        if fit.fit.floor_dominates:
            why = (
                f"rounding is not safe: the design of {fit.fit.rounds} rounds is ill-conditioned ({fit.fit.condition:.1e}), "
                f"so the rounding of the updates causes a standard error of {error:.2g}; take more rounds or other thetas"
            )
        return replace(recovered, refusal=why)
    asymmetry = np.abs(linear - linear.T)
    if (asymmetry > 12 * np.maximum(alpha_error, SAFE_ERROR / 2)).any():
        return replace(recovered, refusal=f"alpha is not symmetric (off by {asymmetry.max():.2g}): {_causes(updates)}")
    return None


def _causes(updates: np.ndarray) -> str:
    norms = np.linalg.norm(updates, axis=1)
    clipped = int((norms > norms.max() * (1 - 1e-9)).sum())
    if clipped > 1:
        return f"{clipped} of {len(norms)} updates have the same norm {norms.max():.3g}: they were clipped"
    return "noise, clipping, several steps in one update or a batch that changes between rounds"


def _distances(recovered: RecoveredSums, scale: float = 1) -> tuple[np.ndarray, np.ndarray]:
    """The distance of each entry times scale to an integer, and the distance that its error allows."""
    columns = recovered.columns
    upper = np.triu_indices(len(columns))
    block = np.ix_(columns, columns)
    entries = scale * np.concatenate([recovered.real_alpha[block][upper], recovered.real_beta[columns]])
    error = scale * np.concatenate([recovered.alpha_error[block][upper], recovered.beta_error[columns]])
    return np.abs(entries - np.rint(entries)), 8 * error + _NEGLIGIBLE


def _rounded(
    recovered: RecoveredSums, rows: int | None, updates: np.ndarray, scale: int = 1, tries: int = 1
) -> RecoveredSums:
    """The integers, or why there are none. scale: factor of the unrounded entries."""
    distances, allowed = _distances(recovered, scale)
    distance = float(distances.max())
    scaled = replace(
        recovered,
        rows=rows,
        real_alpha=scale * recovered.real_alpha,
        real_beta=scale * recovered.real_beta,
        alpha_error=scale * recovered.alpha_error,
        beta_error=scale * recovered.beta_error,
        residual=scale * recovered.residual,
        distance=distance,
    )
    # The errors alone would accept any values that are noisy enough, chance alone small real numbers of a sparse batch.
    if distance > chance_limit(len(distances), tries) or (distances > allowed).any():
        off = distances.max(where=distances > allowed, initial=0.0) or distance
        why = f"alpha and beta are not integral (one is {off:.2g} off): columns that are not binary, {_causes(updates)}"
        return replace(scaled, refusal=why)
    block = np.ix_(scaled.columns, scaled.columns)
    alpha, beta = (np.rint(part).astype(np.int64) for part in (scaled.real_alpha[block], scaled.real_beta[scaled.columns]))
    if why := inconsistency(alpha, beta, rows):
        return replace(scaled, refusal=f"no batch of binary rows has this alpha and beta: {why}")
    return replace(scaled, alpha=alpha, beta=beta)


def inconsistency(alpha: np.ndarray, beta: np.ndarray, rows: int | None) -> str | None:
    """`Gram.inconsistency`; for an unknown batch size with one that excludes nothing."""
    return Gram(alpha, beta, int(np.trace(np.abs(alpha))) if rows is None else rows).inconsistency()


def _batch_size(recovered: RecoveredSums, most_rows: int, updates: np.ndarray) -> RecoveredSums:
    """The least m for which m alpha and m beta are integers of a binary batch (recovered: alpha / m and beta / m).

    A size below the true m leaves an entry at least 1/m off. The precision must resolve this, up to m = 64 or 8 times the
    size that fits.
    """
    for rows in range(1, most_rows + 1):
        distances, allowed = _distances(recovered, rows)
        if allowed.max() * max(64, 8 * rows) > 1:
            why = f"no batch size below {rows} fits, and the precision resolves no larger one: {_causes(updates)}"
            return replace(recovered, refusal=why)
        if (distances > allowed).any():
            continue
        candidate = _rounded(recovered, rows, updates, scale=rows, tries=most_rows)
        if candidate.refusal is None:
            return candidate
    why = f"no batch size up to {most_rows} fits binary rows: columns that are not binary, {_causes(updates)}"
    return replace(recovered, refusal=why)
