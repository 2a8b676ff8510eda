"""alpha and beta of a private batch, in integers, by whichever way its rounds allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalRecovered, recover_map, total
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.real_columns import binary_columns
from vflbench.attacks.batch_reconstruction.recovery.affine import fit_affine
from vflbench.attacks.batch_reconstruction.recovery.least_squares import Recovered, floor_of, least_squares

_SURE = 6.0  # standard errors
_LARGEST_ERROR = 1e-3  # of alpha's entries, beyond which real-valued columns are not told from noise
_NOT_SHARED = 1e-12  # of the largest coordinate: what rounding leaves of a coordinate that was sent as 0

Recovery = Literal["least_squares", "lattice"]


@dataclass(frozen=True)
class TrainingRules:
    """What the participants agreed to. others: participants whose updates are summed up; batches: local steps a round, of
    `batch_size` rows each. whole: whether every coordinate of an update is sent.
    """

    others: int
    rate: float
    reduction: Literal["sum", "mean"]
    batches: int
    batch_size: int
    whole: bool = True


@dataclass(frozen=True)
class Sums:
    """gram: of the columns `kept`. real_alpha: (d, d) of all columns, unrounded, or None. total, eta: of several local
    batches, or None. note: why there is no gram, or not of all columns.
    """

    figures: Mapping[str, float]
    gram: Gram | None = None
    kept: np.ndarray | None = None
    real_alpha: np.ndarray | None = None
    total: TotalRecovered | None = None
    eta: np.ndarray | None = None
    note: str = ""


def sums_of(
    thetas: np.ndarray, updates: np.ndarray, setting: TrainingRules, recovery: Recovery, *, knows_batch_size: bool
) -> Sums:
    """alpha and beta, in integers, of as many columns as can be had."""
    if setting.batches > 1:
        return _of_several_batches(thetas, updates, setting)
    rows = setting.others * setting.batch_size if knows_batch_size else None
    if knows_batch_size and setting.reduction == "mean":
        updates = updates * setting.batch_size
    elif setting.reduction == "mean":
        updates = updates / setting.others
    reduction = "sum" if knows_batch_size else setting.reduction
    if not setting.whole:
        return _of_shared_coordinates(thetas, updates, _shared(updates), setting, rows)
    known = {"rate": setting.rate, "reduction": reduction, "rows": rows}
    if recovery == "lattice":
        from vflbench.attacks.batch_reconstruction.recovery.integer_relations import lattice

        found = lattice(thetas, updates, **known)
    else:
        found = least_squares(thetas, updates, **known)
    figures = _figures(found)
    if found.refusal is None and found.rows is not None:
        return Sums(figures, found.gram, np.arange(thetas.shape[1]))
    if found.refusal is None:
        return Sums(figures, note="the batch size is not known, and sums of gradients do not tell it")
    return _of_mixed_columns(found, figures)


def _of_mixed_columns(found: Recovered, figures: Mapping[str, float]) -> Sums:
    """The binary columns among others, where alpha is so well known that others are told from noise."""
    if found.real_alpha is None or found.rows is None:
        return Sums(figures, note=found.refusal)
    error = _SURE * max(found.alpha_error.max(initial=0.0), found.beta_error.max(initial=0.0))
    if not error < _LARGEST_ERROR:
        return Sums(figures, note=found.refusal)
    columns = binary_columns(found.real_alpha, found.real_beta, found.rows, tolerance=max(error, 1e-6))
    if not len(columns.kept) or not columns.left_out:
        return Sums(figures, note=found.refusal)
    left = "; ".join(f"column {j}: {why}" for j, why in sorted(columns.left_out.items())[:5])
    more = "" if len(columns.left_out) <= 5 else f" and {len(columns.left_out) - 5} more"
    gram = Gram(columns.alpha, columns.beta, found.rows)
    return Sums(figures, gram, columns.kept, found.real_alpha, note=f"not binary: {left}{more}")


def _of_shared_coordinates(
    thetas: np.ndarray, updates: np.ndarray, shared: np.ndarray, setting: TrainingRules, rows: int | None
) -> Sums:
    """Row i of alpha from the rounds in which coordinate i was shared; of coordinates that have enough of them."""
    d = thetas.shape[1]
    if rows is None:
        return Sums({"rounds": len(thetas)}, note="of updates that are shared in part the batch size must be known")
    alpha, error = np.full((d, d), np.nan), np.full(d, np.inf)
    beta, conditions = np.full(d, np.nan), [0.0]
    for i in range(d):
        own = shared[:, i]
        floor = floor_of(thetas[own], updates[own], setting.rate, None) if own.any() else 0.0
        fit = fit_affine(thetas[own], -4 / setting.rate * updates[own][:, [i]], floor=floor)
        if fit.refusal is None:
            alpha[i], beta[i] = fit.linear[:, 0], -fit.constant[0] / 2
            error[i] = max(fit.linear_error.max(), fit.constant_error.max() / 2)
            conditions.append(fit.condition)
    blank = _blank(shared[thetas.any(axis=1)])
    alpha[blank], beta[blank], error[blank] = 0.0, 0.0, 0.0
    figures = {"rounds": float(len(thetas)), "condition": max(conditions)}
    kept = np.flatnonzero(_SURE * error < 0.25)
    if not len(kept):
        return Sums(
            figures, note=f"no coordinate was shared often enough to tell its row of alpha, which takes {d + 1} rounds"
        )
    part = alpha[np.ix_(kept, kept)]
    off = max(np.abs(part - np.rint(part)).max(), np.abs(beta[kept] - np.rint(beta[kept])).max())
    gram = Gram(np.rint(part).astype(np.int64), np.rint(beta[kept]).astype(np.int64), rows)
    why = f"alpha is {off:.2g} off integers: noise, or a batch that changes" if off > 0.25 else gram.inconsistency()
    if why is not None:
        return Sums(figures, note=why)
    note = "" if len(kept) == d else f"{d - len(kept)} of {d} coordinates were not shared often enough"
    return Sums(figures, gram, kept, note=note)


def _of_several_batches(thetas: np.ndarray, updates: np.ndarray, setting: TrainingRules) -> Sums:
    """The sums over all local batches, from the map that they make together."""
    if setting.others > 1:
        told = "the differences of several participants who take several local steps each add up to no single map"
        return Sums({"rounds": float(len(thetas))}, note=told)
    found = recover_map(thetas, updates)
    figures = {"rounds": float(len(thetas)), **({} if found.condition is None else {"condition": found.condition})}
    if found.refusal is not None:
        return Sums(figures, note=found.refusal)
    sums = total(
        found.gamma,
        found.eta,
        setting.rate,
        setting.batches,
        rows=setting.batch_size,
        reduction=setting.reduction,
        error=max(found.gamma_error.max(), found.eta_error.max()),
    )
    if sums.refusal is not None:
        return Sums(figures, note=sums.refusal)
    gram = Gram(sums.alpha_sum, sums.beta_sum, setting.batches * setting.batch_size)
    note = "" if sums.proved else "other sums of binary batches are not ruled out"
    return Sums(figures, gram, np.arange(thetas.shape[1]), None, sums, found.eta, note)


def _shared(updates: np.ndarray) -> np.ndarray:
    """(n, d) bool: which coordinates were sent; the others are 0 up to rounding."""
    return np.abs(updates) > _NOT_SHARED * np.abs(updates).max(axis=1, keepdims=True)


def _blank(shared: np.ndarray) -> np.ndarray:
    """(d,) bool: coordinates that are 0 because their column is, not because they were kept back. shared: (n, d).

    Where coordinates are drawn at random, K a round, a round with fewer that are not 0 has drawn such a column; and one that
    never came in n rounds is none that only had no luck, (1 - K / d)^n < 1e-6. Where the largest are chosen, it may be.
    """
    never = ~shared.any(axis=0)
    counts = shared.sum(axis=1)
    if not len(counts) or counts.min() == counts.max():
        return np.zeros_like(never)
    luck = (1 - counts.max() / shared.shape[1]) ** len(counts)
    return never if luck * shared.shape[1] < 1e-6 else np.zeros_like(never)


def _figures(found: Recovered) -> dict[str, float]:
    told = {"condition": found.condition, "residual": found.residual}
    return {"rounds": float(found.rounds), **{name: float(value) for name, value in told.items() if value is not None}}
