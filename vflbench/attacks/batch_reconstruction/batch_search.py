"""From the rounds of a batch to its rows: recover alpha and beta, search for the batch, then solve for what follows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.division import divide_rows
from vflbench.attacks.batch_reconstruction.enumeration.exact import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.real_columns import real_features
from vflbench.attacks.batch_reconstruction.recover_gram import RecoveredGram, RecoveryMethod, TrainingRules, recover_gram
from vflbench.attacks.batch_reconstruction.solutions import Solutions, share_of_ones


@dataclass(frozen=True)
class SearchOptions:
    """How to search for a batch: the options of the attack."""

    recovery: RecoveryMethod = "least_squares"
    solver: Literal["exact", "highs", "cbc", "cpsat"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    knows_batch_size: bool = True
    time_limit: float = 60.0
    max_batches: int = 1000


@dataclass(frozen=True)
class SearchResult:
    """What the rounds determine of one batch.

    rows: (m, d) float64, nan for unknown entries; None if there is no solution. labels: (m,) in [-1, 1], the mean label of
    equal rows, nan if unknown; None if there is no solution. candidates: all matching batches (m, d), of which `rows` is the
    first. steps: (m,) of 0 and 1, the local batch of each row, or None if unknown. binary: (d,) bool, the columns that were
    searched for; the others follow from linear equations. shares: (m, d), the share of the candidates in which an entry is
    1, after their rows were matched to `rows`. figures: measurements of the search. note: what is missing, and why.
    gram: the Gram matrix that was searched for. A later call with the same one reuses this result.
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


def search(
    thetas: np.ndarray,
    updates: np.ndarray,
    rules: TrainingRules,
    options: SearchOptions,
    earlier: SearchResult | None = None,
) -> SearchResult:
    """The joint batch of all other participants.

    thetas: (n, d), the models before n rounds; updates: (n, d), the sums of the others' updates. earlier: the result from
    fewer rounds. It is reused if alpha and beta are still the same.
    """
    recovered = recover_gram(thetas, updates, rules, options.recovery, knows_batch_size=options.knows_batch_size)
    if recovered.gram is None:
        return SearchResult(figures=recovered.figures, note=recovered.note)
    if earlier is not None and earlier.gram is not None and _same(earlier.gram, recovered.gram):
        return replace(earlier, figures={**earlier.figures, **recovered.figures})
    solutions = _solve(recovered.gram, options)
    figures = {
        **recovered.figures,
        "matches": float(solutions.count),
        "proved": float(solutions.status in ("proved", "infeasible")),
        "unique": float(solutions.unique),
        "ended": float(solutions.ended),
        "solver_seconds": solutions.seconds,
    }
    if not solutions.batches:
        return SearchResult(figures=figures, note=f"{solutions.status}: {solutions.note}", gram=recovered.gram)
    return _result(solutions, recovered, figures, thetas.shape[1], rules)


def _solve(gram: Gram, options: SearchOptions) -> Solutions:
    if options.solver == "exact":
        return enumerate_batches(gram, time_limit=options.time_limit, max_batches=options.max_batches)
    from vflbench.attacks.batch_reconstruction.integer_programme.solve import solve  # importing PuLP is slow

    return solve(gram, formulation=options.formulation, solver=options.solver, time_limit=options.time_limit)


def _result(
    solutions: Solutions, recovered: RecoveredGram, figures: Mapping[str, float], columns: int, rules: TrainingRules
) -> SearchResult:
    """The first matching batch, and what it determines."""
    labels = 2 * solutions.labels[0][0] - 1 if solutions.labels and solutions.labels[0] else None
    result = SearchResult(
        solutions.batches[0].astype(float),
        labels,
        solutions.batches,
        figures=figures,
        note=recovered.note,
        gram=recovered.gram,
    )
    if rules.batches == 2:
        result = _divided(result, recovered, rules)
    binary = np.zeros(columns, dtype=bool)
    binary[recovered.kept] = True
    candidates = tuple(_with_all_columns(batch.astype(float), binary) for batch in result.candidates)
    shares = share_of_ones(replace(solutions, batches=result.candidates))
    certain = {"entries_certain": float(((shares == 0) | (shares == 1)).mean()) if solutions.complete else 0.0}
    entries: dict[str, Any] = {
        "rows": _with_all_columns(result.rows, binary),
        "shares": _with_all_columns(shares, binary),
        "candidates": candidates,
    }
    result = replace(result, binary=binary, figures={**result.figures, **certain}, **entries)
    return result if recovered.real_alpha is None else _with_real_columns(result, solutions.batches[0], recovered)


def _divided(result: SearchResult, recovered: RecoveredGram, rules: TrainingRules) -> SearchResult:
    """The rows of the first local batch, then those of the second, if the second-order term determines the division."""
    rate = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    division = divide_rows(result.candidates, recovered.total, recovered.eta, rate, rows=rules.batch_size)
    figures = {**result.figures, "told_apart": float(division.unique)}
    if not division.batches:
        return replace(result, figures=figures, note=_joined(result.note, division.refusal))
    parts = [(d.first, d.second) for d in division.batches]
    candidates = tuple(np.concatenate(part) for part in parts)
    first = division.batches[0]
    labels = result.labels if first.first_labels is None else np.concatenate([first.first_labels, first.second_labels])
    rows, steps = candidates[0].astype(float), np.repeat([0.0, 1.0], [len(first.first), len(first.second)])
    if first.first_labels is not None:
        labels = np.where(rows.any(axis=1), labels, np.nan)
    elif result.labels is not None:
        labels = np.full(len(rows), np.nan)  # the known labels belong to the rows' order before the division
    return replace(result, rows=rows, labels=labels, candidates=candidates, steps=steps, figures=figures)


def _with_real_columns(result: SearchResult, batch: np.ndarray, recovered: RecoveredGram) -> SearchResult:
    """With the real-valued columns of the same rows, if these rows determine them."""
    others = np.flatnonzero(~result.binary)
    alpha = recovered.real_alpha
    solved = real_features(batch, alpha[np.ix_(recovered.kept, others)], alpha[np.ix_(others, others)])
    if solved.values is None:
        return replace(result, note=_joined(result.note, f"the other columns stay unknown: {solved.refusal}"))
    rows = result.rows.copy()
    rows[:, others] = solved.values
    return replace(result, rows=rows)


def _joined(note: str, more: str | None) -> str:
    return "; ".join(part for part in (note, more) if part)


def _with_all_columns(batch: np.ndarray, binary: np.ndarray) -> np.ndarray:
    """The batch with a column of nan for each column that was not searched for. Returns (m, d)."""
    rows = np.full((len(batch), len(binary)), np.nan)
    rows[:, binary] = batch
    return rows


def _same(one: Gram, other: Gram) -> bool:
    if one.rows != other.rows or (one.beta is None) != (other.beta is None):
        return False
    return np.array_equal(one.alpha, other.alpha) and (one.beta is None or np.array_equal(one.beta, other.beta))
