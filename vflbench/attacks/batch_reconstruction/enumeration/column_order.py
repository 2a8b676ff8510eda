"""The order in which columns are placed: the column that the placed ones determine most comes first."""

from dataclasses import dataclass
from itertools import islice

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.leverage import Cut, cuts
from vflbench.attacks.batch_reconstruction.modular_rank import primes

_PRIMES = 20


@dataclass(frozen=True)
class Level:
    """One column that the earlier ones do not span, and the columns that become dependent with it.

    column: its index in [1, X]. cut: bounds the number of equal rows, with those of the k earlier levels. dependent: (q,)
    the columns that it and the earlier levels span, over the rationals. coefficients: (k + 1, q) of these columns modulo
    `prime`: a row's bits in the dependent columns are its bits in the k + 1 levels times `coefficients`.
    """

    column: int
    cut: Cut
    dependent: np.ndarray
    coefficients: np.ndarray
    prime: int


def order_columns(gram: np.ndarray) -> list[Level]:
    """The levels in the order of the smallest Schur complement, each with the columns that become dependent.

    gram: (n, n) integers, the Gram matrix of [1, X], at least one row. The intercept is the first level, and there are as
    many as the rank. Gauss-Jordan elimination runs in floats for the order alone, and in parallel modulo a prime for zeros.
    A dependence modulo one prime is confirmed over the rationals; another prime is taken if it is none. If none of several
    primes helps, the matrix is not semidefinite, and no batch has it.
    """
    for prime in islice(primes(), _PRIMES):
        chosen, dependents = _eliminated(gram, prime)
        if are_dependent(gram, chosen, np.concatenate([columns for columns, _ in dependents])):
            break
    of_level = cuts(gram[np.ix_(chosen, chosen)])
    return [Level(column, cut, *more, prime) for column, cut, more in zip(chosen, of_level, dependents, strict=True)]


def are_dependent(gram: np.ndarray, chosen: list[int], others: np.ndarray) -> bool:
    """Whether each of the others is a rational combination of the chosen columns, in every batch with this Gram matrix.

    gram: (n, n) integers; the chosen columns are independent. With column i of the others, the Gram determinant of k + 1
    columns is at most the product of its diagonal (Hadamard), and 0 if i depends. It is 0 if it is 0 modulo primes with a
    larger product. Where no batch has this Gram matrix, it may be not semidefinite, and True means nothing.
    """
    if not len(others):
        return True
    diagonal = np.diagonal(gram)
    bits = float(np.log2(np.maximum(diagonal[chosen], 1)).sum() + np.log2(max(diagonal[others].max(), 1)))
    matrix = gram[np.ix_(chosen, [*chosen, *others])]
    candidates = primes()
    confirmed = 0.0
    while confirmed <= bits + 1e-6:
        prime = next(candidates)
        solved = _solved(matrix, prime)
        if solved is None:  # it divides the determinant of the chosen columns
            continue
        schur = diagonal[others] - (gram[np.ix_(np.array(chosen), others)] * solved % prime).sum(0)
        if (schur % prime).any():
            return False
        confirmed += float(np.log2(prime))
    return True


def _solved(matrix: np.ndarray, prime: int) -> np.ndarray | None:
    """S^-1 B modulo the prime for matrix = [S, B] with S (k, k), or None if S is singular modulo the prime."""
    matrix = matrix % prime
    for k in range(len(matrix)):
        nonzero = np.flatnonzero(matrix[k:, k])
        if not len(nonzero):
            return None
        matrix[[k, k + nonzero[0]]] = matrix[[k + nonzero[0], k]]
        row = matrix[k] * pow(int(matrix[k, k]), -1, prime) % prime
        matrix = (matrix - matrix[:, k, None] * row % prime) % prime
        matrix[k] = row
    return matrix[:, len(matrix) :]


def _eliminated(gram: np.ndarray, prime: int) -> tuple[list[int], list[tuple[np.ndarray, np.ndarray]]]:
    """The columns of the levels in their order, and for each the dependent columns modulo the prime and coefficients."""
    exact, float_ = gram % prime, gram.astype(float)
    remaining = np.ones(len(gram), dtype=bool)
    chosen: list[int] = []
    dependents = []
    while remaining.any():
        column = int(np.lexsort((np.diagonal(float_), ~remaining))[0]) if chosen else 0  # the smallest of the remaining
        _eliminate(exact, float_, column, prime)
        chosen.append(column)
        remaining[column] = False
        dependent = np.flatnonzero(remaining & (np.diagonal(exact) == 0))
        remaining[dependent] = False
        dependents.append((dependent, exact[np.ix_(np.array(chosen), dependent)]))
    return chosen, dependents


@np.errstate(over="ignore", invalid="ignore")  # floats of sums of no batch overflow; the order alone rests on them
def _eliminate(exact: np.ndarray, float_: np.ndarray, column: int, prime: int) -> None:
    """One pivot, in place: the rows of pivots then contain coefficients, the others Schur complements."""
    row = exact[column] * pow(int(exact[column, column]), -1, prime) % prime
    exact[:] = (exact - exact[:, column, None] * row % prime) % prime
    exact[column] = row
    line = float_[column] / max(float_[column, column], 1e-12)
    float_ -= np.outer(float_[:, column], line)
    float_[column] = line
