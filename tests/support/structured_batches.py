"""Binary batches that are hard to reconstruct: structured, rank-deficient and ambiguous ones."""

import numpy as np

Rng = np.random.Generator


def random(m: int, d: int, rng: Rng) -> np.ndarray:
    return (rng.random((m, d)) < rng.choice([0.1, 0.3, 0.5, 0.7, 0.9])).astype(np.int64)


def duplicates(m: int, d: int, rng: Rng) -> np.ndarray:
    """Equal rows, or equal columns."""
    x = random(m, d, rng)
    return x[rng.integers(0, max(1, m // 2), m)] if rng.random() < 0.5 else x[:, rng.integers(0, max(1, d // 2), d)]


def odd_triangle(m: int, d: int, rng: Rng) -> np.ndarray:
    """Lower-triangular with ones at odd distances from the diagonal: near-singular. Perhaps with two equal rows."""
    i, j = np.indices((m, d))
    x = ((i == j) | ((i > j) & ((i - j) % 2 == 1))).astype(np.int64)
    if m > 2 and rng.random() < 0.5:
        x[-1] = x[-2]
    return x


def near_dependent(m: int, d: int, rng: Rng) -> np.ndarray:
    """Columns that equal a disjoint union of others up to one bit."""
    x = random(m, d, rng)
    for k in range(d // 2, d):
        x[:, k] = np.minimum(1, x[:, rng.integers(0, max(1, d // 2), 2)].sum(axis=1))
        x[rng.integers(m), k] ^= 1
    return x


def ambiguous(m: int, d: int, rng: Rng) -> np.ndarray:
    """With a block that two batches of the same products have: {000, 011, 101, 110} and {111, 100, 010, 001}."""
    x = random(m, d, rng)
    if m >= 4 and d >= 3:
        x[:4] = 0
        even = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
        x[:4, rng.permutation(d)[:3]] = even if rng.random() < 0.5 else 1 - even
    return x


STRUCTURES = (duplicates, duplicates, odd_triangle, near_dependent, ambiguous)


def draw_batch(m: int, d: int, rng: Rng, structured: float = 0.4) -> np.ndarray:
    """X (m, d) int64 of 0 and 1. structured: the share of batches with a structure."""
    draw = STRUCTURES[rng.integers(len(STRUCTURES))] if rng.random() < structured else random
    x = draw(m, d, rng)
    return x[rng.permutation(m)][:, rng.permutation(d)] if rng.random() < 0.5 else x


def draw_labels(x: np.ndarray, rng: Rng) -> np.ndarray:
    """-1 and +1: random, all equal, or with sums over some columns that cancel."""
    kind = rng.random()
    y = rng.choice([-1, 1], len(x))
    if kind < 0.15:
        return np.full(len(x), rng.choice([-1, 1]))
    if kind < 0.35:  # equal rows, and rows of a column, in turn
        order = np.lexsort(x.T[rng.permutation(x.shape[1])])
        y[order] = np.where(np.arange(len(x)) % 2, 1, -1)
    return y
