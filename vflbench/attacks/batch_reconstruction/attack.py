"""Batch reconstruction: a whole private batch, from the updates that were computed on it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.attacks.batch_reconstruction.asynchronous import TotalSums, join_batches, recover_map, recover_total
from vflbench.attacks.batch_reconstruction.enumeration import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import (
    Gram,
    Solutions,
    agreed,
    guesses_by_columns,
    rank,
    share_of_ones,
)
from vflbench.attacks.batch_reconstruction.integer_programme import solve
from vflbench.attacks.batch_reconstruction.recover import RecoveredSums, least_squares, rounding_unit, selective_sums
from vflbench.messages.facts import ClassShares, PartyFeatures, Rules, Schema, Updates
from vflbench.messages.threat import Role, Threat, View
from vflbench.options import Seconds, Steps, options

_CLAIMS = ("proved", "unique", "batches_separated", "entries_certain")
_DEVIATIONS = 6.0  # standard errors that a true value may be off
_LARGEST_ERROR = 1e-3  # of alpha's entries; with a larger one real-valued columns can't be distinguished from noise
_NOTHING_WITHHELD = "updates are whole, which no rule says"
_NOTHING_SENT = "all products that the rounds determine are 0, which a coarse grid would send as well"
_ZERO = 1e-12  # of the largest coordinate, and
_ROUNDINGS = 64.0  # of the models: the rounding of a coordinate that was sent as 0

Solved = dict[tuple[Any, ...], Solutions]


@options
class BatchReconstruction(Attack):
    """Solve for the rows and labels of the other participants' batch, from the models and the updates of several rounds.

        4 g(theta) = alpha theta - 2 beta,   alpha = X^T X,   beta = X^T Y:   d + 1 rounds of one batch determine both,
        and then X, Y in integers from alpha and beta

    With several other participants, the attacker knows the sum of their updates, and rebuilds all their rows together. If it
    sees each update (protocol.aggregation=plain), it rebuilds each batch alone.

    solver: `exact` enumerates every batch that matches, `highs` and `cbc` solve an integer programme for one. formulation:
    form of the programme: `tight`, or as `published`.
    time_limit: seconds for one batch. max_batches: largest number of matching batches that are listed. Columns
    that are not binary, by the rules' schema, are solved for where the binary ones determine the rows.

    The answer holds the first matching batch; `matches` counts all of them. If none is found, the answer is a guess, and
    counts as no match: entries are drawn with the shares of ones in the attacker's own rows, and labels are the majority of
    the training rows.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019; the enumeration, the tight
    programme, real-valued columns and the answer to asynchronous training are ours.
    """

    threat = Threat(Role.PARTICIPANT, {Updates, PartyFeatures, ClassShares})

    solver: Literal["exact", "highs", "cbc"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    time_limit: Seconds = 10.0
    max_batches: Steps = 1000

    def __post_init__(self) -> None:
        self._rounds: dict[str, dict[str, Any]] = {}  # step -> what is kept of its rounds
        self._solved: dict[str, Solved] = {}

    def batch(self, view: View) -> None:
        """Keep one more round of the batch of view.step."""
        updates, columns = view[Updates], view[PartyFeatures].numeric.double().cpu()
        # (sources, d): the update of each other participant where they are seen one by one, else their sum.
        seen = torch.stack(list(updates.received.values()) or [updates.others]).cpu()
        before = updates.before.cpu()
        nothing = {"before": before[None][:0], "others": seen[None][:0], "ones": 0, "rows": 0}
        kept = self._rounds.setdefault(str(view.step), {"rules": asdict(updates.rules), **nothing})
        kept["before"], kept["others"] = torch.cat([kept["before"], before[None]]), torch.cat([kept["others"], seen[None]])
        kept["ones"], kept["rows"] = kept["ones"] + columns.sum(dim=0), kept["rows"] + len(columns)

    def epoch(self, view: View) -> Sequence[RebuiltBatch]:
        """Every batch so far, as far as its rounds determine it."""
        return [self._rebuild(step, view[ClassShares].positive) for step in sorted(map(int, self._rounds))]

    def _rebuild(self, step: int, positive: float) -> RebuiltBatch:
        """positive: the share of positives among the training rows."""
        kept, solved = self._rounds[str(step)], self._solved.setdefault(str(step), {})
        thetas, updates = kept["before"].double().numpy(), kept["others"].double().numpy()
        rules = Rules(**{**kept["rules"], "schema": Schema(**kept["rules"]["schema"])})
        sources = updates.shape[1]
        rules = rules if sources == 1 else replace(rules, parties=2)
        results = [search(thetas, updates[:, k], rules, self, solved=solved) for k in range(sources)]
        rows = (rules.parties - 1) * rules.batches * rules.batch_size
        shares, label = kept["ones"] / kept["rows"], 1.0 if positive > 0.5 else -1.0
        guesses = guesses_by_columns(shares.numpy(), sources * rows, seed=step)
        return _answer(step, side_by_side(results, rows, self.max_batches), guesses, shares, label)

    def state(self) -> dict[str, Any]:
        """The rounds so far; results follow from them."""
        return {"rounds": self._rounds}

    def restore(self, state: dict[str, Any]) -> None:
        self._rounds = copy.deepcopy(state["rounds"])


def _answer(step: int, result: SearchResult, column_guesses: np.ndarray, shares: Tensor, guess_label: float) -> RebuiltBatch:
    known = {name: getattr(result, name) for name in ("rows", "labels", "steps", "binary", "shares")}
    tensors: dict[str, Any] = {name: torch.from_numpy(part) for name, part in known.items() if part is not None}
    guesses = torch.from_numpy(column_guesses).double()
    if result.rows is None or np.isnan(result.rows).any():
        tensors["guessed_rows"] = guesses[0]
    tensors |= {"column_guesses": guesses, "candidates": tuple(map(torch.from_numpy, result.candidates))}
    return RebuiltBatch(step, (shares > 0.5).double(), guess_label, **tensors, figures=result.figures, note=result.note)


@dataclass(frozen=True)
class SearchResult:
    """What the rounds determine of one batch.

    rows: (m, d) float64, nan for unknown entries; None if there is no solution. labels: (m,) in [-1, 1], the mean label of
    equal rows, nan if unknown or if several labellings of `rows` fit; None if there is no solution. candidates: all matching
    batches (m, d), of which `rows` is the first. steps: (m,) of 0 and 1, the local batch of each row, or None if unknown.
    binary: (d,) bool, the columns that were searched for; the others follow from linear equations. shares: (m, d), the share
    of the candidates in which an entry is 1, after their rows were matched to `rows`. figures: measurements of the search.
    note: what is missing, and why. assumption: of `RecoveredGram`; with one, `proved`, `unique`, `batches_separated` and
    `entries_certain` are 0 of the figures.
    """

    rows: np.ndarray | None = None
    labels: np.ndarray | None = None
    candidates: tuple[np.ndarray, ...] = ()
    steps: np.ndarray | None = None
    binary: np.ndarray | None = None
    shares: np.ndarray | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    assumption: str = ""


def side_by_side(results: Sequence[SearchResult], rows: int, most: int) -> SearchResult:
    """The results of several participants' batches as one, participant by participant.

    rows: of each batch. Where a batch has no solution, its rows and labels are nan. The figures claim what holds for every
    batch: the least of claims, 0 where one is missing; matches multiply, seconds add up; the fewest rounds, else the most.
    most: the largest number of joint candidates.
    """
    if len(results) == 1:
        return results[0]
    merge = {"entries_certain": lambda values: sum(values) / len(values), "matches": math.prod, "solver_seconds": sum}
    merge |= dict.fromkeys(("proved", "unique", "batches_separated", "rounds"), min)
    figures: dict[str, float] = {}
    for name in dict.fromkeys(name for result in results for name in result.figures):
        always = name in (*_CLAIMS, "matches")
        values = [result.figures.get(name, 0.0) for result in results if always or name in result.figures]
        figures[name] = merge.get(name, max)(values)
    known = [result for result in results if result.rows is not None]
    notes = dict.fromkeys(result.note for result in results if result.note)
    merged = SearchResult(figures=figures, note="; ".join(notes))
    if not known:
        return merged
    width = known[0].rows.shape[1]
    shapes = {"rows": (rows, width), "labels": (rows,), "shares": (rows, width)}
    parts: dict[str, Any] = {
        name: np.concatenate([np.full(shape, np.nan) if (part := getattr(r, name)) is None else part for r in results])
        for name, shape in shapes.items()
    }
    return replace(
        merged,
        **parts,
        candidates=tuple(np.concatenate(joint) for joint in islice(product(*(r.candidates for r in results)), most)),
        steps=None if any(r.steps is None for r in results) else np.concatenate([r.steps for r in results]),
        binary=np.all([r.binary for r in known], axis=0),
    )


@dataclass(frozen=True)
class RecoveredGram:
    """gram: of the columns `kept`. real_alpha: (d, d) of all columns, unrounded, or None. total: of several local
    batches, or None. note: why gram is None, or lacks columns. assumption: what alpha and beta take for granted beyond the
    rounds and the rules, one sentence, or "" if they follow from these. What follows from an assumption is not certain.
    """

    figures: Mapping[str, float]
    gram: Gram | None = None
    kept: np.ndarray | None = None
    real_alpha: np.ndarray | None = None
    total: TotalSums | None = None
    note: str = ""
    assumption: str = ""


def recover_gram(thetas: np.ndarray, updates: np.ndarray, rules: Rules) -> RecoveredGram:
    """alpha and beta, in integers, of as many columns as the updates determine.

    thetas, updates: (n, d), the models before n rounds and the sums of the others' updates.
    """
    others, several = rules.parties - 1, rules.batches > 1
    whole = rules.whole is not False
    reasons = {
        "the models are no finite numbers: training diverged": not (
            np.isfinite(thetas).all() and np.isfinite(updates).all()
        ),
        "the summed differences of several participants with several local steps each are no single map": several
        and others > 1,
        "several local steps are undone for binary columns only, and by the schema there are others": several
        and len(rules.schema.binary) < thetas.shape[1],
        "partly shared updates of several local steps are no map of the models": several and not whole,
        "partly shared updates of several participants do not show who sent which coordinates": not whole and others > 1,
    }
    if why := next((why for why, holds in reasons.items() if holds), ""):
        return RecoveredGram({"rounds": float(len(thetas))}, note=why)
    agreed = _NOTHING_WITHHELD if rules.whole is None else ""
    if several:
        return _of_several_batches(thetas, updates, rules, agreed)
    rows = others * rules.batch_size
    updates = updates * rules.batch_size if rules.reduction == "mean" else updates
    known: dict[str, Any] = {"rate": rules.rate, "rows": rows, "schema": rules.schema}
    beyond = ""
    if whole:
        recovered = least_squares(thetas, updates, **known)
        if recovered.columns is None and len(thetas) > thetas.shape[1]:
            assuming = least_squares(thetas, updates, **known, nothing_beyond=True)
            if assuming.refusal is None:
                recovered, beyond = assuming, "no row has a part in a direction that no model took"
    else:
        recovered = selective_sums(thetas, updates, _shared(thetas, updates), **known)
    measured = {"rounds": recovered.rounds, "condition": recovered.condition, "residual": recovered.residual}
    figures = {name: float(value) for name, value in measured.items() if value is not None}
    if recovered.refusal is not None:
        return RecoveredGram(figures, note=recovered.refusal)
    if not (np.abs(recovered.real_alpha) > 8 * recovered.alpha_error).any():
        return RecoveredGram(figures, note=_NOTHING_SENT)
    assumption = _joined(beyond, agreed)
    real = sorted(set(range(thetas.shape[1])) - set(rules.schema.binary))
    left_out = _joined(
        _columns("not binary by the schema", real),
        _columns("not determined by these rounds", recovered.undetermined),
    )
    real_alpha = _precise_alpha(recovered) if left_out else None
    note = _joined(left_out, assumption)
    gram = Gram(recovered.alpha, recovered.beta, rows)
    return RecoveredGram(figures, gram, recovered.columns, real_alpha, note=note, assumption=assumption)


def _precise_alpha(recovered: RecoveredSums) -> np.ndarray:
    """alpha, unrounded, nan where it is too imprecise to solve for real values."""
    return np.where(_DEVIATIONS * recovered.alpha_error < _LARGEST_ERROR / 10, recovered.real_alpha, np.nan)


def _columns(title: str, columns: Sequence[int]) -> str:
    """The first five of the columns, or "" for none."""
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return f"{title}: column {', '.join(map(str, columns[:5]))}{more}" if columns else ""


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _of_several_batches(thetas: np.ndarray, updates: np.ndarray, rules: Rules, agreed: str) -> RecoveredGram:
    """The sums over all local batches, from the affine map that their steps compose."""
    labelled = rules.batches * (rules.batch_size if rules.reduction == "sum" else 1)
    fit = recover_map(thetas, updates, intermediate=rules.rate / 2 * labelled)
    figures = {"rounds": float(len(thetas))} | ({} if fit.condition is None else {"condition": fit.condition})
    if fit.refusal is not None:
        return RecoveredGram(figures, note=fit.refusal)
    rate = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    error = max(fit.linear_error.max(), fit.constant_error.max())
    total = recover_total(-fit.linear.T, fit.constant, rate, rules.batches, rows=rules.batch_size, error=error)
    if total.refusal or not total.alpha_sum.any():
        return RecoveredGram(figures, note=total.refusal or _NOTHING_SENT)
    gram = Gram(total.alpha_sum, total.beta_sum, rules.batches * rules.batch_size)
    assumption = _joined(total.assumption, agreed)
    return RecoveredGram(figures, gram, np.arange(thetas.shape[1]), None, total, note=assumption, assumption=assumption)


def _shared(thetas: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """(n, d) bool: which coordinates were sent; the others are 0 up to rounding, of the models that they are differences of.

    A coordinate that was never sent must not pass for one whose updates are 0, and so for a column of zeros.
    """
    rounding = _ROUNDINGS * rounding_unit(thetas, updates) * (np.abs(thetas).max() + np.abs(updates).max())
    return np.abs(updates) > np.maximum(_ZERO * np.abs(updates).max(axis=1, keepdims=True), rounding)


def search(
    thetas: np.ndarray,
    updates: np.ndarray,
    rules: Rules,
    options: BatchReconstruction,
    *,
    solved: Solved | None = None,
) -> SearchResult:
    """The joint batch of all other participants.

    thetas: (n, d), the models before n rounds; updates: (n, d), the sums of the others' updates. solved: what was found
    for the sums of fewer rounds; a search for the same ones is not repeated.
    """
    solved = {} if solved is None else solved
    recovered = recover_gram(thetas, updates, rules)
    if recovered.gram is None:
        return SearchResult(figures=recovered.figures, note=recovered.note)
    if recovered.total is not None and recovered.total.alphas is not None:
        parts = [_solved(Gram(alpha, None, rules.batch_size), options, solved) for alpha in recovered.total.alphas]
        result = _one_by_one(parts, recovered, options.max_batches)
    else:
        result = _together(_solved(recovered.gram, options, solved), recovered, thetas.shape[1], rules.batches == 2)
    if not recovered.assumption:
        return result
    figures = {name: 0.0 if name in _CLAIMS else value for name, value in result.figures.items()}
    return replace(result, figures=figures, assumption=recovered.assumption)  # which proves nothing


def _solved(gram: Gram, options: BatchReconstruction, solved: Solved) -> Solutions:
    key = (gram.rows, gram.alpha.tobytes(), gram.beta is None or gram.beta.tobytes())
    if key not in solved:
        limit = options.time_limit
        if options.solver == "exact":
            solved[key] = enumerate_batches(gram, time_limit=limit, max_batches=options.max_batches)
        else:
            solved[key] = solve(gram, formulation=options.formulation, solver=options.solver, time_limit=limit)
    return solved[key]


def _together(solutions: Solutions, recovered: RecoveredGram, columns: int, two_steps: bool) -> SearchResult:
    """All rows from one Gram matrix: the first matching batch, and what it determines."""
    figures = {
        **recovered.figures,
        "matches": float(len(solutions.batches)),
        "proved": float(solutions.complete),
        "unique": float(solutions.unique),
        "ended": float(solutions.ended),
        "solver_seconds": solutions.seconds,
    }
    if not solutions.batches:
        return SearchResult(figures=figures, note=_joined(recovered.note, f"{solutions.status}: {solutions.note}"))
    binary = np.zeros(columns, dtype=bool)
    binary[recovered.kept] = True

    def whole(batch: np.ndarray) -> np.ndarray:
        """(m, d), nan in the columns that were not searched for."""
        rows = np.full((len(batch), columns), np.nan)
        rows[:, binary] = batch
        return rows

    shares, candidates = whole(share_of_ones(solutions.batches)), tuple(map(whole, solutions.batches))
    figures |= {"batches_separated": 0.0} if two_steps else {}
    figures["entries_certain"] = _certain(shares, solutions.complete)
    rows, note = candidates[0].copy(), recovered.note
    if (alpha := recovered.real_alpha) is not None:
        others = np.flatnonzero(~binary)
        products = alpha[np.ix_(recovered.kept, others)], alpha[np.ix_(others, others)]
        values, refusal = real_features(solutions.batches[0], *products)
        if values is None:
            note = _joined(note, f"the other columns stay unknown: {refusal}")
        else:
            rows[:, others] = values
    labels = 2 * agreed(solutions.labels[0]) - 1 if solutions.labels and solutions.labels[0] else None
    note = _joined(note, "more labels fit than can be listed" if solutions.labels and labels is None else "")
    return SearchResult(rows, labels, candidates, None, binary, shares, figures, note)


def real_features(
    x_binary: np.ndarray, alpha_br: np.ndarray, alpha_rr: np.ndarray, *, tolerance: float = 1e-3
) -> tuple[np.ndarray | None, str]:
    """The other features of the same rows, (m, r), or None and the reason why there are none.

    The solution of X_B^T x = alpha_BR, unique if the rows of X_B are independent. A feature with an unknown product, nan in
    alpha_BR, stays nan.

    x_binary: (m, b) of 0 and 1, the reconstructed rows. alpha_br: (b, r), products of its columns with the real-valued ones.
    alpha_rr: (r, r), products of the real-valued columns; a check that the solution does not use, nan where unknown. Another
    batch with the same X_B^T X_B fails it or the residual. tolerance: relative, of both checks.
    """
    x, gram, rows = x_binary.astype(float), alpha_rr, len(x_binary)
    independent = rank(x_binary.astype(np.int64))
    if independent < rows:
        return None, f"the {rows} binary rows have rank {independent}, so their other features are not determined"
    solved = np.isfinite(alpha_br).all(axis=0)
    if not solved.any():
        return None, "their products with the binary columns are not known precisely"
    values = np.full((rows, alpha_br.shape[1]), np.nan)
    values[:, solved] = np.linalg.lstsq(x.T, alpha_br[:, solved], rcond=None)[0]
    residual = float(np.abs(x.T @ values - alpha_br)[:, solved].max(initial=0.0))
    if residual > tolerance * max(1.0, float(np.abs(alpha_br[:, solved]).max(initial=0.0))):
        return None, f"no features of these rows have these products (off by {residual:.2g}): not this batch, or noise"
    known = np.isfinite(gram) & np.outer(solved, solved)
    off = float(np.abs(values.T @ values - gram).max(initial=0.0, where=known))
    if off > tolerance * float(np.linalg.cond(x)) * max(1.0, float(np.abs(gram).max(initial=0.0, where=known))):
        return None, f"the products of the features among themselves are wrong (off by {off:.2g}): not this batch"
    return values, ""


def _one_by_one(parts: Sequence[Solutions], recovered: RecoveredGram, most: int) -> SearchResult:
    """Two local batches, each from its own alpha, with labels that fit the update of both."""
    figures = {**recovered.figures, "solver_seconds": sum(part.seconds for part in parts)}
    missing = next((part for part in parts if not part.batches), None)
    if missing is not None:
        claims = {"matches": 0.0, "proved": float(any(part.status == "infeasible" for part in parts))}
        note = _joined(recovered.note, f"{missing.status}: {missing.note}")
        return SearchResult(figures={**figures, **claims, "unique": 0.0, "batches_separated": 0.0}, note=note)
    pairs, complete = join_batches(parts[0], parts[1], recovered.total, most=most)
    size = len(parts[0].batches[0])
    shares = np.vstack([share_of_ones(tuple(rows[k : k + size] for rows, _ in pairs)) for k in (0, size)])
    rows, labels = pairs[0]
    single = float(complete and len(pairs) == 1)
    figures |= {"matches": float(len(pairs)), "proved": float(complete), "unique": single, "batches_separated": single}
    figures["entries_certain"] = _certain(shares, complete)
    return SearchResult(
        rows.astype(float),
        np.full(len(rows), np.nan) if labels is None else labels,
        tuple(rows.astype(float) for rows, _ in pairs),
        np.repeat([0.0, 1.0], size),
        np.ones(rows.shape[1], dtype=bool),
        shares,
        figures,
        _joined(recovered.note, "no labels of these rows are determined by the update" if labels is None else ""),
    )


def _certain(shares: np.ndarray, complete: bool) -> float:
    """The share of the entries (m, d) in which all matching batches agree, 0 unless these are all. nan: not certain."""
    return float(((shares == 0) | (shares == 1)).mean()) if complete else 0.0
