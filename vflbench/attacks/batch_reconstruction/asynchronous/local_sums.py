"""The alpha of each of two local batches, in the order of their steps, from the two terms of their map."""

from fractions import Fraction
from math import lcm

import numpy as np

from vflbench.attacks.batch_reconstruction.modular_rank import PRIME, rank

_MOST_COLUMNS = 40  # the elimination takes (d^2 / 2)^3 operations


def local_sums(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """alpha_1 and alpha_2 if they are the only ones, or None: the equations leave a choice, or d is more than 40.

        A_1 alpha_1 - alpha_1 A_1 = A_2 - A_2^T,   alpha_1 A_2 = A_2^T alpha_1,   alpha_1 w = 0 for every w with A_1 w = 0

    They follow from A_2 = (A_1 - alpha_1) alpha_1, the last one because both alphas are positive semidefinite. They are
    linear, and are solved modulo 2^31 - 1: where only one solution is left there, at most one is left over the rationals.
    The result is checked in integers.

    first: (d, d) int64, A_1 = alpha_1 + alpha_2; second: (d, d) int64, A_2 = alpha_2 alpha_1.
    """
    d = len(first)
    if d > _MOST_COLUMNS:
        return None
    upper = np.triu_indices(d)
    place = np.zeros((d, d), dtype=np.int64)
    place[upper] = np.arange(len(upper[0]))
    place = np.maximum(place, place.T)
    strict = np.triu_indices(d, 1)
    blocks = [_equations(first, first, place, strict), _equations(second.T, second, place, strict, sign=-1)]
    rights = [(second - second.T)[strict], np.zeros(len(strict[0]), dtype=np.int64)]
    for w in _kernel(first):
        block = np.zeros((d, len(upper[0])), dtype=np.int64)
        np.add.at(block, (np.arange(d)[:, None], place), np.broadcast_to(w, (d, d)))
        blocks.append(block)
        rights.append(np.zeros(d, dtype=np.int64))
    solution = _solve_modulo(np.vstack(blocks), np.concatenate(rights))
    if solution is None:
        return None
    solution = np.where(solution > PRIME // 2, solution - PRIME, solution)
    alpha_1 = solution[place]
    if np.abs(alpha_1).max(initial=0) > first.max(initial=0):
        return None
    alpha_2 = first - alpha_1
    return (alpha_1, alpha_2) if np.array_equal(alpha_2 @ alpha_1, second) else None


def _equations(
    left: np.ndarray, right: np.ndarray, place: np.ndarray, entries: tuple[np.ndarray, np.ndarray], sign: int = 1
) -> np.ndarray:
    """Of sign (left x - x right) at these entries (i, j): coefficients of the upper triangle of a symmetric x."""
    i, j = entries
    matrix = np.zeros((len(i), int(place.max(initial=-1)) + 1), dtype=np.int64)
    equation = np.arange(len(i))[:, None]
    np.add.at(matrix, (equation, place[:, j].T), sign * left[i])
    np.add.at(matrix, (equation, place[i]), -sign * right[:, j].T)
    return matrix


def _kernel(a: np.ndarray) -> list[np.ndarray]:
    """A basis of the kernel of an integer matrix, modulo 2^31 - 1, from exact elimination over the rationals."""
    if rank(a) == len(a):
        return []
    rows = [[Fraction(int(v)) for v in row] for row in a]
    pivots: list[int] = []
    for column in range(len(a)):
        at = next((k for k in range(len(pivots), len(rows)) if rows[k][column]), None)
        if at is None:
            continue
        step = len(pivots)
        rows[step], rows[at] = rows[at], rows[step]
        rows[step] = [v / rows[step][column] for v in rows[step]]
        for k, row in enumerate(rows):
            if k != step and row[column]:
                factor = row[column]
                rows[k] = [v - factor * p for v, p in zip(row, rows[step], strict=True)]
        pivots.append(column)
    basis = []
    for free in sorted(set(range(len(a))) - set(pivots)):
        w = [Fraction(0)] * len(a)
        w[free] = Fraction(1)
        for step, column in enumerate(pivots):
            w[column] = -rows[step][free]
        scale = lcm(*(v.denominator for v in w))
        basis.append(np.array([int(v * scale) % PRIME for v in w], dtype=np.int64))
    return basis


def _solve_modulo(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The only x with matrix @ x = right modulo 2^31 - 1, or None if there is none, or more than one."""
    a = np.column_stack([matrix, right]) % PRIME
    unknowns = matrix.shape[1]
    for step in range(unknowns):
        nonzero = np.flatnonzero(a[step:, step])
        if not len(nonzero):
            return None
        a[[step, step + nonzero[0]]] = a[[step + nonzero[0], step]]
        a[step, step:] = a[step, step:] * pow(int(a[step, step]), -1, PRIME) % PRIME
        below = step + 1 + np.flatnonzero(a[step + 1 :, step])
        a[below, step:] = (a[below, step:] - a[below, step, None] * a[step, step:] % PRIME) % PRIME
    if a[unknowns:].any():
        return None
    x = a[:unknowns, -1].copy()
    for step in range(unknowns - 1, 0, -1):
        x[:step] = (x[:step] - a[:step, step] * x[step] % PRIME) % PRIME
    return x
