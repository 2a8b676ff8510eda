"""The exact solver: every binary batch with a given Gram matrix, by columns placed one at a time, or by its lattice."""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from flint import fmpz, fmpz_mat

from vflbench.attacks.batch_reconstruction.gram import (
    PRIME,
    Gram,
    SearchStatus,
    Solutions,
    integer_array,
    residues,
    sort_rows,
)


class TimeLimit:
    """Starts when it is created. `check` raises TimeoutError after `limit` seconds (None: never)."""

    def __init__(self, limit: float | None):
        self._start, self._limit = time.perf_counter(), math.inf if limit is None else limit

    @property
    def seconds(self) -> float:
        """Elapsed so far."""
        return time.perf_counter() - self._start

    def check(self) -> None:
        if self.seconds > self._limit:
            raise TimeoutError(f"the time limit of {self._limit:g} s was reached")


_COMBINATIONS = 1 << 14
"""The largest number of combinations of the free unknowns that are tried at once."""


def bounded_counts(
    member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray, time_limit: TimeLimit
) -> Iterator[np.ndarray]:
    """Every integer n with low <= n <= high and member n = target, each once.

    member: (k, g) of 0 and 1, target: (k,), low, high: (g,), all int64. Yields (g,) int64 arrays. Each equation tightens the
    bounds. The remaining unknowns are solved by elimination modulo a prime, which loses no solution, and each solution is
    checked in integers. Raises TimeoutError.
    """
    stack = [(low, high)]
    while stack:
        time_limit.check()
        bounds = _tighten(member, target, *stack.pop())
        if bounds is None:
            continue
        low, high = bounds
        free = np.flatnonzero(high > low)
        solved = integers_that_solve(member[:, free], target - member @ low, (high - low)[free])
        if not isinstance(solved, int):
            for n in solved:
                full = low.copy()
                full[free] += n
                yield full
            continue
        branch = free[solved]
        middle = (low[branch] + high[branch]) // 2
        upper, lower = low.copy(), high.copy()
        upper[branch], lower[branch] = middle + 1, middle
        stack += [(low, lower), (upper, high)]


def _tighten(
    member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds that all equations together imply, or None if one equation can't hold."""
    outside = (member == 0) * (1 << 40)
    while True:
        need, spare = target - member @ low, member @ high - target
        if (need < 0).any() or (spare < 0).any():
            return None
        top = np.minimum(high, low + (outside + need[:, None]).min(0, initial=1 << 40))
        bottom = np.maximum(low, high - (outside + spare[:, None]).min(0, initial=1 << 40))
        if (bottom > top).any():
            return None
        if (top == high).all() and (bottom == low).all():
            return low, high
        low, high = bottom, top


def integers_that_solve(member: np.ndarray, target: np.ndarray, most: np.ndarray) -> np.ndarray | int:
    """All n with 0 <= n <= most and member n = target, (N, g), or, if too many unknowns are free, the index to branch on."""
    order, unknowns = np.argsort(-most, kind="stable"), len(most)
    form, rank_ = residues(np.c_[member[:, order], target]).rref()
    system = integer_array(form)[:rank_]
    pivots = [int(np.flatnonzero(row)[0]) for row in system]
    if pivots and pivots[-1] == unknowns:
        return np.empty((0, unknowns), dtype=np.int64)
    free = np.setdiff1d(np.arange(unknowns), pivots)
    sizes = most[order[free]] + 1
    if np.prod(sizes, dtype=float) > _COMBINATIONS:
        return int(order[free[-1]])
    values = np.indices(tuple(sizes)).reshape(len(free), -1) if len(free) else np.zeros((0, 1), dtype=np.int64)
    solutions = np.empty((values.shape[1], unknowns), dtype=np.int64)
    solutions[:, order[free]] = values.T
    solutions[:, order[pivots]] = ((system[:, -1, None] - system[:, free] @ values) % PRIME).T
    solutions = solutions[(solutions <= most).all(1)]
    return solutions[(solutions @ member.T == target).all(1)]


_EXACT = 2.0**52
"""Cuts are integers below it, and so is every partial sum of their products with bits: floats are exact."""
_FINEST = 2.0**30  # no cut needs more precision
_ROUNDING = 1e-10  # covers a few hundred float operations on positive numbers


def cuts(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integers V (k, k), upper triangular, and weights w (k,) with sum_k w_k (v_k . r)^2 <= 1 / n for n equal rows r.

    gram: (k, k) int64, the regular Gram matrix A of columns of [1, X]. For any integer matrix V, n equal rows r satisfy

        n (V^T r)(V^T r)^T <= M = V^T A V <= diag(q),   q_k = sum_l |M_kl|,   so n sum_k (v_k . r)^2 / q_k <= 1,

    where <= compares quadratic forms: diag(q) - M is diagonally dominant. So no rounding of V makes the bound wrong, only
    weak. V is the rounded inverse Cholesky factor, by elimination without fractions: the sums are near to r^T A^-1 r.
    """
    size, exact = len(gram), fmpz_mat(gram.tolist())
    augmented = np.hstack([gram, np.eye(size, dtype=np.int64)])
    upper = fmpz_mat(augmented.tolist()).fflu()[3]
    length = [max(1, math.isqrt(abs(int(upper[k, k]) * int(upper[k, size + k])))) for k in range(size)]
    factor = np.triu([[int(upper[k, size + i]) / length[k] for k in range(size)] for i in range(size)])
    scale = 2.0 ** np.floor(np.log2(min(_FINEST, _EXACT / (4 * size * np.abs(factor).max()))))
    vectors = np.rint(factor * scale)
    integers = fmpz_mat(vectors.astype(np.int64).tolist())
    products = np.array((integers.transpose() * exact * integers).tolist(), dtype=object).astype(float)
    most = np.abs(products).sum(0) * (1 + _ROUNDING)
    return vectors, np.divide(1, most, where=most > 0, out=np.zeros(size))


@dataclass(frozen=True)
class _Pivot:
    """One column that the earlier ones do not span, and the columns that become dependent with it.

    column: its index in [1, X]. dependent: (q,) the columns that it and the earlier levels span, over the rationals.
    coefficients: (k + 1, q) of these columns modulo `prime`: a row's bits in the dependent columns are its bits in the k + 1
    levels times `coefficients`.
    """

    column: int
    dependent: np.ndarray
    coefficients: np.ndarray
    prime: int

    def bits(self, bits: np.ndarray) -> np.ndarray:
        """(g, q): the dependent columns of prefixes (g, k + 1); neither 0 nor 1 where a prefix belongs to no row."""
        return bits.astype(np.int64) @ self.coefficients % self.prime


def order_columns(gram: np.ndarray) -> list[_Pivot]:
    """The levels in the order of the smallest Schur complement, each with the columns that become dependent.

    gram: (n, n) integers, the Gram matrix of [1, X], at least one row. The intercept is the first level, and there are as
    many as the rank. Floats decide the order alone. A column depends on others in every batch if it does in the Gram matrix
    over the rationals.
    """
    order = _smallest_first(gram.astype(float))
    form, denominator, rank = fmpz_mat(gram[np.ix_(order, order)].tolist()).rref()
    prime = next(p for p in range(PRIME, 2, -2) if int(denominator) % p and fmpz(p).is_prime())
    echelon = np.array([[int(v) for v in row] for row in form.tolist()[:rank]], dtype=object)
    pivots = [int(np.flatnonzero(row)[0]) for row in echelon]
    others = np.setdiff1d(np.arange(len(gram)), pivots)
    coefficients = (echelon[:, others] * pow(int(denominator), -1, prime) % prime).astype(np.int64)
    last = np.array([max(np.flatnonzero(echelon[:, k]), default=0) for k in others], dtype=np.int64)
    columns = np.array(order)[others]
    return [
        _Pivot(order[pivot], columns[last == k], coefficients[: k + 1, last == k], prime) for k, pivot in enumerate(pivots)
    ]


@np.errstate(over="ignore", invalid="ignore")  # sums of no batch overflow
def _smallest_first(schur: np.ndarray) -> list[int]:
    """An order of the columns in which Gauss elimination, in place, has the smallest pivot next. The intercept is first."""
    order, remaining = [0], list(range(1, len(schur)))
    while remaining:
        column = order[-1]
        schur -= np.outer(schur[:, column], schur[column]) / schur[column, column]
        pivots = {k: schur[k, k] for k in remaining if schur[k, k] > 1e-9}  # the others come last: most are dependent
        if not pivots:
            break
        order.append(min(pivots, key=pivots.__getitem__))
        remaining.remove(order[-1])
    return order + remaining


_WIDEST = 1 << 20  # prefixes of a level


Prefixes = tuple[list[np.ndarray], list[np.ndarray]]


def row_prefixes(gram: np.ndarray, levels: list[_Pivot], time_limit: TimeLimit) -> Prefixes:
    """The beginnings that rows can have, as a tree: in the range of alpha, with a leverage r^T alpha^+ r of at most 1.

    gram: of [1, X], and its levels. At each level the leverage of a prefix grows by the squared distance of its last bit
    from the prediction by the others, as far as the level's cut is certain of it. Raises TimeoutError.

    Returns child, most. child[t]: (N_t, 2), the continuations of each prefix of t + 1 bits by 0 and by 1, or -1. most[t]:
    (N_t + 1,), the largest number of rows with each, as n equal rows of leverage h satisfy n h <= 1, and a prefix has at
    most as many rows as its continuations have together; the last is 0, which a child of -1 takes.
    """
    columns, rows = [level.column for level in levels], int(gram[0, 0])
    vectors, weights = cuts(gram[np.ix_(columns, columns)])
    bits, leverage = np.zeros((1, 0), dtype=np.uint8), np.zeros(1)
    child, most = [], []
    for t, level in enumerate(levels):
        time_limit.check()
        zero = bits @ vectors[:t, t]
        both = leverage + np.r_[zero, zero + vectors[t, t]].reshape(2, -1) ** 2 * weights[t]
        bit, parent = np.nonzero((both <= 1 + _ROUNDING) & (np.arange(2)[:, None] >= (t == 0)))  # the intercept is 1
        if len(bit) > _WIDEST:
            raise TimeoutError(f"more than {_WIDEST} beginnings of rows are possible")
        extended = np.c_[bits[parent], bit.astype(np.uint8)]
        valid = (level.bits(extended) <= 1).all(1)
        bit, parent, bits, parents = bit[valid], parent[valid], extended[valid], len(bits)
        leverage = both[bit, parent]
        child.append(np.full((parents, 2), -1))
        child[-1][parent, bit] = np.arange(len(bits))
        allowed = np.minimum(np.floor((1 + _ROUNDING) / np.maximum(leverage, 1 / (2 * rows))), rows)
        most.append(np.r_[allowed.astype(np.int64), 0])
    for t in range(len(levels) - 1, 0, -1):
        most[t - 1][:-1] = np.minimum(most[t - 1][:-1], most[t][child[t]].sum(1))
    return child[1:], most


def column_search(gram: np.ndarray, levels: list[_Pivot], prefixes: Prefixes, time_limit: TimeLimit) -> Iterator[np.ndarray]:
    """(m, d) batches, unverified, rows in no order: depth first over the levels.

    Rows with equal bits so far form a group; the next column is a count for each group. The counts n_g of ones in the next
    column j satisfy, for every placed column i,

        sum_{g: i is 1 in g} n_g = alpha_ij,   0 <= n_g <= s_g,

    where the intercept is the first column placed. Different counts are different batches, whatever the order of rows.
    Dependent columns split no group: the placed columns determine their bits, which must be 0 or 1. gram: of [1, X]. Raises
    TimeoutError.
    """
    columns, (child, limits) = [level.column for level in levels], prefixes

    def place(t: int, bits: np.ndarray, nodes: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
        """Groups after t levels: bits (g, t), nodes of the tree (g,), sizes (g,)."""
        if t == len(levels):
            batch = np.empty((len(bits), len(gram)), dtype=np.int64)
            batch[:, columns] = bits
            for k, level in enumerate(levels):
                batch[:, level.dependent] = level.bits(bits[:, : k + 1])
            yield np.repeat(batch[:, 1:], sizes, axis=0)
            return
        children = child[t - 1][nodes]
        most = limits[t][children]
        ones = gram[columns[:t], columns[t]]
        member, target = np.r_[bits.T, 1 - bits.T[1:]], np.r_[ones, ones[0] - ones[1:]]
        for n in bounded_counts(
            member, target, np.maximum(sizes - most[:, 0], 0), np.minimum(most[:, 1], sizes), time_limit
        ):
            counts = np.r_[sizes - n, n]
            kept = counts > 0
            extended = np.c_[np.r_[bits, bits], np.repeat([0, 1], len(bits))]
            yield from place(t + 1, extended[kept], children.T.ravel()[kept], counts[kept])

    start = np.ones((int(limits[0].any()), 1), dtype=np.int64)
    yield from place(1, start, np.zeros(len(start), dtype=np.int64), np.full(len(start), gram[0, 0]))


MOST_LABELLINGS = 1000  # of a batch


def labellings(gram: Gram, x: np.ndarray, time_limit: TimeLimit) -> tuple[np.ndarray, ...] | None:
    """The labellings of a batch that fit beta: X^T y = (beta + diag alpha) / 2 with y in {0, 1}; None for more than
    MOST_LABELLINGS, as what the first ones agree on may not hold for all.

    gram: with beta. x: (m, d) matching alpha. Returns the labellings, each (m,) in [0, 1]. Equal rows can't be told from one
    another, so each has the share of positives among them; a row of zeros does not enter beta and has nan. Raises
    TimeoutError.
    """
    groups, of_row, sizes = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    of_row = of_row.reshape(-1)
    nonzero = groups.any(1)
    target = (gram.beta + np.diagonal(gram.alpha)) // 2
    member, high = groups[nonzero].T.astype(np.int64), sizes[nonzero].astype(np.int64)
    solutions: list[np.ndarray] = []
    for n in bounded_counts(member, target, np.zeros_like(high), high, time_limit):
        if len(solutions) == MOST_LABELLINGS:
            return None
        share = np.full(len(groups), np.nan)
        share[nonzero] = n / high
        solutions.append(share[of_row])
    return tuple(solutions)


_REDUCTIONS = 100  # of a lattice, each from another order of the basis


def unique_batch(gram: np.ndarray, order: list[int], time_limit: TimeLimit) -> np.ndarray | None:
    """The batch, if a lattice reduction yields it; no other batch then has this Gram matrix.

    gram: (n, n) integers, the Gram matrix A of [1, X], of rank m, the number of rows. order: m columns S that span the
    others. The rows of A generate a sublattice of the one that the rows r of [1, X] generate. Under the form r^T A^+ r the
    rows r are orthonormal, so their lattice is Z^m, whose vectors of norm 1 are the rows and their negatives. A reduced
    basis of vectors of norm 1 proves that both lattices are equal: the basis is then the rows up to sign, and no other batch
    has them. This is likely from m + 4 columns on. From some 80 rows on, one reduction ends in a basis of longer vectors;
    another order of these gets further. Returns (m, d) int64, not yet verified, or None if the reduction is inconclusive.
    Raises TimeoutError, between two reductions.
    """
    size = len(order)
    basis = fmpz_mat(fmpz_mat(gram[:, order].tolist()).hnf().tolist()[:size])
    # Coordinates in S determine a row: its form is that of the inverse of A_SS, and integral on the lattice of A's rows.
    inside = fmpz_mat(gram[np.ix_(order, order)].tolist())
    form, denominator = (basis * inside.solve(basis.transpose())).numer_denom()
    permutation, _, _, minors = form.fflu()
    if denominator != 1 or not permutation.is_one() or min(int(minors[i, i]) for i in range(size)) < 1 or form.det() != 1:
        return None  # not unimodular, or not positive definite: sums of no batch
    for attempt in range(_REDUCTIONS):
        time_limit.check()
        norms = np.array([int(form[i, i]) for i in range(size)])
        shuffled = np.random.default_rng(attempt).permutation(size) if attempt else np.arange(size)
        shuffled = shuffled[np.argsort(norms[shuffled] != 1, kind="stable")].tolist()
        form = fmpz_mat([[form[i, j] for j in shuffled] for i in shuffled])
        form, change = form.lll(transform=True, rep="gram", delta=0.999 if attempt else 0.99)
        rows = basis.tolist()
        basis = change * fmpz_mat([rows[i] for i in shuffled])
        if all(form[i, i] == 1 for i in range(size)):
            bits, denominator = (basis * inside.solve(fmpz_mat(gram[order].tolist()))).numer_denom()
            x = np.array([[int(v) for v in row] for row in bits.tolist()], dtype=object)
            # The intercept, which is 1, determines the signs.
            return np.clip(np.where(x[:, :1] < 0, -x, x), -2, 2).astype(np.int64)[:, 1:] if denominator == 1 else None
    return None


_MANY_ROWS = 128  # with more, one reduction takes seconds, can't be stopped, and seldom ends in unit vectors


def enumerate_batches(gram: Gram, *, time_limit: float | None = 60.0, max_batches: int = 1000) -> Solutions:
    """Every batch X, up to row order, with X^T X = alpha, and with labels that fit beta if it is given.

    gram: the sums that the updates determine. time_limit: seconds, None for no limit. max_batches: the search ends at the
    next batch and reports "more than" this number.

    With rank m, a basis of alpha's rows is reduced first, which in practice proves from d >= m + 4 on that there is one
    batch. Otherwise columns are placed one at a time over groups of equal rows, pruned by the vectors that can be rows.

    Returns Solutions, each batch verified in integers: `proved` with all of them and `infeasible` if there is none, where
    the search ended or the lattice proves it; else `partial` with some, `limit` with none.
    """
    clock, batches, labels = TimeLimit(time_limit), list[np.ndarray](), list[tuple[np.ndarray, ...]]()
    complete, more = True, ""
    try:
        candidates, note = _candidates(gram, clock)
        for x in map(sort_rows, filter(gram.matches, candidates)):
            fitting = None if gram.beta is None else labellings(gram, x, clock)
            if fitting == ():
                continue
            if len(batches) == max_batches:
                complete, note = False, f"more than {max_batches} batches match"
                break
            batches.append(x)
            labels.append(fitting or ())
            more = more if fitting or gram.beta is None else f"; of some batches more than {MOST_LABELLINGS} labellings fit"
    except TimeoutError as limit:
        complete, note = len(batches) == 1 and is_alone(batches[0]), str(limit)
        note += ", but the columns of [1, X] generate Z^m: no other batch has this alpha" if complete else ""
    status: SearchStatus = ("proved" if batches else "infeasible") if complete else ("partial" if batches else "limit")
    return Solutions(status, tuple(batches), None if gram.beta is None else tuple(labels), clock.seconds, note + more)


def _candidates(gram: Gram, time_limit: TimeLimit) -> tuple[Iterable[np.ndarray], str]:
    """Batches (m, d), all that match among them, and why there are no others."""
    if (problem := gram.inconsistency()) is not None:
        return (), problem
    if gram.rows == 0:
        return (np.zeros((0, len(gram.alpha))),), "a batch without rows"
    whole = gram.with_intercept
    levels = order_columns(whole)
    if len(levels) == gram.rows <= _MANY_ROWS:
        x = unique_batch(whole, [level.column for level in levels], time_limit)
        if x is not None and gram.matches(x):
            return (x,), "the lattice of alpha's rows is Z^m: no other batch has it"
    return column_search(whole, levels, row_prefixes(whole, levels, time_limit), time_limit), "the search ended"


def is_alone(x: np.ndarray) -> bool:
    """Whether the columns of Z = [1, X] generate Z^m over the integers, which proves that X is alone up to row order.

    x: (m, d) of 0 and 1. They do if and only if Z has m invariant factors (Smith normal form), all of them 1. Then another
    batch with Z'^T Z' = Z^T Z has Z' = Q Z with an orthogonal Q, unique since Z has rank m. Each unit vector is Z c for
    integers c, so the columns of Q are Z' c: Q is integral, a signed permutation, and no sign is negative, since Q takes the
    column of ones to itself. False means nothing.
    """
    factors = fmpz_mat(np.c_[np.ones(len(x), dtype=np.int64), x].tolist()).snf()
    return len(x) <= x.shape[1] + 1 and all(factors[i, i] == 1 for i in range(len(x)))
