"""The order in which columns are placed: what the placed ones determine most comes first."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.modular_rank import PRIME


@dataclass(frozen=True)
class Level:
    """One column that the earlier ones do not span, and those that it makes dependent.

    column: its index in [1, X]. slopes: (k,) its regression on the k earlier levels' columns. schur: its squared distance
    from their span. dependent: (q,) the columns that it and the earlier levels span. forced: (k + 1, q) their coefficients
    modulo the prime: a row's bits in these columns are its bits in the k + 1 levels times `forced`.
    """

    column: int
    slopes: np.ndarray
    schur: float
    dependent: np.ndarray
    forced: np.ndarray


def levels(gram: np.ndarray) -> list[Level]:
    """Column order by smallest Schur complement, dependent columns as soon as they are so.

    gram: (n, n) integers, the Gram matrix of [1, X], at least one row. The intercept is the first level, and there are
    as many as the rank. Gauss-Jordan elimination runs twice side by side: in floats for distances, modulo a prime for
    what is zero, since a threshold on floats takes a far column for a dependent one, or the other way round.
    """
    exact, float_ = gram % PRIME, gram.astype(float)
    left = np.ones(len(gram), dtype=bool)
    chosen: list[int] = []
    found = []
    while left.any():
        column = int(np.where(left, np.diagonal(float_), np.inf).argmin()) if chosen else 0
        # Elimination with the smallest pivots first adds up errors, so what rows are pruned by is solved for anew.
        slopes = np.linalg.solve(gram[np.ix_(chosen, chosen)].astype(float), gram[chosen, column].astype(float))
        schur = float(gram[column, column] - gram[chosen, column] @ slopes)
        _eliminate(exact, float_, column)
        chosen.append(column)
        left[column] = False
        dependent = np.flatnonzero(left & (np.diagonal(exact) == 0))
        left[dependent] = False
        found.append(Level(column, slopes, schur, dependent, exact[np.ix_(chosen, dependent)]))
    return found


def _eliminate(exact: np.ndarray, float_: np.ndarray, column: int) -> None:
    """One pivot, in place: rows of pivots come to hold coefficients, the others Schur complements."""
    row = exact[column] * pow(int(exact[column, column]), -1, PRIME) % PRIME
    exact -= exact[:, column, None] * row % PRIME
    exact %= PRIME
    exact[column] = row
    line = float_[column] / float_[column, column]
    float_ -= np.outer(float_[:, column], line)
    float_[column] = line
