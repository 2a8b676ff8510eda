"""alpha = X^T X and beta = X^T Y of a private batch, from parameters and the updates that they were answered with."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.recovery.affine import (
    AffineFit,
    chance_limit,
    fit_affine,
    fit_shared,
    pairs,
    unit_of,
)

Reduction = Literal["sum", "mean"]
_NEGLIGIBLE = 1e-6  # what an integer may be off whatever its error
SAFE = 1 / 16  # a standard error up to which rounding is safe: 1/2 is eight of them away


@dataclass(frozen=True)
class Recovered:
    """What the updates come to.

    alpha: (d, d) int64, beta: (d,) int64, None with a refusal. rows: m as given or found (`mean`), None if not known.
    real_alpha, real_beta: the same unrounded, float64, alpha symmetrised: what there is for real-valued columns; with
    `mean` and no batch size they are alpha / m and beta / m. alpha_error, beta_error: their standard errors.
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
        """For the solvers. Raises ValueError where there is none, or the batch size is not known."""
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
) -> Recovered:
    """alpha and beta by least squares, rounded where that is safe.

        update = -rate g(theta),   4 g = alpha theta - 2 beta   (sum; for mean the right side over m)

    thetas: (n, d), parameters that were answered; updates: (n, d), the answers. n >= d + 1, thetas affinely independent:
    with d pairs alpha + v v^T and beta + (p.v) v / 2, v the normal of the thetas' hyperplane v.theta = p, fit as well.
    rate: the step size that the sender used, > 0. rows: m, if known. With `mean` and no rows it is the least integer up to
    `most_rows` that makes every entry integral and consistent; a multiple of it would do as well. unit: relative rounding
    of the updates, told from the values if None. shared: (n, d) bool, which coordinates of an update were sent (selective
    updates), all if None; each coordinate then takes d + 1 rounds of its own.

    A refusal says what is wrong: few rounds, dependent thetas, a design so ill-conditioned that rounding is not safe (full
    batches: the thetas lie on a Krylov sequence), noise, clipping or a batch that changes, columns that are not binary.
    Noise that many rounds average out is no reason to refuse. Raises ValueError for shapes, sizes or numbers that make no
    sense.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    thetas, updates = pairs(thetas, updates)
    check_setting(rate, rows)
    values = -4 / rate * updates
    scale = (rows or 1) if reduction == "mean" else 1
    floor = scale * floor_of(thetas, updates, rate, unit)
    if shared is None:
        fit = fit_affine(thetas, scale * values, floor=floor)
    else:
        shared = np.asarray(shared, dtype=bool)
        if shared.shape != updates.shape:
            raise ValueError(f"what was shared is told for every update, {updates.shape}, not {shared.shape}")
        fit = fit_shared(thetas, scale * values, shared, floor=floor)
    if fit.refusal:
        return Recovered(fit.rounds, rows=rows, condition=fit.condition, refusal=fit.refusal)
    found = _unrounded(fit, rows)
    why = _unsafe(fit, found, updates)
    if why is None and reduction == "mean" and rows is None:
        return _batch_size(found, most_rows, updates)
    return replace(found, refusal=why) if why else _rounded(found, rows, updates)


def floor_of(thetas: np.ndarray, updates: np.ndarray, rate: float, unit: float | None) -> float:
    """The absolute rounding error of 4 g: updates may be differences of parameters, so it is relative to these."""
    largest = np.abs(thetas).max(initial=0.0) + np.abs(updates).max(initial=0.0)
    return 4 / rate * 4 * unit_of(thetas, updates, unit) * float(largest)


def check_setting(rate: float, rows: int | None) -> None:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"the rate is a positive number, not {rate}")
    if rows is not None and rows < 1:
        raise ValueError(f"a batch has at least one row, not {rows}")


def _unrounded(fit: AffineFit, rows: int | None) -> Recovered:
    return Recovered(
        fit.rounds,
        rows=rows,
        real_alpha=(fit.linear + fit.linear.T) / 2,
        real_beta=-fit.constant / 2,
        alpha_error=np.hypot(fit.linear_error, fit.linear_error.T) / 2,
        beta_error=fit.constant_error / 2,
        condition=fit.condition,
        residual=fit.residual,
    )


def _unsafe(fit: AffineFit, found: Recovered, updates: np.ndarray) -> str | None:
    """Why the fit is nothing to round, before a look at the integers."""
    error = max(found.alpha_error.max(), found.beta_error.max())
    if error > SAFE:
        if fit.floor_dominates:
            return (
                f"rounding is not safe: the design of {fit.rounds} rounds is ill-conditioned ({fit.condition:.1e}), which "
                f"makes the rounding of the updates a standard error of {error:.2g}; take more rounds or other thetas"
            )
        return (
            f"the residual is too large ({fit.residual:.2g}, a standard error of {error:.2g} after {fit.rounds} rounds): "
            f"{_causes(updates)}"
        )
    asymmetry = np.abs(fit.linear - fit.linear.T)
    if (asymmetry > 12 * np.maximum(found.alpha_error, SAFE / 2)).any():
        return f"alpha is not symmetric (off by {asymmetry.max():.2g}): {_causes(updates)}"
    return None


def _causes(updates: np.ndarray) -> str:
    norms = np.linalg.norm(updates, axis=1)
    clipped = int((norms > norms.max() * (1 - 1e-9)).sum())
    if clipped > 1:
        return f"{clipped} of {len(norms)} updates have the same norm {norms.max():.3g}, they were clipped"
    return "noise, clipping, several steps in one update or a batch that changes between rounds"


def _distances(found: Recovered, scale: float = 1) -> tuple[np.ndarray, np.ndarray]:
    """How far the entries, times scale, are from integers, and how far their errors allow them to be."""
    upper = np.triu_indices(len(found.real_beta))
    entries = scale * np.concatenate([found.real_alpha[upper], found.real_beta])
    error = scale * np.concatenate([found.alpha_error[upper], found.beta_error])
    return np.abs(entries - np.rint(entries)), 8 * error + _NEGLIGIBLE


def _rounded(found: Recovered, rows: int | None, updates: np.ndarray, scale: int = 1, tries: int = 1) -> Recovered:
    """The integers, or why not. scale: what the unrounded entries are to be multiplied with."""
    distances, allowed = _distances(found, scale)
    distance = float(distances.max())
    scaled = replace(
        found,
        rows=rows,
        real_alpha=scale * found.real_alpha,
        real_beta=scale * found.real_beta,
        alpha_error=scale * found.alpha_error,
        beta_error=scale * found.beta_error,
        residual=scale * found.residual,
        distance=distance,
    )
    # Errors alone would let anything pass that is noisy enough, chance alone small real numbers of a sparse batch.
    if distance > chance_limit(len(distances), tries) or (distances > allowed).any():
        off = distances.max(where=distances > allowed, initial=0.0) or distance
        why = f"alpha and beta are not integral (one is {off:.2g} off): columns that are not binary, {_causes(updates)}"
        return replace(scaled, refusal=why)
    alpha, beta = np.rint(scaled.real_alpha).astype(np.int64), np.rint(scaled.real_beta).astype(np.int64)
    if why := inconsistency(alpha, beta, rows):
        return replace(scaled, refusal=f"no batch of binary rows has this alpha and beta: {why}")
    return replace(scaled, alpha=alpha, beta=beta)


def inconsistency(alpha: np.ndarray, beta: np.ndarray, rows: int | None) -> str | None:
    """Gram.inconsistency; where the batch size is not known, for a size that excludes nothing."""
    return Gram(alpha, beta, int(np.trace(np.abs(alpha))) if rows is None else rows).inconsistency()


def _batch_size(found: Recovered, most_rows: int, updates: np.ndarray) -> Recovered:
    """The least m for which m alpha and m beta are integers of a binary batch (found: alpha / m and beta / m).

    A smaller size than the true m leaves an entry at least 1/m off, so the precision must tell that: up to m = 64, or 8
    times the size that fits.
    """
    for rows in range(1, most_rows + 1):
        distances, allowed = _distances(found, rows)
        if allowed.max() * max(64, 8 * rows) > 1:
            why = f"no batch size below {rows} fits, and from there on the precision tells none: {_causes(updates)}"
            return replace(found, refusal=why)
        if (distances > allowed).any():
            continue
        candidate = _rounded(found, rows, updates, scale=rows, tries=most_rows)
        if candidate.refusal is None:
            return candidate
    why = f"no batch size up to {most_rows} makes alpha and beta those of binary rows: not binary, {_causes(updates)}"
    return replace(found, refusal=why)
