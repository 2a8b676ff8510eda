"""Binary batches that are hard to reconstruct: structured, rank-deficient and ambiguous ones."""

from collections.abc import Callable, Sequence

import numpy as np

Draw = Callable[[int, int, np.random.Generator], np.ndarray]


def random(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.random((m, d)) < rng.choice([0.1, 0.3, 0.5, 0.7, 0.9])).astype(np.int64)


def duplicate_rows(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    x = random(m, d, rng)
    return x[rng.integers(0, max(1, m // 2), m)]


def duplicate_columns(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return random(m, d, rng)[:, rng.integers(0, max(1, d // 2), d)]


def complements(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Columns that are complements of others, and rows that are."""
    x = random(m, d, rng)
    x[:, d // 2 :] = 1 - x[:, : d - d // 2]
    if rng.random() < 0.5:
        x[m // 2 :] = 1 - x[: m - m // 2]
    return x


def odd_triangle(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Lower-triangular with ones at odd distances from the diagonal: near-singular. Perhaps with two equal rows."""
    i, j = np.indices((m, d))
    x = ((i == j) | ((i > j) & ((i - j) % 2 == 1))).astype(np.int64)
    if m > 2 and rng.random() < 0.5:
        x[-1] = x[-2]
    return x


def near_dependent(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Columns that equal a disjoint union of others up to one bit."""
    x = random(m, d, rng)
    for k in range(d // 2, d):
        x[:, k] = np.minimum(1, x[:, rng.integers(0, max(1, d // 2), 2)].sum(axis=1))
        x[rng.integers(m), k] ^= 1
    return x


def block_design(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Rows and columns of the incidence matrix of the Fano plane, or of all pairs."""
    fano = np.array([[(j - i) % 7 in (0, 1, 3) for j in range(7)] for i in range(7)], dtype=np.int64)
    pairs = np.array([[k in (i, j) for k in range(5)] for i in range(5) for j in range(i)], dtype=np.int64)
    base = fano if rng.random() < 0.5 else pairs
    return base[np.ix_(np.arange(m) % len(base), np.arange(d) % base.shape[1])]


def one_hot(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Groups of columns with a single one in each row."""
    x, start = np.zeros((m, d), dtype=np.int64), 0
    while start < d:
        width = min(int(rng.integers(2, 5)), d - start)
        x[np.arange(m), start + rng.integers(0, width, m)] = 1
        start += width
    return x


def ambiguous(m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """With a block that two batches of the same products have: {000, 011, 101, 110} and {111, 100, 010, 001}."""
    x = random(m, d, rng)
    if m >= 4 and d >= 3:
        columns = rng.permutation(d)[:3]
        x[:4] = 0
        even = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
        x[:4, columns] = even if rng.random() < 0.5 else 1 - even
    return x


_STRUCTURED = (
    duplicate_rows,
    duplicate_columns,
    complements,
    odd_triangle,
    near_dependent,
    block_design,
    one_hot,
    ambiguous,
)
STRUCTURES: dict[str, Draw] = {draw.__name__: draw for draw in _STRUCTURED}


def draw_batch(
    m: int, d: int, rng: np.random.Generator, structured: float = 0.4, names: Sequence[str] = tuple(STRUCTURES)
) -> tuple[np.ndarray, str]:
    """X (m, d) int64 of 0 and 1, and the name of its structure. structured: the share of batches with one of `names`."""
    name = str(rng.choice(names)) if rng.random() < structured else "random"
    x = STRUCTURES.get(name, random)(m, d, rng)
    return x[rng.permutation(m)][:, rng.permutation(d)] if rng.random() < 0.5 else x, name


def draw_labels(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """-1 and +1: random, all equal, or with sums over some columns that cancel."""
    kind = rng.random()
    y = rng.choice([-1, 1], len(x))
    if kind < 0.15:
        return np.full(len(x), rng.choice([-1, 1]))
    if kind < 0.35:  # equal rows, and rows of a column, in turn
        order = np.lexsort(x.T[rng.permutation(x.shape[1])])
        y[order] = np.where(np.arange(len(x)) % 2, 1, -1)
    return y
