"""Planted rounds of federated logistic regression with the Taylor-approximated loss, for the tests of its reconstruction."""

import numpy as np


def batch(rows, columns, rng, density=0.5):
    """X (m, d) of 0 and 1, y (m,) of -1 and +1, int64."""
    return (rng.random((rows, columns)) < density).astype(np.int64), rng.choice([-1, 1], rows)


def batches(rows, columns, n, rng, density=0.5):
    """A list of n batches."""
    return [batch(rows, columns, rng, density) for _ in range(n)]


def gradient(x, y, theta):
    """Of the sum over rows of log 2 - theta.x y / 2 + (theta.x)^2 / 8, by example, without alpha and beta."""
    score = x @ theta
    return ((score / 4 - y / 2)[:, None] * x).sum(0)


def rounds(x, y, n, rng, *, rate=0.1, mean=False, dtype=np.float64):
    """(thetas, updates) (n, d) each, at random parameters."""
    thetas = rng.normal(size=(n, x.shape[1])).astype(dtype).astype(float)
    updates = np.array([-rate * gradient(x, y, theta) for theta in thetas]) / (len(x) if mean else 1)
    return thetas, updates.astype(dtype).astype(float)


def honest_run(their_batch, my_batch, n, rng, *, rate=0.1, fresh=None, dtype=np.float64):
    """(thetas, updates of the other party) of two parties that average their steps; the second one is the attacker.

    fresh: rows of a new batch that the attacker draws in each round instead of `my_batch`. The other party's step is
    2 dtheta - my step. dtype: of the parameters and of the steps that are sent.
    """
    x, y = their_batch
    theta = (0.1 * rng.normal(size=x.shape[1])).astype(dtype)
    thetas, updates = [], []
    for _ in range(n):
        my_step = (-rate * gradient(*(batch(fresh, x.shape[1], rng) if fresh else my_batch), theta)).astype(dtype)
        after = (theta + (my_step + (-rate * gradient(x, y, theta)).astype(dtype)) / 2).astype(dtype)
        thetas.append(theta.astype(float))
        updates.append(2 * (after.astype(float) - theta) - my_step)
        theta = after
    return np.array(thetas), np.array(updates)


def is_recovered(recovered, x, y):
    """Whether these are the alpha and beta of the batch, without a refusal."""
    if recovered.refusal is not None:
        return False
    return np.array_equal(recovered.alpha, x.T @ x) and np.array_equal(recovered.beta, x.T @ y)


def compose(alphas, betas, rate):
    """gamma and eta of one local step on each batch, in this order.

        theta_i = (I - rate/4 alpha_i) theta_{i-1} + rate/2 beta_i
        I - gamma = prod_{i=n..1} (I - rate/4 alpha_i),   eta = rate/2 sum_i prod_{j=n..i+1} (I - rate/4 alpha_j) beta_i

    alphas: n >= 1 of (d, d); betas: n of (d,). rate: of summed gradients; rate / m for mean ones. Returns ((d, d), (d,)).

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", Theorem 1.
    """
    d = len(betas[0])
    product, eta = np.eye(d), np.zeros(d)
    for alpha, beta in zip(alphas, betas, strict=True):
        product = product - rate / 4 * (alpha @ product)
        eta = eta - rate / 4 * (alpha @ eta) + rate / 2 * beta
    return np.eye(d) - product, eta
