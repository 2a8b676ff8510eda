"""The order in which columns are placed: the column that the placed ones determine most comes first."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.modular_rank import PRIME


@dataclass(frozen=True)
class Level:
    """One column that the earlier ones do not span, and the columns that become dependent with it.

    column: its index in [1, X]. slopes: (k,) its regression on the k earlier levels' columns. schur: its squared distance
    from their span. dependent: (q,) the columns that it and the earlier levels span. coefficients: (k + 1, q) of these
    columns modulo the prime: a row's bits in the dependent columns are its bits in the k + 1 levels times `coefficients`.
    """

    column: int
    slopes: np.ndarray
    schur: float
    dependent: np.ndarray
    coefficients: np.ndarray


def order_columns(gram: np.ndarray) -> list[Level]:
    """The levels in the order of the smallest Schur complement, each with the columns that become dependent.

    gram: (n, n) integers, the Gram matrix of [1, X], at least one row. The intercept is the first level, and there are
    as many as the rank. Gauss-Jordan elimination runs in floats for distances, and in parallel modulo a prime for zeros: a
    threshold on floats would confuse nearly dependent and dependent columns.
    """
    exact, float_ = gram % PRIME, gram.astype(float)
    remaining = np.ones(len(gram), dtype=bool)
    chosen: list[int] = []
    levels = []
    while remaining.any():
        column = int(np.where(remaining, np.diagonal(float_), np.inf).argmin()) if chosen else 0
        # Elimination with the smallest pivots first accumulates errors, so slopes and distances are solved for separately.
        slopes = np.linalg.solve(gram[np.ix_(chosen, chosen)].astype(float), gram[chosen, column].astype(float))
        schur = float(gram[column, column] - gram[chosen, column] @ slopes)
        _eliminate(exact, float_, column)
        chosen.append(column)
        remaining[column] = False
        dependent = np.flatnonzero(remaining & (np.diagonal(exact) == 0))
        remaining[dependent] = False
        levels.append(Level(column, slopes, schur, dependent, exact[np.ix_(np.array(chosen), dependent)]))
    return levels


def _eliminate(exact: np.ndarray, float_: np.ndarray, column: int) -> None:
    """One pivot, in place: the rows of pivots then contain coefficients, the others Schur complements."""
    row = exact[column] * pow(int(exact[column, column]), -1, PRIME) % PRIME
    exact -= exact[:, column, None] * row % PRIME
    exact %= PRIME
    exact[column] = row
    line = float_[column] / float_[column, column]
    float_ -= np.outer(float_[:, column], line)
    float_[column] = line
