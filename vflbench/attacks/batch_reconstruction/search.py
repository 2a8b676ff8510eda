"""From the rounds of a batch to its rows: recover alpha and beta, search for the batch, then solve for what follows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous import TotalSums, join_batches, recover_map, recover_total
from vflbench.attacks.batch_reconstruction.enumeration import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.real_columns import binary_columns, real_features
from vflbench.attacks.batch_reconstruction.recover import RecoveredSums, least_squares, rounding_unit, selective_sums
from vflbench.attacks.batch_reconstruction.solutions import Solutions, share_of_ones
from vflbench.messages.facts import Schema

_CLAIMS = ("proved", "unique", "told_apart", "entries_certain")


@dataclass(frozen=True)
class SearchResult:
    """What the rounds determine of one batch.

    rows: (m, d) float64, nan for unknown entries; None if there is no solution. labels: (m,) in [-1, 1], the mean label of
    equal rows, nan if unknown; None if there is no solution. candidates: all matching batches (m, d), of which `rows` is the
    first. steps: (m,) of 0 and 1, the local batch of each row, or None if unknown. binary: (d,) bool, the columns that were
    searched for; the others follow from linear equations. shares: (m, d), the share of the candidates in which an entry is
    1, after their rows were matched to `rows`. figures: measurements of the search. note: what is missing, and why.
    grams: the Gram matrices that were searched for. assumption: of `RecoveredGram`. A later
    call with the same ones reuses this result.

    Of the figures, `proved`, `unique`, `told_apart` and `entries_certain` are 0 where alpha and beta rest on an assumption.
    """

    rows: np.ndarray | None = None
    labels: np.ndarray | None = None
    candidates: tuple[np.ndarray, ...] = ()
    steps: np.ndarray | None = None
    binary: np.ndarray | None = None
    shares: np.ndarray | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    grams: tuple[Gram, ...] = ()
    assumption: str = ""


def without_claims(figures: Mapping[str, float]) -> dict[str, float]:
    """An assumption proves nothing."""
    return {name: 0.0 if name in _CLAIMS else value for name, value in figures.items()}


def certain(shares: np.ndarray, complete: bool) -> float:
    """The share of the entries (m, d) in which all matching batches agree, 0 unless these are all. nan: not certain."""
    return float(((shares == 0) | (shares == 1)).mean()) if complete else 0.0


def _values(grams: Sequence[Gram]) -> list[tuple[Any, ...]]:
    """What can be compared."""
    return [(gram.rows, gram.alpha.tobytes(), gram.beta is None or gram.beta.tobytes()) for gram in grams]


def side_by_side(results: Sequence[SearchResult], rows: Sequence[int], most: int) -> SearchResult:
    """The results of several participants' batches as one, participant by participant.

    rows: of each batch. Where a batch has no solution, its rows and labels are nan. The figures claim what holds for every
    batch. most: the largest number of joint candidates.
    """
    if len(results) == 1:
        return results[0]
    columns = next((r.rows.shape[1] for r in results if r.rows is not None), None)
    notes = dict.fromkeys(r.note for r in results if r.note)
    merged = SearchResult(figures=_of_all([r.figures for r in results]), note="; ".join(notes))
    if columns is None:
        return merged
    parts = [_whole(r, n, columns) for r, n in zip(results, rows, strict=True)]
    binary = np.all([r.binary for r in results if r.binary is not None], axis=0)
    joint = product(*(r.candidates for r in results))
    steps = None if any(r.steps is None for r in results) else np.concatenate([r.steps for r in results])
    return replace(
        merged,
        rows=np.concatenate([part[0] for part in parts]),
        labels=np.concatenate([part[1] for part in parts]),
        shares=np.concatenate([part[2] for part in parts]),
        candidates=tuple(np.concatenate(batches) for batches in islice(joint, most)),
        steps=steps,
        binary=binary,
    )


def _whole(result: SearchResult, rows: int, columns: int) -> tuple[np.ndarray, ...]:
    """rows, labels and shares, nan where there are none."""
    empty, none = np.full((rows, columns), np.nan), np.full(rows, np.nan)
    names = ("rows", "labels", "shares")
    return tuple(
        (none if "labels" in name else empty) if getattr(result, name) is None else getattr(result, name) for name in names
    )


def _of_all(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Claims hold if they hold for all batches. Matches multiply, seconds add up; the fewest rounds, else the largest."""
    combined: dict[str, float] = {}
    for name in dict.fromkeys(name for each in figures for name in each):
        values = [each[name] for each in figures if name in each]
        if name == "entries_certain":
            combined[name] = sum(values) / len(figures)
        elif name in _CLAIMS:
            combined[name] = min(values) if len(values) == len(figures) else 0.0
        elif name == "matches":
            combined[name] = math.prod(values) if len(values) == len(figures) else 0.0
        elif name == "solver_seconds":
            combined[name] = sum(values)
        else:
            combined[name] = min(values) if name == "rounds" else max(values)
    return combined


_DEVIATIONS = 6.0  # standard errors that a true value may be off
_LARGEST_ERROR = 1e-3  # of alpha's entries; with a larger one real-valued columns can't be distinguished from noise
_ONLY_BINARY = "the columns hold only 0 and 1, which no schema says"
_NOTHING_WITHHELD = "updates are whole, which no rule says"
_NOTHING_BEYOND = "no row has a part in a direction that no model took"
_ZERO = 1e-12  # of the largest coordinate, and
_ROUNDINGS = 64.0  # of the models: the rounding of a coordinate that was sent as 0


@dataclass(frozen=True)
class TrainingRules:
    """What the participants agreed on. others: participants whose updates are summed; batches: local steps of a round, each
    on `batch_size` rows. whole: whether every coordinate of an update is sent; whole_is_known: whether they agreed on that,
    or it is an assumption. schema: of the columns, or None if it isn't known: which ones are binary is an assumption then.
    """

    others: int
    rate: float
    reduction: Literal["sum", "mean"]
    batches: int
    batch_size: int
    whole: bool = True
    schema: Schema | None = None
    whole_is_known: bool = True

    @property
    def assumption(self) -> str:
        """What is taken for granted because the rules don't say it."""
        return _joined(
            _ONLY_BINARY if self.schema is None else "", "" if self.whole_is_known or not self.whole else _NOTHING_WITHHELD
        )


@dataclass(frozen=True)
class RecoveredGram:
    """gram: of the columns `kept`. real_alpha: (d, d) of all columns, unrounded, or None. total: of several local
    batches, or None. note: why gram is None, or lacks columns. assumption: what alpha and beta take for granted beyond the
    rounds and the rules, one sentence, or "" if they are proved. What follows from an assumption is not certain.
    """

    figures: Mapping[str, float]
    gram: Gram | None = None
    kept: np.ndarray | None = None
    real_alpha: np.ndarray | None = None
    total: TotalSums | None = None
    note: str = ""
    assumption: str = ""


def recover_gram(thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules, *, knows_batch_size: bool) -> RecoveredGram:
    """alpha and beta, in integers, of as many columns as the updates determine.

    thetas, updates: (n, d), the models before n rounds and the sums of the others' updates.
    """
    if why := _why_not(thetas, updates, rules, knows_batch_size):
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    if rules.batches > 1:
        return _of_several_batches(thetas, updates, rules)
    rows = rules.others * rules.batch_size if knows_batch_size else None
    reduction = "sum" if knows_batch_size else rules.reduction
    if rules.reduction == "mean":
        updates = updates * rules.batch_size if knows_batch_size else updates / rules.others
    if not rules.whole:
        shared = _shared(thetas, updates)
        recovered = selective_sums(thetas, updates, shared, rate=rules.rate, rows=rows, schema=rules.schema)
    else:
        known: dict[str, Any] = {"rate": rules.rate, "reduction": reduction, "rows": rows, "schema": rules.schema}
        recovered = least_squares(thetas, updates, **known)
        if recovered.columns is None and len(thetas) > thetas.shape[1]:
            beyond = least_squares(thetas, updates, **known, nothing_beyond=True)
            if beyond.refusal is None and beyond.rows is not None:
                recovered = replace(beyond, assumption=_NOTHING_BEYOND)
    measured = {"rounds": recovered.rounds, "condition": recovered.condition, "residual": recovered.residual}
    figures = {name: float(value) for name, value in measured.items() if value is not None}
    if recovered.refusal is None and recovered.rows is None:
        return RecoveredGram(figures, note="the batch size is not known, and sums of gradients do not determine it")
    if recovered.refusal is not None:
        return _of_mixed_columns(recovered, rules.schema, figures)
    assumption = _joined(
        recovered.assumption,
        "the batch has the least size that fits" if rows is None and reduction == "mean" else "",
        rules.assumption,
    )
    binary = range(thetas.shape[1]) if rules.schema is None else rules.schema.binary
    left_out = _joined(
        _columns("not binary by the schema", sorted(set(range(thetas.shape[1])) - set(binary))),
        _columns("not determined by these rounds", recovered.undetermined),
    )
    real_alpha = _precise_alpha(recovered) if left_out else None
    note = _joined(left_out, assumption)
    return RecoveredGram(figures, recovered.gram, recovered.columns, real_alpha, note=note, assumption=assumption)


def _why_not(thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules, knows_batch_size: bool) -> str:
    """Why such updates determine nothing, whatever their numbers are, or ""."""
    several, alone = rules.batches > 1, rules.others == 1
    reasons = {
        "every update is exactly 0: nothing to solve for was sent": len(thetas) > 1
        and not updates.any(),  # or a grid did it
        "the summed differences of several participants with several local steps each are no single map": several
        and not alone,
        "several local steps are undone for binary columns only, and by the schema there are others": several
        and rules.schema is not None
        and len(rules.schema.binary) < thetas.shape[1],
        "partly shared updates of several local steps are no map of the models": several and not rules.whole,
        "partly shared updates of several participants do not show who sent which coordinates": not rules.whole
        and not alone,
        "partly shared updates need a known batch size": not rules.whole and not knows_batch_size,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _of_mixed_columns(recovered: RecoveredSums, schema: Schema | None, figures: Mapping[str, float]) -> RecoveredGram:
    """The binary columns among others, recognised by their sums if no schema names them and alpha is precise enough."""
    nothing = RecoveredGram(figures, note=recovered.refusal or "")
    if schema is not None or recovered.real_alpha is None or recovered.rows is None or recovered.columns is None:
        return nothing
    columns = recovered.columns
    alpha, beta = recovered.real_alpha[np.ix_(columns, columns)], recovered.real_beta[columns]
    error = _DEVIATIONS * max(recovered.alpha_error[np.ix_(columns, columns)].max(), recovered.beta_error[columns].max())
    if not error < _LARGEST_ERROR:
        return nothing
    kept = binary_columns(alpha, beta, recovered.rows, max(error, 1e-6))
    if len(kept) in (0, len(columns)):
        return nothing
    integers = np.rint(alpha[np.ix_(kept, kept)]).astype(np.int64), np.rint(beta[kept]).astype(np.int64)
    note = _joined(
        _columns("not binary by their sums", np.delete(columns, kept).tolist()),
        _columns("not determined by these rounds", recovered.undetermined),
        _ONLY_BINARY,
    )
    gram, real_alpha = Gram(*integers, recovered.rows), _precise_alpha(recovered)
    return RecoveredGram(figures, gram, columns[kept], real_alpha, note=note, assumption=_ONLY_BINARY)


def _precise_alpha(recovered: RecoveredSums) -> np.ndarray:
    """alpha, unrounded, nan where it is too imprecise to solve for real values."""
    return np.where(_DEVIATIONS * recovered.alpha_error < _LARGEST_ERROR / 10, recovered.real_alpha, np.nan)


def _columns(title: str, columns: Sequence[int]) -> str:
    """The first five of the columns, or "" for none."""
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return f"{title}: column {', '.join(map(str, columns[:5]))}{more}" if columns else ""


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _of_several_batches(thetas: np.ndarray, updates: np.ndarray, rules: TrainingRules) -> RecoveredGram:
    """The sums over all local batches, from the affine map that their steps compose."""
    labelled = rules.batches * (rules.batch_size if rules.reduction == "sum" else 1)
    fit = recover_map(thetas, updates, intermediate=rules.rate / 2 * labelled)
    figures = {"rounds": float(len(thetas)), **({} if fit.condition is None else {"condition": fit.condition})}
    if fit.refusal is not None:
        return RecoveredGram(figures, note=fit.refusal)
    rate = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    error = max(fit.linear_error.max(), fit.constant_error.max())
    total = recover_total(-fit.linear.T, fit.constant, rate, rules.batches, rows=rules.batch_size, error=error)
    if total.refusal:
        return RecoveredGram(figures, note=total.refusal)
    gram = Gram(total.alpha_sum, total.beta_sum, rules.batches * rules.batch_size)
    assumption = _joined(total.assumption, rules.assumption)
    return RecoveredGram(figures, gram, np.arange(thetas.shape[1]), None, total, note=assumption, assumption=assumption)


def _shared(thetas: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """(n, d) bool: which coordinates were sent; the others are 0 up to rounding, of the models that they are differences of.

    A coordinate that was never sent must not pass for one whose updates are 0, and so for a column of zeros.
    """
    rounding = _ROUNDINGS * rounding_unit(thetas, updates) * (np.abs(thetas).max() + np.abs(updates).max())
    return np.abs(updates) > np.maximum(_ZERO * np.abs(updates).max(axis=1, keepdims=True), rounding)


@dataclass(frozen=True)
class SearchOptions:
    """How to search for a batch: the options of the attack."""

    solver: Literal["exact", "highs", "cbc"] = "exact"
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
    recovered = recover_gram(thetas, updates, rules, knows_batch_size=options.knows_batch_size)
    if recovered.gram is None:
        return SearchResult(figures=recovered.figures, note=recovered.note)
    separate = recovered.total is not None and recovered.total.alphas is not None
    grams: tuple[Gram, ...] = (recovered.gram,)
    if separate:
        grams += tuple(Gram(alpha, None, rules.batch_size) for alpha in recovered.total.alphas)
    alike = earlier is not None and earlier.assumption == recovered.assumption and _values(earlier.grams) == _values(grams)
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
        return _result(solutions, recovered, figures, columns, rules)
    return SearchResult(figures=figures, note=_joined(recovered.note, f"{solutions.status}: {solutions.note}"))


def _solve(gram: Gram, options: SearchOptions) -> Solutions:
    if options.solver == "exact":
        return enumerate_batches(gram, time_limit=options.time_limit, max_batches=options.max_batches)
    from vflbench.attacks.batch_reconstruction.integer_programme import solve  # importing PuLP is slow

    return solve(gram, formulation=options.formulation, solver=options.solver, time_limit=options.time_limit)


def _one_by_one(
    grams: tuple[Gram, ...], recovered: RecoveredGram, rules: TrainingRules, options: SearchOptions
) -> SearchResult:
    """Two local batches, each from its own alpha, with labels that fit the update of both."""
    parts = [_solve(gram, options) for gram in grams]
    figures = {**recovered.figures, "solver_seconds": sum(part.seconds for part in parts)}
    if not all(part.batches for part in parts):
        claims = {"matches": 0.0, "proved": float(any(part.status == "infeasible" for part in parts))}
        missing = next(part for part in parts if not part.batches)
        note = _joined(recovered.note, f"{missing.status}: {missing.note}")
        return SearchResult(figures={**figures, **claims, "unique": 0.0, "told_apart": 0.0}, note=note)
    pairs, complete = join_batches(parts[0], parts[1], recovered.total, most=options.max_batches)
    size = rules.batch_size
    shares = [
        share_of_ones(replace(part, batches=tuple(rows[place] for rows, _ in pairs)))
        for part, place in zip(parts, (slice(size), slice(size, None)), strict=True)
    ]
    rows, labels = pairs[0]
    single = float(complete and len(pairs) == 1)
    claims = {
        "matches": float(len(pairs)),
        "proved": float(complete),
        "unique": single,
        "told_apart": single,
        "entries_certain": certain(np.vstack(shares), complete),
    }
    return SearchResult(
        rows.astype(float),
        np.full(len(rows), np.nan) if labels is None else labels,
        tuple(rows.astype(float) for rows, _ in pairs),
        np.repeat([0.0, 1.0], size),
        np.ones(rows.shape[1], dtype=bool),
        np.vstack(shares),
        {**figures, **claims},
        _joined(recovered.note, "no labels of these rows are determined by the update" if labels is None else ""),
    )


def _result(
    solutions: Solutions, recovered: RecoveredGram, figures: Mapping[str, float], columns: int, rules: TrainingRules
) -> SearchResult:
    """The first matching batch, and what it determines."""
    labels = 2 * solutions.labels[0][0] - 1 if solutions.labels and solutions.labels[0] else None
    result = SearchResult(
        solutions.batches[0].astype(float), labels, solutions.batches, figures=figures, note=recovered.note
    )
    if rules.batches == 2:
        result = replace(result, figures={**result.figures, "told_apart": 0.0})
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


def _with_real_columns(result: SearchResult, solutions: Solutions, recovered: RecoveredGram) -> SearchResult:
    """With the real-valued columns of the same rows, if these rows determine them."""
    others = np.flatnonzero(~result.binary)
    alpha, batch = recovered.real_alpha, solutions.batches[0]
    values, refusal = real_features(batch, alpha[np.ix_(recovered.kept, others)], alpha[np.ix_(others, others)])
    if values is None:
        return replace(result, note=_joined(result.note, f"the other columns stay unknown: {refusal}"))
    rows = result.rows.copy()
    rows[:, others] = values
    return replace(result, rows=rows)


def _with_all_columns(batch: np.ndarray, binary: np.ndarray) -> np.ndarray:
    """The batch with a column of nan for each column that was not searched for. Returns (m, d)."""
    rows = np.full((len(batch), len(binary)), np.nan)
    rows[:, binary] = batch
    return rows
