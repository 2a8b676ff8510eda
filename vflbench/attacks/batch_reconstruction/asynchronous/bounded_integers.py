"""Linear equations in small integers: numbers of rows among groups of equal ones."""

from collections.abc import Callable
from itertools import product

import numpy as np


def equal_rows(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows, for each row the index of its distinct row, and how many rows there are of each."""
    distinct, group, sizes = np.unique(z, axis=0, return_inverse=True, return_counts=True)
    return distinct, group.ravel(), sizes


def bounded_integers(
    matrix: np.ndarray, right: np.ndarray, upper: np.ndarray, fits: Callable[[np.ndarray], bool], max_tries: int
) -> tuple[list[np.ndarray], bool]:
    """Integer x in [0, upper] with matrix @ x = right for which `fits` is true, and whether these are all.

    Gauss-Jordan elimination in float64 with full pivoting; then up to `max_tries` combinations of values
    are tried for the unknowns without a pivot.
    """
    pivots, free, reduced, target = _eliminated(matrix, right)
    if target is None:
        return [], True
    options = [range(int(upper[f]) + 1) for f in free]
    size = float(np.prod([len(o) for o in options], dtype=float))
    solutions: list[np.ndarray] = []
    for tries, values in enumerate(product(*options)):
        if tries == max_tries:
            return solutions, False
        x = np.zeros(len(upper), dtype=np.int64)
        x[free] = values
        solved = target - reduced @ x[free]
        rounded = np.rint(solved)
        if (np.abs(solved - rounded) > 1e-3).any() or (rounded < 0).any() or (rounded > upper[pivots]).any():
            continue
        x[pivots] = rounded.astype(np.int64)
        if fits(x):
            solutions.append(x)
    return solutions, size <= max_tries


def _eliminated(matrix: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """x[pivots] = target - reduced @ x[free]; target None if the equations contradict each other."""
    a, b = matrix.astype(float), right.astype(float)
    unknowns = np.arange(a.shape[1])
    scale = max(1.0, float(np.abs(a).max(initial=0.0)))
    step = 0
    while step < min(a.shape):
        i, j = np.unravel_index(np.abs(a[step:, step:]).argmax(), (a.shape[0] - step, a.shape[1] - step))
        if np.abs(a[step + i, step + j]) < 1e-8 * scale:
            break
        a[[step, step + i]], b[[step, step + i]] = a[[step + i, step]], b[[step + i, step]]
        a[:, [step, step + j]], unknowns[[step, step + j]] = a[:, [step + j, step]], unknowns[[step + j, step]]
        b[step] /= a[step, step]
        a[step] /= a[step, step]
        others = np.arange(len(a)) != step
        b[others] -= a[others, step] * b[step]
        a[others] -= np.outer(a[others, step], a[step])
        step += 1
    contradiction = np.abs(b[step:]).max(initial=0.0) > 1e-5 * max(scale, float(np.abs(right).max(initial=0)))
    return unknowns[:step], unknowns[step:], a[:step, step:], None if contradiction else b[:step]
