"""From the rounds of a batch to its rows: recover alpha and beta, then search, then whatever else the rows determine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.division import two_batches
from vflbench.attacks.batch_reconstruction.enumeration.exact import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Answer, Gram, share_of_ones
from vflbench.attacks.batch_reconstruction.real_columns import real_features
from vflbench.attacks.batch_reconstruction.recover_gram import Recovery, Sums, TrainingRules, sums_of


@dataclass(frozen=True)
class SearchOptions:
    """How to look for a batch; the options of the attack."""

    recovery: Recovery = "least_squares"
    solver: Literal["exact", "highs", "cbc", "cpsat"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    knows_batch_size: bool = True
    time_limit: float = 60.0
    max_batches: int = 1000


@dataclass(frozen=True)
class SearchResult:
    """What was found of a batch.

    rows: (m, d) float64, nan where nothing is known; None if there is no answer. labels: (m,) in [-1, 1], the mean of the
    labels of equal rows, nan where nothing is known; None likewise. candidates: all batches (m, d) that fit, of which `rows`
    is the first. steps: (m,) 0 and 1, the local batch of each row, where that was told. binary: (d,) bool: columns searched
    for; others are solved for. shares: (m, d), of the candidates in which an entry is 1, their rows matched to `rows`.
    figures: how it went. note: what is missing, and why. gram: what was searched for, so that it is not searched for twice.
    """

    rows: np.ndarray | None = None
    labels: np.ndarray | None = None
    candidates: tuple[np.ndarray, ...] = ()
    steps: np.ndarray | None = None
    binary: np.ndarray | None = None
    shares: np.ndarray | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    gram: Gram | None = None


def search(thetas: np.ndarray, updates: np.ndarray, setting: TrainingRules, how: SearchOptions, earlier: SearchResult | None = None) -> SearchResult:
    """The batch of all other participants together.

    thetas: (n, d), the models before n rounds; updates: (n, d), the sums of the others' updates. earlier: an answer of fewer
    rounds, which holds if alpha and beta are still the same.
    """
    sums = sums_of(thetas, updates, setting, how.recovery, knows_batch_size=how.knows_batch_size)
    if sums.gram is None:
        return SearchResult(figures=sums.figures, note=sums.note)
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
        return SearchResult(figures=figures, note=f"{answer.status}: {answer.note}", gram=sums.gram)
    return _told(answer, sums, figures, thetas.shape[1], setting)


def _solve(gram: Gram, how: SearchOptions) -> Answer:
    if how.solver == "exact":
        return enumerate_batches(gram, time_limit=how.time_limit, max_batches=how.max_batches)
    from vflbench.attacks.batch_reconstruction.integer_programme.solve import solve  # PuLP takes a while to import

    return solve(gram, formulation=how.formulation, solver=how.solver, time_limit=how.time_limit)


def _told(answer: Answer, sums: Sums, figures: Mapping[str, float], columns: int, setting: TrainingRules) -> SearchResult:
    """The first batch that fits, and what it determines."""
    labels = 2 * answer.labels[0][0] - 1 if answer.labels and answer.labels[0] else None
    found = SearchResult(answer.batches[0].astype(float), labels, answer.batches, figures=figures, note=sums.note, gram=sums.gram)
    if setting.batches == 2:
        found = _divided(found, sums, setting)
    binary = np.zeros(columns, dtype=bool)
    binary[sums.kept] = True
    candidates = tuple(_wide(batch.astype(float), binary) for batch in found.candidates)
    shares = share_of_ones(replace(answer, batches=found.candidates))
    certain = {"entries_certain": float(((shares == 0) | (shares == 1)).mean()) if answer.complete else 0.0}
    wide = {"rows": _wide(found.rows, binary), "shares": _wide(shares, binary), "candidates": candidates}
    told = replace(found, binary=binary, figures={**found.figures, **certain}, **wide)
    return told if sums.real_alpha is None else _with_real_columns(told, answer.batches[0], sums)


def _divided(found: SearchResult, sums: Sums, setting: TrainingRules) -> SearchResult:
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


def _with_real_columns(found: SearchResult, batch: np.ndarray, sums: Sums) -> SearchResult:
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


def _same(one: Gram, other: Gram) -> bool:
    if one.rows != other.rows or (one.beta is None) != (other.beta is None):
        return False
    return np.array_equal(one.alpha, other.alpha) and (one.beta is None or np.array_equal(one.beta, other.beta))
