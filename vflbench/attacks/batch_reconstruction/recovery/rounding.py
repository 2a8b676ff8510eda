"""The integers alpha and beta next to a fit, or the reason why rounding it would be a guess."""

from dataclasses import dataclass, field, replace

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.recovery.affine import chance_limit
from vflbench.attacks.batch_reconstruction.recovery.directions import DirectionsFit
from vflbench.messages.rules import Schema

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


def round_sums(recovered: RecoveredSums, fit: DirectionsFit, updates: np.ndarray, schema: Schema | None) -> RecoveredSums:
    """The integers of the columns that can be rounded, or a refusal."""
    if not len(recovered.columns):
        return replace(recovered, refusal="none of the columns whose sums are determined is binary by the schema")
    if unsafe := why_unsafe(fit, recovered, updates):
        return unsafe
    recovered = _rounded(recovered, recovered.rows, updates)
    return recovered if schema is None or recovered.refusal else _of_schema(recovered, schema)


def groups_of(schema: Schema) -> tuple[tuple[int, int], ...]:
    """First column and size of each group of columns of which every row has exactly one 1, the intercept among them."""
    return (*([(0, 1)] if schema.intercept else []), *schema.one_hot)


def _of_schema(recovered: RecoveredSums, schema: Schema) -> RecoveredSums:
    """The batch size, if it follows from a group of columns with one 1 in each row; or why they are no such group."""
    place = {int(column): k for k, column in enumerate(recovered.columns)}
    for first, size in groups_of(schema):
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


def why_unsafe(fit: DirectionsFit, recovered: RecoveredSums, updates: np.ndarray) -> RecoveredSums | None:
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


def with_batch_size(recovered: RecoveredSums, most_rows: int, updates: np.ndarray) -> RecoveredSums:
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
