"""Whether other integers than a solution fit the same pairs: a proof by enumerating lattice points, or no proof."""

from importlib import import_module
from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram

GUARD = 2**12  # finer than the rounding of the updates, so that scaling to integers adds nothing
_MOST_POINTS = 200_000  # on one level of an enumeration
_MOST_NODES = 20_000  # of the search for symmetric combinations
_CHANCE = -6.0  # decimal logarithm of the probability at which a chance fit is excluded

Row = tuple[np.ndarray, int]
Verdict = Literal["unique", "several", "undecided"]


def other_integers(
    thetas: np.ndarray, values: np.ndarray, alpha: np.ndarray, beta: np.ndarray, *, within: float, rows: int
) -> Verdict:
    """Whether (alpha, beta) is the only consistent solution with entries up to m.

    Row i of every solution lies in the box 0 <= alpha_ij <= m, |beta_i| <= m, |values_ti - theta_t.alpha_i + 2 beta_i| <=
    `within`. In a lattice that is scaled so that this box is a cube, it lies in a ball about the centre of the cube. All
    lattice points of this ball are enumerated (Fincke and Pohst), and so are all symmetric combinations of the rows that lie
    in the box. `undecided` if a limit of points or combinations is reached.

    thetas, values: (n, d), values = 4 g. alpha, beta: the solution. rows: m.

    Source: Fincke and Pohst, "Improved methods for calculating vectors of short length in a lattice", 1985.
    """
    n, d = thetas.shape
    half = rows / 2
    basis, integers = _basis(thetas, half, within)
    orthogonal, triangular = np.linalg.qr(basis.T)
    if not (np.abs(np.diagonal(triangular)) > 1e-9 * np.abs(triangular).max()).all():
        return "undecided"
    slack = 1 + (d + 2) * rows / (2 * GUARD * half)  # of a relation: its weights were rounded to 1 / GUARD
    radius = half * np.sqrt(d + 1 + n * slack**2) * (1 + 1e-6)
    candidates = []
    for i in range(d):
        target = np.concatenate([np.full(d, half), [0.0], values[:, i] * half / within])
        points = _points_in_ball(triangular, orthogonal.T @ target, radius**2 - _outside(orthogonal, target))
        if points is None:
            return "undecided"
        found = _in_box(points @ integers, thetas, values[:, i], within, rows, i)
        if not any(np.array_equal(row, alpha[i]) and b == beta[i] for row, b in found):
            return "undecided"  # rounding: the solution itself must be among its candidates
        candidates.append(found)
    return _combinations(candidates, alpha, beta, rows)


def chance_of_fit(thetas: np.ndarray, *, within: float, rows: int) -> bool:
    """Whether integers may fit noise by chance: more than one in a million random updates have such a solution.

    (m + 1)^(d (d + 1) / 2) (2 m + 1)^d matrices, each of whose n d relations holds with probability 2 `within` / range
    """
    d = thetas.shape[1]
    ranges = rows * np.abs(thetas).sum(axis=1) + 4 * rows
    count = d * (d + 1) / 2 * np.log10(rows + 1) + d * np.log10(2 * rows + 1)
    return bool(count + d * np.log10(np.minimum(1, 2 * within / ranges)).sum() > _CHANCE)


def _basis(thetas: np.ndarray, half: float, within: float) -> tuple[np.ndarray, np.ndarray]:
    """The reduced basis (d + 1, d + 1 + n), and the integers (d + 1, d + 1), alpha_i and beta_i, that it stands for."""
    d = thetas.shape[1]
    weight = half / within * GUARD
    lines = []
    for i, column in enumerate(np.vstack([thetas.T, np.full((1, len(thetas)), -2.0)])):
        identity = [0] * (d + 1)
        identity[i] = GUARD if i < d else GUARD // 2
        lines.append(identity + [scaled_to_integer(weight, x) for x in column])
    flint = import_module("flint")
    reduced = np.array([[int(x) for x in line] for line in flint.fmpz_mat(lines).lll(delta=0.999).tolist()], dtype=object)
    integers = reduced[:, : d + 1] // GUARD
    integers[:, d] = reduced[:, d] // (GUARD // 2)
    return reduced.astype(float) / GUARD, integers.astype(np.int64)


def scaled_to_integer(weight: float, x: float) -> int:
    """round(weight x), exactly."""
    top, bottom = float(x).as_integer_ratio()
    up, down = weight.as_integer_ratio()
    return (2 * top * up + bottom * down) // (2 * bottom * down)


def _outside(orthogonal: np.ndarray, target: np.ndarray) -> float:
    """The squared distance of the target to the span of the lattice."""
    return float(np.sum((target - orthogonal @ (orthogonal.T @ target)) ** 2))


def _points_in_ball(triangular: np.ndarray, centre: np.ndarray, radius_squared: float) -> np.ndarray | None:
    """(N, k) int64: all x with |R x - centre|^2 <= radius_squared, level by level; None if there are too many."""
    k = len(triangular)
    points = np.zeros((1, k), dtype=np.int64)
    right, left = centre[None].copy(), np.array([radius_squared * (1 + 1e-9) + 1e-9])
    if left[0] < 0:
        return points[:0]
    for i in reversed(range(k)):
        step = triangular[i, i]
        middle, width = right[:, i] / step, np.sqrt(left) / abs(step)
        first, last = np.ceil(middle - width), np.floor(middle + width)
        counts = np.maximum(last - first + 1, 0)
        if counts.sum() > _MOST_POINTS:
            return None
        counts = counts.astype(np.int64)
        parent = np.repeat(np.arange(len(points)), counts)
        x = first[parent] + np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
        points = points[parent]
        points[:, i] = x
        right = right[parent] - x[:, None] * triangular[:, i]
        left = np.maximum(left[parent] - right[:, i] ** 2, 0.0)
    return points


def _in_box(integers: np.ndarray, thetas: np.ndarray, values: np.ndarray, within: float, rows: int, i: int) -> list[Row]:
    """Rows i of alpha with their beta_i that a binary batch may have, among (N, d + 1) integers."""
    d = thetas.shape[1]
    row, b = integers[:, :d], integers[:, d]
    off = np.abs(values - row @ thetas.T + 2 * b[:, None]).max(axis=1)
    own = row[:, i]
    fits = (row.min(axis=1) >= 0) & (row.max(axis=1) <= own) & (own <= rows) & (np.abs(b) <= own) & ((b - own) % 2 == 0)
    return [(row[k], int(b[k])) for k in np.flatnonzero(fits & (off <= within * (1 + 1e-9)))]


def _combinations(candidates: list[list[Row]], alpha: np.ndarray, beta: np.ndarray, rows: int) -> Verdict:
    """Depth first over the rows: every choice that is symmetric so far, and pairwise possible for binary columns."""
    d, nodes = len(candidates), 0
    order = sorted(range(d), key=lambda i: len(candidates[i]))
    stack: list[tuple[Row, ...]] = [()]
    while stack:
        chosen = stack.pop()
        nodes += 1
        if nodes > _MOST_NODES:
            return "undecided"
        if len(chosen) == d:
            other, sums = np.empty_like(alpha), np.empty_like(beta)
            for i, (row, label_sum) in zip(order, chosen, strict=True):
                other[i], sums[i] = row, label_sum
            same = np.array_equal(other, alpha) and np.array_equal(sums, beta)
            if not same and Gram(other, sums, rows).inconsistency() is None:
                return "several"
            continue
        i = order[len(chosen)]
        for row, b in candidates[i]:
            pairs = zip(order, chosen, strict=False)
            if all(row[j] == one[i] and row[i] + one[j] - rows <= row[j] <= one[j] for j, (one, _) in pairs):
                stack.append((*chosen, (row, b)))
    return "unique"
