"""Every small binary batch that explains some messages, by brute force: what a claim of a reconstruction is held against.

Shares no code with vflbench. A batch is a multiset of rows; its key is the sorted tuple of its rows.
"""

from collections import namedtuple
from functools import cache
from itertools import combinations_with_replacement, product
from math import comb

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

MOST_BATCHES = 60_000
MOST_PAIRS = 260_000


def key(rows):
    """The rows in order, as tuples of integers. rows: (m, d)."""
    return tuple(sorted(tuple(int(v) for v in row) for row in np.asarray(rows)))


def number_of_batches(rows, columns, labelled):
    return comb((2 ** (columns + 1) - 1 if labelled else 2**columns) + rows - 1, rows)


Table = namedtuple("Table", ("x", "alpha", "beta"))
"""All batches of a shape. x: (N, m, d) int8; alpha: (N, d, d); beta: (N, d), int32."""


def _multisets(types, rows):
    """(N, m, k) of these types of rows, and their numbers of pairs of ones, (N, k, k)."""
    chosen = np.array(list(combinations_with_replacement(range(len(types)), rows)), dtype=np.int32).reshape(-1, rows)
    x = np.array(types, dtype=np.int8)[chosen]
    wide = x.astype(np.int32)
    return x, wide.swapaxes(1, 2) @ wide


@cache
def all_batches(rows, columns):
    """Every labelled binary batch, up to row order. A row of zeros has label 1, as its label is in no message."""
    types = [(*bits, y) for bits in product((0, 1), repeat=columns) for y in (-1, 1) if any(bits) or y == 1]
    whole, products = _multisets(types, rows)
    return Table(whole[:, :, :-1], products[:, :-1, :-1], products[:, :-1, -1])


@cache
def _by_alpha(rows, columns):
    table: dict[bytes, list[np.ndarray]] = {}
    for batch, alpha in zip(*_multisets(list(product((0, 1), repeat=columns)), rows), strict=True):
        table.setdefault(alpha.tobytes(), []).append(batch)
    return table


def labellings(x, beta):
    """The labellings with X^T Y = beta, as the number of positive labels of each distinct row but that of zeros."""
    x = np.asarray(x, dtype=np.int64)
    distinct, group = np.unique(x, axis=0, return_inverse=True)
    signs = np.array(list(product((-1, 1), repeat=len(x))), dtype=np.int64).reshape(-1, len(x))
    positive = signs[(signs @ x == beta).all(axis=1)] > 0
    members = group.reshape(-1, 1) == np.flatnonzero(distinct.any(axis=1))
    return set(map(tuple, (positive.astype(int) @ members).tolist()))


def with_sums(alpha, beta, rows):
    """Every binary batch with these sums, and with labels in {-1, +1} for beta. None if there are too many to try."""
    columns = len(alpha)
    if number_of_batches(rows, columns, labelled=False) > MOST_BATCHES or rows > 10:
        return None
    same = _by_alpha(rows, columns).get(np.ascontiguousarray(alpha, dtype=np.int32).tobytes(), [])
    return [x for x in same if beta is None or labellings(x, beta)]


def explaining(thetas, updates, rate, rows, slack, sent=None):
    """Indices into `all_batches` of those whose summed gradients answer every model. None if there are too many to try.

        update = -rate (alpha theta / 4 - beta / 2)

    thetas, updates: (n, d), of summed gradients. slack: absolute distance that an update may be off. sent: (n, d) bool.
    """
    columns = thetas.shape[1]
    if number_of_batches(rows, columns, labelled=True) > MOST_BATCHES:
        return None
    table = all_batches(rows, columns)
    left = np.arange(len(table.x))
    for t, (theta, update) in enumerate(zip(thetas, updates, strict=True)):
        predicted = -rate * (table.alpha[left] @ theta / 4 - table.beta[left] / 2)
        off = np.abs(predicted - update)
        left = left[(off <= slack if sent is None else (off <= slack) | ~sent[t]).all(axis=1)]
    return left.tolist()


@cache
def _distinct(rows, columns):
    """One batch of each (alpha, beta), and the batches that have the same."""
    table = all_batches(rows, columns)
    flat = np.concatenate([table.alpha.reshape(len(table.x), -1), table.beta], axis=1)
    _, one, group = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    order = np.argsort(group, kind="stable")
    return one, np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def explaining_steps(thetas, updates, rate, rows, steps, slack):
    """The sequences of batches, one a local step, whose differences answer every model. None if there are too many to try.

        theta_i = theta_(i-1) - rate (alpha_i theta_(i-1) / 4 - beta_i / 2),   update = theta_n - theta_0

    rate: of summed gradients. Returns, for each, the rows (m, d) of every step.
    """
    columns = thetas.shape[1]
    if number_of_batches(rows, columns, labelled=True) > MOST_BATCHES:
        return None
    table, (one, same) = all_batches(rows, columns), _distinct(rows, columns)
    if len(one) ** steps > MOST_PAIRS:
        return None
    sequences = np.array(list(product(range(len(one)), repeat=steps)), dtype=np.int32).reshape(-1, steps)
    for theta, update in zip(thetas, updates, strict=True):
        state = np.broadcast_to(theta, (len(sequences), columns)).astype(np.float64)
        for i in range(steps):
            alpha, beta = table.alpha[one[sequences[:, i]]], table.beta[one[sequences[:, i]]]
            state = state - rate * (np.einsum("nij,nj->ni", alpha, state) / 4 - beta / 2)
        sequences = sequences[(np.abs(state - theta - update) <= slack).all(axis=1)]
    return [tuple(table.x[k] for k in chosen) for sequence in sequences for chosen in product(*(same[g] for g in sequence))]


def matches_somehow(rows, certain, other):
    """Whether the rows of `other` can be ordered so that they agree with `rows` wherever `certain`. All (m, d)."""
    if len(rows) != len(other):
        return False
    agree = ~((rows[:, None, :] != other[None, :, :]) & certain[:, None, :]).any(axis=2)
    return bool((maximum_bipartite_matching(csr_array(agree), perm_type="column") >= 0).all())
