"""alpha and beta of a private batch, in integers, by the recovery that suits its rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.local_map import recover_map
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalSums, recover_total
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.real_columns import binary_columns
from vflbench.attacks.batch_reconstruction.recovery.affine import fit_affine
from vflbench.attacks.batch_reconstruction.recovery.least_squares import RecoveredSums, least_squares, rounding_floor

_DEVIATIONS = 6.0  # standard errors that a true value may be off
_LARGEST_ERROR = 1e-3  # of alpha's entries; with a larger one real-valued columns can't be distinguished from noise
_ZERO = 1e-12  # of the largest coordinate: the rounding of a coordinate that was sent as 0

RecoveryMethod = Literal["least_squares", "lattice"]


@dataclass(frozen=True)
class TrainingRules:
    """What the participants agreed on. others: participants whose updates are summed; batches: local steps of a round, each
    on `batch_size` rows. whole: whether every coordinate of an update is sent.
    """

    others: int
    rate: float
    reduction: Literal["sum", "mean"]
    batches: int
    batch_size: int
    whole: bool = True


@dataclass(frozen=True)
class RecoveredGram:
    """gram: of the columns `kept`. real_alpha: (d, d) of all columns, unrounded, or None. total, eta: of several local
    batches, or None. note: why gram is None, or lacks columns. assumption: what alpha and beta take for granted beyond the
    rounds and the rules, one sentence, or "" if they are proved. What follows from an assumption is not certain.
    estimate: alpha and beta of all columns as far as noise leaves them, where there is no gram.
    """

    figures: Mapping[str, float]
    gram: Gram | None = None
    kept: np.ndarray | None = None
    real_alpha: np.ndarray | None = None
    total: TotalSums | None = None
    eta: np.ndarray | None = None
    note: str = ""
    assumption: str = ""
    estimate: tuple[np.ndarray, np.ndarray] | None = None


def recover_gram(
    thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules, method: RecoveryMethod, *, knows_batch_size: bool
) -> RecoveredGram:
    """alpha and beta, in integers, of as many columns as the updates determine.

    thetas, updates: (n, d), the models before n rounds and the sums of the others' updates.
    """
    if rules.batches > 1:
        return _of_several_batches(thetas, updates, rules)
    rows = rules.others * rules.batch_size if knows_batch_size else None
    if knows_batch_size and rules.reduction == "mean":
        updates = updates * rules.batch_size
    elif rules.reduction == "mean":
        updates = updates / rules.others
    reduction = "sum" if knows_batch_size else rules.reduction
    if not rules.whole:
        return _of_shared_coordinates(thetas, updates, _shared(updates), rules, rows)
    known: dict[str, Any] = {"rate": rules.rate, "reduction": reduction, "rows": rows}
    if method == "lattice":
        from vflbench.attacks.batch_reconstruction.recovery.integer_relations import integer_relations

        recovered = integer_relations(thetas, updates, **known)
    else:
        recovered = least_squares(thetas, updates, **known)
    figures = _figures(recovered)
    if recovered.refusal is None and recovered.rows is not None:
        assumption = "" if rows is not None else "the batch has the least size that fits"
        return RecoveredGram(figures, recovered.gram, np.arange(thetas.shape[1]), note=assumption, assumption=assumption)
    if recovered.refusal is None:
        return RecoveredGram(figures, note="the batch size is not known, and sums of gradients do not determine it")
    mixed = _of_mixed_columns(recovered, figures)
    return mixed if mixed.gram is not None else replace(mixed, estimate=_estimate(recovered))


def _estimate(recovered: RecoveredSums) -> tuple[np.ndarray, np.ndarray] | None:
    """alpha and beta with standard errors below 1, so that they still tell more of a batch than its size."""
    if recovered.real_alpha is None or recovered.rows is None:
        return None
    error = max(recovered.alpha_error.max(initial=0.0), recovered.beta_error.max(initial=0.0))
    return (recovered.real_alpha, recovered.real_beta) if error < _DEVIATIONS else None


def _of_mixed_columns(recovered: RecoveredSums, figures: Mapping[str, float]) -> RecoveredGram:
    """The binary columns among others, if alpha is precise enough to distinguish real-valued columns from noise."""
    if recovered.real_alpha is None or recovered.rows is None:
        return RecoveredGram(figures, note=recovered.refusal)
    error = _DEVIATIONS * max(recovered.alpha_error.max(initial=0.0), recovered.beta_error.max(initial=0.0))
    if not error < _LARGEST_ERROR:
        return RecoveredGram(figures, note=recovered.refusal)
    columns = binary_columns(recovered.real_alpha, recovered.real_beta, recovered.rows, tolerance=max(error, 1e-6))
    if not len(columns.kept) or not columns.left_out:
        return RecoveredGram(figures, note=recovered.refusal)
    left = "; ".join(f"column {j}: {why}" for j, why in sorted(columns.left_out.items())[:5])
    more = "" if len(columns.left_out) <= 5 else f" and {len(columns.left_out) - 5} more"
    gram = Gram(columns.alpha, columns.beta, recovered.rows)
    return RecoveredGram(figures, gram, columns.kept, recovered.real_alpha, note=f"not binary: {left}{more}")


def _of_shared_coordinates(
    thetas: np.ndarray, updates: np.ndarray, shared: np.ndarray, rules: TrainingRules, rows: int | None
) -> RecoveredGram:
    """Row i of alpha from the rounds in which coordinate i was shared, for each coordinate with enough such rounds."""
    d = thetas.shape[1]
    if rows is None:
        return RecoveredGram({"rounds": len(thetas)}, note="partly shared updates need a known batch size")
    alpha, error = np.full((d, d), np.nan), np.full(d, np.inf)
    beta, conditions = np.full(d, np.nan), [0.0]
    for i in range(d):
        sent = shared[:, i]
        floor = rounding_floor(thetas[sent], updates[sent], rules.rate, None) if sent.any() else 0.0
        fit = fit_affine(thetas[sent], -4 / rules.rate * updates[sent][:, [i]], floor=floor)
        if fit.refusal is None:
            alpha[i], beta[i] = fit.linear[:, 0], -fit.constant[0] / 2
            error[i] = max(fit.linear_error.max(), fit.constant_error.max() / 2)
            conditions.append(fit.condition)
    zero = _zero_columns(shared[thetas.any(axis=1)])
    alpha[zero], beta[zero], error[zero] = 0.0, 0.0, 0.0
    figures = {"rounds": float(len(thetas)), "condition": max(conditions)}
    kept = np.flatnonzero(_DEVIATIONS * error < 0.25)
    if not len(kept):
        return RecoveredGram(
            figures, note=f"no coordinate was shared often enough: its row of alpha needs {d + 1} rounds with it"
        )
    part = alpha[np.ix_(kept, kept)]
    off = max(np.abs(part - np.rint(part)).max(), np.abs(beta[kept] - np.rint(beta[kept])).max())
    gram = Gram(np.rint(part).astype(np.int64), np.rint(beta[kept]).astype(np.int64), rows)
    why = f"alpha is {off:.2g} off integers: noise, or a batch that changes" if off > 0.25 else gram.inconsistency()
    if why is not None:
        return RecoveredGram(figures, note=why)
    note = "" if len(kept) == d else f"{d - len(kept)} of {d} coordinates were not shared often enough"
    return RecoveredGram(figures, gram, kept, note=note)


def _of_several_batches(thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules) -> RecoveredGram:
    """The sums over all local batches, from the affine map that their steps compose."""
    if rules.others > 1:
        why = "the summed differences of several participants with several local steps each are no single map"
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    local_map = recover_map(thetas, updates)
    figures = {"rounds": float(len(thetas)), **({} if local_map.condition is None else {"condition": local_map.condition})}
    if local_map.refusal is not None:
        return RecoveredGram(figures, note=local_map.refusal)
    total = recover_total(
        local_map.gamma,
        local_map.eta,
        rules.rate,
        rules.batches,
        rows=rules.batch_size,
        reduction=rules.reduction,
        error=max(local_map.gamma_error.max(), local_map.eta_error.max()),
    )
    if total.refusal is not None:
        return RecoveredGram(figures, note=total.refusal)
    gram = Gram(total.alpha_sum, total.beta_sum, rules.batches * rules.batch_size)
    note = total.assumption
    return RecoveredGram(figures, gram, np.arange(thetas.shape[1]), None, total, local_map.eta, note, note)


def _shared(updates: np.ndarray) -> np.ndarray:
    """(n, d) bool: which coordinates were sent; the others are 0 up to rounding."""
    return np.abs(updates) > _ZERO * np.abs(updates).max(axis=1, keepdims=True)


def _zero_columns(shared: np.ndarray) -> np.ndarray:
    """(d,) bool: coordinates that are 0 because their column is 0, not because they were not sent. shared: (n, d).

    If K random coordinates are sent in each round, a round with fewer non-zero ones contains such a column. A column that
    never appears in n rounds is then one of them: chance alone is excluded by d (1 - K / d)^n < 1e-6. If the largest
    coordinates are sent instead, a column may never appear although it is not 0.
    """
    never = ~np.asarray(shared.any(axis=0))
    counts = shared.sum(axis=1)
    if not len(counts) or counts.min() == counts.max():
        return np.zeros_like(never)
    chance = (1 - counts.max() / shared.shape[1]) ** len(counts)
    return never if chance * shared.shape[1] < 1e-6 else np.zeros_like(never)


def _figures(recovered: RecoveredSums) -> dict[str, float]:
    optional = {"condition": recovered.condition, "residual": recovered.residual}
    return {
        "rounds": float(recovered.rounds),
        **{name: float(value) for name, value in optional.items() if value is not None},
    }
