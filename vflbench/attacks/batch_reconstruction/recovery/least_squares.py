"""alpha = X^T X and beta = X^T Y of a private batch by least squares, from parameters and the updates that answer them."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.recovery.affine import (
    AffineFit,
    chance_limit,
    checked_pairs,
    fit_affine,
    fit_shared,
    rounding_unit,
)

Reduction = Literal["sum", "mean"]
_NEGLIGIBLE = 1e-6  # distance to an integer that is allowed whatever the error
SAFE_ERROR = 1 / 16  # the largest standard error for safe rounding: 1/2 is eight of them away


@dataclass(frozen=True)
class RecoveredSums:
    """alpha and beta of one batch, or the reason why they are not known.

    alpha: (d, d) int64, beta: (d,) int64, None with a refusal. rows: m as given or determined (`mean`), None if not known.
    real_alpha, real_beta: the same unrounded, float64, alpha symmetrised; for real-valued columns. With `mean` and an
    unknown batch size they are alpha / m and beta / m. alpha_error, beta_error: their standard errors.
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
) -> RecoveredSums:
    """alpha and beta by least squares, rounded if that is safe.

        update = -rate g(theta),   4 g = alpha theta - 2 beta   (sum; for mean the right side over m)

    thetas: (n, d), the parameters; updates: (n, d), the answers to them. n >= d + 1, thetas affinely independent: with d
    pairs alpha + v v^T and beta + (p.v) v / 2 fit as well, where v is the normal of the thetas' hyperplane v.theta = p.
    rate: the step size of the sender, > 0. rows: m, if known. With `mean` and rows None, m is the least integer up to
    `most_rows` that makes every entry integral and consistent; its multiples fit too. unit: relative rounding of the
    updates, estimated from the values if None. shared: (n, d) bool, the coordinates of each update that were sent (selective
    updates), all if None; each coordinate then needs d + 1 rounds of its own.

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
    if shared is None:
        fit = fit_affine(thetas, scale * values, floor=floor)
    else:
        shared = np.asarray(shared, dtype=bool)
        if shared.shape != updates.shape:
            raise ValueError(f"`shared` must have the shape of the updates, {updates.shape}, not {shared.shape}")
        fit = fit_shared(thetas, scale * values, shared, floor=floor)
    if fit.refusal:
        return RecoveredSums(fit.rounds, rows=rows, condition=fit.condition, refusal=fit.refusal)
    recovered = _unrounded(fit, rows)
    why = _why_unsafe(fit, recovered, updates)
    if why is None and reduction == "mean" and rows is None:
        return _batch_size(recovered, most_rows, updates)
    return replace(recovered, refusal=why) if why else _rounded(recovered, rows, updates)


def rounding_floor(thetas: np.ndarray, updates: np.ndarray, rate: float, unit: float | None) -> float:
    """The absolute rounding error of 4 g. It is relative to the parameters: updates may be their differences."""
    largest = np.abs(thetas).max(initial=0.0) + np.abs(updates).max(initial=0.0)
    return 4 / rate * 4 * rounding_unit(thetas, updates, unit) * float(largest)


def check_rate_and_rows(rate: float, rows: int | None) -> None:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"the rate must be a positive number, not {rate}")
    if rows is not None and rows < 1:
        raise ValueError(f"a batch must have at least one row, not {rows}")


def _unrounded(fit: AffineFit, rows: int | None) -> RecoveredSums:
    return RecoveredSums(
        fit.rounds,
        rows=rows,
        real_alpha=(fit.linear + fit.linear.T) / 2,
        real_beta=-fit.constant / 2,
        alpha_error=np.hypot(fit.linear_error, fit.linear_error.T) / 2,
        beta_error=fit.constant_error / 2,
        condition=fit.condition,
        residual=fit.residual,
    )


def _why_unsafe(fit: AffineFit, recovered: RecoveredSums, updates: np.ndarray) -> str | None:
    """Why the fit is too uncertain to be rounded, before a look at the integers; None if it is not."""
    error = max(recovered.alpha_error.max(), recovered.beta_error.max())
    if error > SAFE_ERROR:
        if fit.floor_dominates:
            return (
                f"rounding is not safe: the design of {fit.rounds} rounds is ill-conditioned ({fit.condition:.1e}), "
                f"so the rounding of the updates causes a standard error of {error:.2g}; take more rounds or other thetas"
            )
        return (
            f"the residual is too large ({fit.residual:.2g}, a standard error of {error:.2g} after {fit.rounds} rounds): "
            f"{_causes(updates)}"
        )
    asymmetry = np.abs(fit.linear - fit.linear.T)
    if (asymmetry > 12 * np.maximum(recovered.alpha_error, SAFE_ERROR / 2)).any():
        return f"alpha is not symmetric (off by {asymmetry.max():.2g}): {_causes(updates)}"
    return None


def _causes(updates: np.ndarray) -> str:
    norms = np.linalg.norm(updates, axis=1)
    clipped = int((norms > norms.max() * (1 - 1e-9)).sum())
    if clipped > 1:
        return f"{clipped} of {len(norms)} updates have the same norm {norms.max():.3g}: they were clipped"
    return "noise, clipping, several steps in one update or a batch that changes between rounds"


def _distances(recovered: RecoveredSums, scale: float = 1) -> tuple[np.ndarray, np.ndarray]:
    """The distance of each entry times scale to an integer, and the distance that its error allows."""
    upper = np.triu_indices(len(recovered.real_beta))
    entries = scale * np.concatenate([recovered.real_alpha[upper], recovered.real_beta])
    error = scale * np.concatenate([recovered.alpha_error[upper], recovered.beta_error])
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
    alpha, beta = np.rint(scaled.real_alpha).astype(np.int64), np.rint(scaled.real_beta).astype(np.int64)
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
