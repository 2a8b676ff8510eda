"""From the rounds of a batch to its rows: recover alpha and beta, search for the batch, then solve for what follows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.division import divide_rows
from vflbench.attacks.batch_reconstruction.asynchronous.local_batches import join_batches
from vflbench.attacks.batch_reconstruction.best_guess import guess_batch, guess_labels
from vflbench.attacks.batch_reconstruction.enumeration.exact import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.real_columns import real_features, with_likely_columns
from vflbench.attacks.batch_reconstruction.recover_gram import RecoveredGram, RecoveryMethod, TrainingRules, recover_gram
from vflbench.attacks.batch_reconstruction.search_result import SearchResult, certain, joined, same_grams, without_claims
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


def search(
    thetas: np.ndarray,
    updates: np.ndarray,
    rules: TrainingRules,
    options: SearchOptions,
    earlier: SearchResult | None = None,
) -> SearchResult:
    """The joint batch of all other participants.

    thetas: (n, d), the models before n rounds; updates: (n, d), the sums of the others' updates. earlier: the result from
    fewer rounds. It is reused if alpha and beta, and what they assume, are still the same.
    """
    recovered = recover_gram(thetas, updates, rules, options.recovery, knows_batch_size=options.knows_batch_size)
    if recovered.gram is None:
        return _guessed_from_estimate(recovered, rules)
    separate = recovered.total is not None and recovered.total.alphas is not None
    grams: tuple[Gram, ...] = (recovered.gram,)
    if separate:
        grams += tuple(Gram(alpha, None, rules.batch_size) for alpha in recovered.total.alphas)
    alike = earlier is not None and earlier.assumption == recovered.assumption and same_grams(earlier.grams, grams)
    if alike and _of_columns(earlier, recovered.kept, thetas.shape[1]):
        return replace(earlier, figures={**earlier.figures, **recovered.figures})
    if separate:
        result = _one_by_one(grams[1:], recovered, rules, options)
    else:
        result = _together(recovered, rules, options, thetas.shape[1])
    result = replace(result, grams=grams, assumption=recovered.assumption)
    return result if not recovered.assumption else replace(result, figures=without_claims(result.figures))


def _of_columns(result: SearchResult, kept: np.ndarray, columns: int) -> bool:
    """Whether the result is about these columns."""
    return len(kept) == columns or (result.binary is not None and np.array_equal(np.flatnonzero(result.binary), kept))


def _together(recovered: RecoveredGram, rules: TrainingRules, options: SearchOptions, columns: int) -> SearchResult:
    """All rows from one Gram matrix."""
    gram = recovered.gram
    solutions = _solve(gram, options)
    figures = {
        **recovered.figures,
        "matches": float(solutions.count),
        "proved": float(solutions.status in ("proved", "infeasible")),
        "unique": float(solutions.unique),
        "ended": float(solutions.ended),
        "solver_seconds": solutions.seconds,
    }
    if solutions.batches:
        result = _result(solutions, recovered, figures, columns, rules)
        return result if recovered.likely is None else _with_likely_columns(result, recovered, options)
    note = joined(recovered.note, f"{solutions.status}: {solutions.note}")
    if solutions.status == "infeasible":
        return SearchResult(figures=figures, note=note)
    guess, binary = guess_batch(gram.alpha, gram.beta, gram.rows), np.zeros(columns, dtype=bool)
    binary[recovered.kept] = True
    rows = _with_all_columns(guess.rows.astype(float), binary)
    return SearchResult(figures=figures, note=note, guessed_rows=rows, guessed_labels=guess.labels)


def _guessed_from_estimate(recovered: RecoveredGram, rules: TrainingRules) -> SearchResult:
    """Without integers: a guess from the estimates of alpha and beta, if there are any."""
    if recovered.estimate is None:
        return SearchResult(figures=recovered.figures, note=recovered.note)
    alpha, beta = recovered.estimate
    guess = guess_batch(alpha, beta, rules.others * rules.batch_size)
    rows = guess.rows.astype(float)
    return SearchResult(figures=recovered.figures, note=recovered.note, guessed_rows=rows, guessed_labels=guess.labels)


def _solve(gram: Gram, options: SearchOptions) -> Solutions:
    if options.solver == "exact":
        return enumerate_batches(gram, time_limit=options.time_limit, max_batches=options.max_batches)
    from vflbench.attacks.batch_reconstruction.integer_programme.solve import solve  # importing PuLP is slow

    return solve(gram, formulation=options.formulation, solver=options.solver, time_limit=options.time_limit)


def _one_by_one(
    grams: tuple[Gram, ...], recovered: RecoveredGram, rules: TrainingRules, options: SearchOptions
) -> SearchResult:
    """Two local batches, each from its own alpha, with labels that fit the update of both."""
    parts = [_solve(gram, options) for gram in grams]
    figures = {**recovered.figures, "solver_seconds": sum(part.seconds for part in parts)}
    if not all(part.batches for part in parts):
        return _guessed_one_by_one(grams, parts, recovered, figures)
    rate = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    both = join_batches(parts[0], parts[1], recovered.total, recovered.eta, rate, most=options.max_batches)
    pairs, single = both.pairs, both.complete and len(both.pairs) == 1
    shares = [
        share_of_ones(replace(part, batches=tuple(batches)))
        for part, batches in zip(parts, zip(*((pair.first, pair.second) for pair in pairs), strict=True), strict=True)
    ]
    rows = np.vstack([pairs[0].first, pairs[0].second]).astype(float)
    labels = np.full(len(rows), np.nan)
    if pairs[0].first_labels is not None:
        labels = np.where(rows.any(axis=1), np.concatenate([pairs[0].first_labels, pairs[0].second_labels]), np.nan)
    claims = {
        "matches": float(len(pairs)),
        "proved": float(both.complete),
        "unique": float(single),
        "told_apart": float(single),
        "entries_certain": certain(np.vstack(shares), both.complete),
    }
    return SearchResult(
        rows,
        labels,
        tuple(np.vstack([pair.first, pair.second]).astype(float) for pair in pairs),
        np.repeat([0.0, 1.0], rules.batch_size),
        np.ones(rows.shape[1], dtype=bool),
        np.vstack(shares),
        {**figures, **claims},
        joined(recovered.note, None if both.labels_fit else "no labels of these rows fit the update"),
    )


def _guessed_one_by_one(
    grams: tuple[Gram, ...], parts: list[Solutions], recovered: RecoveredGram, figures: Mapping[str, float]
) -> SearchResult:
    """The batch that was found, if one was, and a guess of the other one."""
    infeasible = any(part.status == "infeasible" for part in parts)
    figures = {**figures, "matches": 0.0, "proved": float(infeasible), "unique": 0.0, "told_apart": 0.0}
    missing = next(part for part in parts if not part.batches)
    note = joined(recovered.note, f"{missing.status}: {missing.note}")
    if infeasible:
        return SearchResult(figures=figures, note=note)
    rows = [
        part.batches[0] if part.batches else guess_batch(gram.alpha, None, gram.rows).rows
        for gram, part in zip(grams, parts, strict=True)
    ]
    together = np.vstack(rows).astype(float)
    beta = recovered.total.beta_sum
    labels = None if beta is None else guess_labels(together, beta)
    return SearchResult(figures=figures, note=note, guessed_rows=together, guessed_labels=labels)


def _result(
    solutions: Solutions, recovered: RecoveredGram, figures: Mapping[str, float], columns: int, rules: TrainingRules
) -> SearchResult:
    """The first matching batch, and what it determines."""
    labels = 2 * solutions.labels[0][0] - 1 if solutions.labels and solutions.labels[0] else None
    result = SearchResult(
        solutions.batches[0].astype(float), labels, solutions.batches, figures=figures, note=recovered.note
    )
    if rules.batches == 2:
        result = _divided(result, recovered, rules, complete=solutions.complete)
    binary = np.zeros(columns, dtype=bool)
    binary[recovered.kept] = True
    shares = _with_all_columns(share_of_ones(replace(solutions, batches=result.candidates)), binary)
    result = replace(
        result,
        binary=binary,
        rows=_with_all_columns(result.rows, binary),
        shares=shares,
        candidates=tuple(_with_all_columns(batch.astype(float), binary) for batch in result.candidates),
        figures={**result.figures, "entries_certain": certain(shares, solutions.complete)},
    )
    if recovered.real_alpha is None:
        return result
    return _with_real_columns(result, solutions, recovered)


def _divided(result: SearchResult, recovered: RecoveredGram, rules: TrainingRules, *, complete: bool) -> SearchResult:
    """The rows of the first local batch, then those of the second, if the second-order term determines the division."""
    rate = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    division = divide_rows(result.candidates, recovered.total, recovered.eta, rate, rows=rules.batch_size)
    figures = {**result.figures, "told_apart": float(division.unique and complete)}
    if not division.batches:
        return replace(result, figures=figures, note=joined(result.note, division.refusal))
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


def _with_real_columns(result: SearchResult, solutions: Solutions, recovered: RecoveredGram) -> SearchResult:
    """With the real-valued columns of the same rows, if these rows determine them."""
    others = np.flatnonzero(~result.binary)
    alpha, batch = recovered.real_alpha, solutions.batches[0]
    solved = real_features(batch, alpha[np.ix_(recovered.kept, others)], alpha[np.ix_(others, others)])
    if solved.values is None:
        return replace(result, note=joined(result.note, f"the other columns stay unknown: {solved.refusal}"))
    rows = result.rows.copy()
    rows[:, others] = solved.values
    return replace(result, rows=rows)


def _with_likely_columns(result: SearchResult, recovered: RecoveredGram, options: SearchOptions) -> SearchResult:
    """With a guess of the columns that the rounds do not determine, about which nothing is claimed."""
    solutions = _solve(recovered.likely, options)
    if not solutions.batches or not np.isnan(result.rows[:, recovered.likely_columns]).any():
        return result
    batch = solutions.batches[0].astype(float)
    guess = with_likely_columns(result.rows, recovered.kept, batch, recovered.likely_columns)
    return replace(result, guessed_rows=guess)


def _with_all_columns(batch: np.ndarray, binary: np.ndarray) -> np.ndarray:
    """The batch with a column of nan for each column that was not searched for. Returns (m, d)."""
    rows = np.full((len(batch), len(binary)), np.nan)
    rows[:, binary] = batch
    return rows
