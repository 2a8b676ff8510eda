"""From the rounds of a batch to its rows: recover alpha and beta, then search, then whatever else the rows determine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from vflbench.reconstruction.affine import fit_affine
from vflbench.reconstruction.asynchronous import TotalRecovered, recover_map, total
from vflbench.reconstruction.exact import enumerate_batches
from vflbench.reconstruction.gram import Answer, Gram
from vflbench.reconstruction.mixed import binary_columns, real_features
from vflbench.reconstruction.pushed import two_batches
from vflbench.reconstruction.recovery import Recovered, floor_of, least_squares

_SURE = 6.0  # standard errors
_LARGEST_ERROR = 1e-3  # of alpha's entries, beyond which real-valued columns are not told from noise
_NOT_SHARED = 1e-12  # of the largest coordinate: what rounding leaves of a coordinate that was sent as 0


@dataclass(frozen=True)
class Search:
    """How to look for a batch; the options of the attack."""

    recovery: Literal["least_squares", "lattice"] = "least_squares"
    solver: Literal["exact", "highs", "cbc", "cpsat"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    knows_batch_size: bool = True
    time_limit: float = 60.0
    max_batches: int = 1000


@dataclass(frozen=True)
class Setting:
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
class Found:
    """What was found of a batch.

    rows: (m, d) float64, nan where nothing is known; None if there is no answer. labels: (m,) in [-1, 1], the mean of the
    labels of equal rows, nan where nothing is known; None likewise. candidates: all batches (m, d) that fit, of which `rows`
    is the first. steps: (m,) 0 and 1, the local batch of each row, where that was told. binary: (d,) bool: columns searched
    for; others are solved for. figures: how it went. note: what is
    missing, and why. gram: what was searched for, so that it is not searched for twice.
    """

    rows: np.ndarray | None = None
    labels: np.ndarray | None = None
    candidates: tuple[np.ndarray, ...] = ()
    steps: np.ndarray | None = None
    binary: np.ndarray | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    gram: Gram | None = None


@dataclass(frozen=True)
class _Sums:
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


def search(thetas: np.ndarray, updates: np.ndarray, setting: Setting, how: Search, earlier: Found | None = None) -> Found:
    """The batch of all other participants together.

    thetas: (n, d), the models before n rounds; updates: (n, d), the sums of the others' updates. earlier: an answer of fewer
    rounds, which holds if alpha and beta are still the same.
    """
    sums = _sums(thetas, updates, setting, how)
    if sums.gram is None:
        return Found(figures=sums.figures, note=sums.note)
    if earlier is not None and earlier.gram is not None and _same(earlier.gram, sums.gram):
        return replace(earlier, figures={**earlier.figures, **sums.figures})
    answer = _solve(sums.gram, how)
    figures = {
        **sums.figures,
        "matches": float(answer.count),
        "proved": float(answer.status in ("proved", "infeasible")),
        "unique": float(answer.unique),
        "solver_seconds": answer.seconds,
    }
    if not answer.batches:
        return Found(figures=figures, note=f"{answer.status}: {answer.note}", gram=sums.gram)
    return _told(answer, sums, figures, thetas.shape[1], setting)


def _sums(thetas: np.ndarray, updates: np.ndarray, setting: Setting, how: Search) -> _Sums:
    """alpha and beta, in integers, of as many columns as can be had."""
    if setting.batches > 1:
        return _of_several_batches(thetas, updates, setting)
    rows = setting.others * setting.batch_size if how.knows_batch_size else None
    if how.knows_batch_size and setting.reduction == "mean":
        updates = updates * setting.batch_size
    elif setting.reduction == "mean":
        updates = updates / setting.others
    reduction = "sum" if how.knows_batch_size else setting.reduction
    if not setting.whole:
        return _of_shared_coordinates(thetas, updates, _shared(updates), setting, rows)
    known = {"rate": setting.rate, "reduction": reduction, "rows": rows}
    if how.recovery == "lattice":
        from vflbench.reconstruction.integer_relations import lattice

        found = lattice(thetas, updates, **known)
    else:
        found = least_squares(thetas, updates, **known)
    figures = _figures(found)
    if found.refusal is None and found.rows is not None:
        return _Sums(figures, found.gram, np.arange(thetas.shape[1]))
    if found.refusal is None:
        return _Sums(figures, note="the batch size is not known, and sums of gradients do not tell it")
    return _of_mixed_columns(found, figures)


def _of_mixed_columns(found: Recovered, figures: Mapping[str, float]) -> _Sums:
    """The binary columns among others, where alpha is so well known that others are told from noise."""
    if found.real_alpha is None or found.rows is None:
        return _Sums(figures, note=found.refusal)
    error = _SURE * max(found.alpha_error.max(initial=0.0), found.beta_error.max(initial=0.0))
    if not error < _LARGEST_ERROR:
        return _Sums(figures, note=found.refusal)
    columns = binary_columns(found.real_alpha, found.real_beta, found.rows, tolerance=max(error, 1e-6))
    if not len(columns.kept) or not columns.left_out:
        return _Sums(figures, note=found.refusal)
    left = "; ".join(f"column {j}: {why}" for j, why in sorted(columns.left_out.items())[:5])
    more = "" if len(columns.left_out) <= 5 else f" and {len(columns.left_out) - 5} more"
    gram = Gram(columns.alpha, columns.beta, found.rows)
    return _Sums(figures, gram, columns.kept, found.real_alpha, note=f"not binary: {left}{more}")


def _of_shared_coordinates(
    thetas: np.ndarray, updates: np.ndarray, shared: np.ndarray, setting: Setting, rows: int | None
) -> _Sums:
    """Row i of alpha from the rounds in which coordinate i was shared; of coordinates that have enough of them."""
    d = thetas.shape[1]
    if rows is None:
        return _Sums({"rounds": len(thetas)}, note="of updates that are shared in part the batch size must be known")
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
        return _Sums(
            figures, note=f"no coordinate was shared often enough to tell its row of alpha, which takes {d + 1} rounds"
        )
    part = alpha[np.ix_(kept, kept)]
    off = max(np.abs(part - np.rint(part)).max(), np.abs(beta[kept] - np.rint(beta[kept])).max())
    gram = Gram(np.rint(part).astype(np.int64), np.rint(beta[kept]).astype(np.int64), rows)
    why = f"alpha is {off:.2g} off integers: noise, or a batch that changes" if off > 0.25 else gram.inconsistency()
    if why is not None:
        return _Sums(figures, note=why)
    note = "" if len(kept) == d else f"{d - len(kept)} of {d} coordinates were not shared often enough"
    return _Sums(figures, gram, kept, note=note)


def _of_several_batches(thetas: np.ndarray, updates: np.ndarray, setting: Setting) -> _Sums:
    """The sums over all local batches, from the map that they make together."""
    if setting.others > 1:
        told = "the differences of several participants who take several local steps each add up to no single map"
        return _Sums({"rounds": float(len(thetas))}, note=told)
    found = recover_map(thetas, updates)
    figures = {"rounds": float(len(thetas)), **({} if found.condition is None else {"condition": found.condition})}
    if found.refusal is not None:
        return _Sums(figures, note=found.refusal)
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
        return _Sums(figures, note=sums.refusal)
    gram = Gram(sums.alpha_sum, sums.beta_sum, setting.batches * setting.batch_size)
    note = "" if sums.proved else "other sums of binary batches are not ruled out"
    return _Sums(figures, gram, np.arange(thetas.shape[1]), None, sums, found.eta, note)


def _solve(gram: Gram, how: Search) -> Answer:
    if how.solver == "exact":
        return enumerate_batches(gram, time_limit=how.time_limit, max_batches=how.max_batches)
    from vflbench.reconstruction.programme import solve  # PuLP takes a while to import

    return solve(gram, formulation=how.formulation, solver=how.solver, time_limit=how.time_limit)


def _told(answer: Answer, sums: _Sums, figures: Mapping[str, float], columns: int, setting: Setting) -> Found:
    """The first batch that fits, and what it determines."""
    labels = 2 * answer.labels[0][0] - 1 if answer.labels and answer.labels[0] else None
    found = Found(answer.batches[0].astype(float), labels, answer.batches, figures=figures, note=sums.note, gram=sums.gram)
    if setting.batches == 2:
        found = _divided(found, sums, setting)
    binary = np.zeros(columns, dtype=bool)
    binary[sums.kept] = True
    candidates = tuple(_wide(batch.astype(float), binary) for batch in found.candidates)
    told = replace(found, rows=_wide(found.rows, binary), candidates=candidates, binary=binary)
    return told if sums.real_alpha is None else _with_real_columns(told, answer.batches[0], sums)


def _divided(found: Found, sums: _Sums, setting: Setting) -> Found:
    """The rows of the first local batch, then those of the second, where the second term tells them apart."""
    rate = setting.rate / (setting.batch_size if setting.reduction == "mean" else 1)
    division = two_batches(found.candidates, sums.total, sums.eta, rate, rows=setting.batch_size)
    figures = {**found.figures, "told_apart": float(division.unique)}
    if not division.found:
        return replace(found, figures=figures, note=_joined(found.note, division.refusal))
    parts = [(d.first, d.second) for d in division.found]
    candidates = tuple(np.concatenate(part) for part in parts)
    first = division.found[0]
    labels = found.labels if first.first_labels is None else np.concatenate([first.first_labels, first.second_labels])
    rows, steps = candidates[0].astype(float), np.repeat([0.0, 1.0], [len(first.first), len(first.second)])
    if first.first_labels is not None:
        labels = np.where(rows.any(axis=1), labels, np.nan)
    elif found.labels is not None:
        labels = np.full(len(rows), np.nan)  # they were in the order of the rows before
    return replace(found, rows=rows, labels=labels, candidates=candidates, steps=steps, figures=figures)


def _with_real_columns(found: Found, batch: np.ndarray, sums: _Sums) -> Found:
    """The real-valued columns of the same rows, where these determine them."""
    others = np.flatnonzero(~found.binary)
    alpha = sums.real_alpha
    solved = real_features(batch, alpha[np.ix_(sums.kept, others)], alpha[np.ix_(others, others)])
    if solved.values is None:
        return replace(found, note=_joined(found.note, f"the other columns stay unknown: {solved.refusal}"))
    rows = found.rows.copy()
    rows[:, others] = solved.values
    return replace(found, rows=rows)


def _joined(note: str, more: str | None) -> str:
    return "; ".join(part for part in (note, more) if part)


def _wide(batch: np.ndarray, binary: np.ndarray) -> np.ndarray:
    rows = np.full((len(batch), len(binary)), np.nan)
    rows[:, binary] = batch
    return rows


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


def _same(one: Gram, other: Gram) -> bool:
    if one.rows != other.rows or (one.beta is None) != (other.beta is None):
        return False
    return np.array_equal(one.alpha, other.alpha) and (one.beta is None or np.array_equal(one.beta, other.beta))
