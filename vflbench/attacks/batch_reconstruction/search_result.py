"""What the rounds of a batch determine of it, and what figures may claim of that."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram

_CLAIMS = ("proved", "unique", "told_apart", "entries_certain")


@dataclass(frozen=True)
class SearchResult:
    """What the rounds determine of one batch.

    rows: (m, d) float64, nan for unknown entries; None if there is no solution. labels: (m,) in [-1, 1], the mean label of
    equal rows, nan if unknown; None if there is no solution. candidates: all matching batches (m, d), of which `rows` is the
    first. steps: (m,) of 0 and 1, the local batch of each row, or None if unknown. binary: (d,) bool, the columns that were
    searched for; the others follow from linear equations. shares: (m, d), the share of the candidates in which an entry is
    1, after their rows were matched to `rows`. figures: measurements of the search. note: what is missing, and why.
    guessed_rows: (m, d), nan for unknown columns, and guessed_labels: (m,), a guess from alpha and beta, which no figure
    counts as a match; None if there is a solution or nothing to guess from. grams: the Gram matrices that were searched for.
    assumption: of `RecoveredGram`. A later call with the same ones reuses this result.

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
    guessed_rows: np.ndarray | None = None
    guessed_labels: np.ndarray | None = None
    grams: tuple[Gram, ...] = ()
    assumption: str = ""


def without_claims(figures: Mapping[str, float]) -> dict[str, float]:
    """An assumption proves nothing."""
    return {name: 0.0 if name in _CLAIMS else value for name, value in figures.items()}


def certain(shares: np.ndarray, complete: bool) -> float:
    """The share of the entries (m, d) in which all matching batches agree, 0 unless these are all. nan: not certain."""
    return float(((shares == 0) | (shares == 1)).mean()) if complete else 0.0


def joined(note: str, more: str | None) -> str:
    return "; ".join(part for part in (note, more) if part)


def same_grams(earlier: tuple[Gram, ...], grams: tuple[Gram, ...]) -> bool:
    return len(earlier) == len(grams) and all(
        one.rows == other.rows
        and (one.beta is None) == (other.beta is None)
        and np.array_equal(one.alpha, other.alpha)
        and (one.beta is None or np.array_equal(one.beta, other.beta))
        for one, other in zip(earlier, grams, strict=True)
    )


def side_by_side(results: Sequence[SearchResult], rows: Sequence[int], most: int) -> SearchResult:
    """The results of several participants' batches as one, participant by participant.

    rows: of each batch. Where a batch has no solution, its rows and labels are nan, and a guess, if there is one, stands
    beside them. The figures claim what holds for every batch. most: the largest number of joint candidates.
    """
    if len(results) == 1:
        return results[0]
    columns = next((r.rows.shape[1] for r in results if r.rows is not None), None)
    guess = next((r.guessed_rows.shape[1] for r in results if r.guessed_rows is not None), columns)
    notes = dict.fromkeys(r.note for r in results if r.note)
    merged = SearchResult(figures=_of_all([r.figures for r in results]), note="; ".join(notes))
    if guess is None:
        return merged
    parts = [_whole(r, n, guess) for r, n in zip(results, rows, strict=True)]
    guessed_rows, guessed_labels = (np.concatenate([part[k] for part in parts]) for k in (2, 3))
    if columns is None:
        labels = None if np.isnan(guessed_labels).any() else guessed_labels
        return replace(merged, guessed_rows=guessed_rows, guessed_labels=labels)
    binary = np.all([r.binary for r in results if r.binary is not None], axis=0)
    joint = product(*(r.candidates for r in results))
    steps = None if any(r.steps is None for r in results) else np.concatenate([r.steps for r in results])
    return replace(
        merged,
        rows=np.concatenate([part[0] for part in parts]),
        labels=np.concatenate([part[1] for part in parts]),
        shares=np.concatenate([part[4] for part in parts]),
        candidates=tuple(np.concatenate(batches) for batches in islice(joint, most)),
        steps=steps,
        binary=binary,
        guessed_rows=guessed_rows,
        guessed_labels=guessed_labels,
    )


def _whole(result: SearchResult, rows: int, columns: int) -> tuple[np.ndarray, ...]:
    """rows, labels, guessed rows, guessed labels and shares, nan where there are none."""
    empty, none = np.full((rows, columns), np.nan), np.full(rows, np.nan)
    names = ("rows", "labels", "guessed_rows", "guessed_labels", "shares")
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
