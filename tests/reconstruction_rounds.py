"""Rounds of federated logistic regression with the Taylor-approximated loss, planted for the tests of `reconstruction`."""

import numpy as np


def batch(rows: int, columns: int, rng: np.random.Generator, density: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """X (m, d) of 0 and 1, y (m,) of -1 and +1, int64."""
    return (rng.random((rows, columns)) < density).astype(np.int64), rng.choice([-1, 1], rows)


def batches(rows: int, columns: int, n: int, rng: np.random.Generator, density: float = 0.5) -> list:
    """n of them."""
    return [batch(rows, columns, rng, density) for _ in range(n)]


def gradient(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Of the sum over rows of log 2 - theta.x y / 2 + (theta.x)^2 / 8, example by example, not through alpha and beta."""
    score = x @ theta
    return ((score / 4 - y / 2)[:, None] * x).sum(0)


def rounds(x, y, n, rng, *, rate=0.1, mean=False, dtype=np.float64) -> tuple[np.ndarray, np.ndarray]:
    """(thetas, updates) (n, d) each, at random parameters."""
    thetas = rng.normal(size=(n, x.shape[1])).astype(dtype).astype(float)
    updates = np.array([-rate * gradient(x, y, theta) for theta in thetas]) / (len(x) if mean else 1)
    return thetas, updates.astype(dtype).astype(float)


def honest_run(theirs, mine, n, rng, *, rate=0.1, fresh=None, dtype=np.float64) -> tuple[np.ndarray, np.ndarray]:
    """(thetas, their updates) of two parties who average their steps from round to round, the second being the attacker.

    fresh: rows of a new batch that the attacker draws every round, instead of `mine`. Their step is 2 dtheta - own step.
    dtype: of the parameters and of the steps that are sent.
    """
    x, y = theirs
    theta = (0.1 * rng.normal(size=x.shape[1])).astype(dtype)
    thetas, updates = [], []
    for _ in range(n):
        own = (-rate * gradient(*(batch(fresh, x.shape[1], rng) if fresh else mine), theta)).astype(dtype)
        after = (theta + (own + (-rate * gradient(x, y, theta)).astype(dtype)) / 2).astype(dtype)
        thetas.append(theta.astype(float))
        updates.append(2 * (after.astype(float) - theta) - own)
        theta = after
    return np.array(thetas), np.array(updates)


def is_of(found, x, y) -> bool:
    """Whether what was recovered is this batch's alpha and beta, without a refusal."""
    if found.refusal is not None:
        return False
    return np.array_equal(found.alpha, x.T @ x) and np.array_equal(found.beta, x.T @ y)
