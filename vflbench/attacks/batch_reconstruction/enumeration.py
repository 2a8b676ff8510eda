"""The exact solver: every binary batch with a given Gram matrix, by columns placed one at a time, or by its lattice."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from flint import fmpz_mat

from vflbench.attacks.batch_reconstruction.gram import PRIME, Gram, primes, reduced
from vflbench.attacks.batch_reconstruction.solutions import Solutions, Status, sort_rows


class TimeLimitReached(Exception):  # noqa: N818 (not an error)
    """The search reached its time limit."""


class TimeLimit:
    """Starts when it is created. `check` raises TimeLimitReached after `limit` seconds (None: never)."""

    def __init__(self, limit: float | None):
        self._start = time.perf_counter()
        self._limit = float("inf") if limit is None else limit

    @property
    def seconds(self) -> float:
        """Elapsed so far."""
        return time.perf_counter() - self._start

    def check(self) -> None:
        if self.seconds > self._limit:
            raise TimeLimitReached


# The largest number of combinations of the free unknowns that are tried at once.
_COMBINATIONS = 1 << 14


def bounded_counts(
    member: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray, time_limit: TimeLimit
) -> Iterator[np.ndarray]:
    """Every integer n with low <= n <= high and member n = target, each once.

    member: (k, g) of 0 and 1, target: (k,), low, high: (g,), all int64. Yields (g,) int64 arrays. Each equation tightens the
    bounds. The remaining unknowns are solved by elimination modulo a prime, which loses no solution, and each solution is
    checked in integers. Raises TimeLimitReached.
    """
    stack = [(low, high)]
    while stack:
        time_limit.check()
        bounds = _tighten(member, target, *stack.pop())
        if bounds is None:
            continue
        low, high = bounds
        free = np.flatnonzero(high > low)
        if not len(free):
            yield low
            continue
        if len(free) > 3:
            solved = integers_that_solve(member[:, free], target - member @ low, high[free] - low[free])
            if isinstance(solved, np.ndarray):
                for n in solved:
                    full = low.copy()
                    full[free] += n
                    yield full
                continue
            branch = free[solved]
        else:
            branch = free[(high - low)[free].argmin()]
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
        if not len(target):
            return low, high
        top = np.minimum(high, low + (outside + need[:, None]).min(0))
        bottom = np.maximum(low, high - (outside + spare[:, None]).min(0))
        if (bottom > top).any():
            return None
        if (top == high).all() and (bottom == low).all():
            return low, high
        low, high = bottom, top


def integers_that_solve(member: np.ndarray, target: np.ndarray, most: np.ndarray) -> np.ndarray | int:
    """All n with 0 <= n <= most and member n = target, (N, g), or, if too many unknowns are free, the index to branch on."""
    order = np.argsort(-most, kind="stable")
    system, pivots = reduced(np.c_[member[:, order], target])
    unknowns = len(most)
    if pivots and pivots[-1] == unknowns:
        return np.empty((0, unknowns), dtype=np.int64)
    free = [i for i in range(unknowns) if i not in set(pivots)]
    sizes = [int(most[order[i]]) + 1 for i in free]
    if np.prod(sizes, dtype=float) > _COMBINATIONS:
        return int(order[free[-1]])
    values = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=np.int64)
    solutions = np.empty((values.shape[1], unknowns), dtype=np.int64)
    solutions[:, order[free]] = values.T
    solutions[:, order[pivots]] = ((system[: len(pivots), -1, None] - system[: len(pivots), free] @ values) % PRIME).T
    solutions = solutions[(solutions <= most).all(1)]
    return solutions[(solutions @ member.T == target).all(1)]


# The cuts are integers below 2^52, and so is every partial sum of their products with bits: floats are exact.
_EXACT = 2.0**52
# No cut needs more precision than this.
_FINEST = 2.0**30
# Covers the rounding of a few hundred float operations on positive numbers.
ROUNDING = 1e-10
_REFINEMENTS = 3


@dataclass(frozen=True)
class Cut:
    """An integer combination of a level's column and the earlier ones, nearly uncorrelated with the earlier cuts.

    vector: (k + 1,) float64 of integers, v. weight: w, so that sum_k w_k (v_k . r)^2 <= 1 / n for n equal rows r. least: at
    full rank, where each row has leverage 1, that sum over all levels is at least the smallest `least`; not if it is <= 0.
    """

    vector: np.ndarray
    weight: float
    least: float


def cuts(gram: np.ndarray) -> list[Cut]:
    """For each column of [1, X] in this order a cut, so that the sums above are near to leverages r^T alpha^-1 r.

    gram: (k, k) int64, the Gram matrix A of these columns. For any integer matrix V, n equal rows r of any batch satisfy

        n (V^T r)(V^T r)^T <= M = V^T A V <= diag(q),   q_k = sum_l |M_kl|,   so n sum_k (v_k . r)^2 / q_k <= 1,

    where <= compares quadratic forms: diag(q) - M is diagonally dominant. So no error in V makes the bound wrong, only weak.
    V is a rounded multiple of the inverse Cholesky factor, for which M is nearly a multiple of I. M is exact.
    """
    size, exact = len(gram), fmpz_mat(gram.tolist())
    factor = _inverse_factor(gram.astype(float))
    for _ in range(_REFINEMENTS):
        scale = 2.0 ** np.floor(np.log2(min(_FINEST, _EXACT / (4 * size * np.abs(factor).max()))))
        vectors = np.rint(factor * scale)
        integers = fmpz_mat(vectors.astype(np.int64).tolist())
        products = np.array((integers.transpose() * exact * integers).tolist(), dtype=object).astype(float)
        diagonal = np.diagonal(products)
        beside = np.abs(products).sum(0) - np.abs(diagonal)
        if beside.max() < 1e-6 * scale**2:
            break
        correction = np.triu(products) / scale**2
        np.fill_diagonal(correction, (np.diagonal(correction) - 1) / 2)
        factor = factor - factor @ np.clip(correction, -0.5, 0.5)
    most = (np.abs(diagonal) + beside) * (1 + ROUNDING)
    return [
        Cut(vectors[: k + 1, k], 1 / most[k], float((diagonal - beside)[k] / most[k]) - ROUNDING)
        if most[k] > 0
        else Cut(vectors[: k + 1, k], 0.0, 0.0)
        for k in range(size)
    ]


def _inverse_factor(gram: np.ndarray) -> np.ndarray:
    """W, upper triangular, with W^T A W near I, also if A is singular in floats."""
    for damping in (0.0, 1e-12, 1e-9, 1e-6):
        try:
            lower = np.linalg.cholesky(gram + damping * np.trace(gram) * np.eye(len(gram)))
            inverse = np.linalg.inv(lower).T
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(inverse).all():
            return np.triu(inverse)
    return np.diag(1 / np.sqrt(np.maximum(np.diagonal(gram), 1)))


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


_SMALLEST = 1e-9  # Schur complement in floats; columns below it come last, and most of them depend on others


def order_columns(gram: np.ndarray) -> list[Level]:
    """The levels in the order of the smallest Schur complement, each with the columns that become dependent.

    gram: (n, n) integers, the Gram matrix of [1, X], at least one row. The intercept is the first level, and there are as
    many as the rank. Floats decide the order alone. A column depends on others in every batch if it does in the Gram matrix
    over the rationals.
    """
    order = _smallest_first(gram.astype(float))
    form, denominator, rank = fmpz_mat(gram[np.ix_(order, order)].tolist()).rref()
    prime = next(prime for prime in primes() if int(denominator) % prime)
    echelon = np.array([[int(v) for v in row] for row in form.tolist()[:rank]], dtype=object)
    pivots = [int(np.flatnonzero(row)[0]) for row in echelon]
    chosen = [order[k] for k in pivots]
    others = np.setdiff1d(np.arange(len(gram)), pivots)
    coefficients = (echelon[:, others] * pow(int(denominator), -1, prime) % prime).astype(np.int64)
    last = np.array([max(np.flatnonzero(echelon[:, k]), default=0) for k in others], dtype=np.int64)
    columns = np.array(order)[others]
    return [
        Level(column, cut, columns[last == k], coefficients[: k + 1, last == k], prime)
        for k, (column, cut) in enumerate(zip(chosen, cuts(gram[np.ix_(chosen, chosen)]), strict=True))
    ]


@np.errstate(over="ignore", invalid="ignore")  # sums of no batch overflow
def _smallest_first(schur: np.ndarray) -> list[int]:
    """An order of the columns in which Gauss elimination, in place, has the smallest pivot next. The intercept is first."""
    order, remaining = [0], list(range(1, len(schur)))
    while remaining:
        column = order[-1]
        schur -= np.outer(schur[:, column], schur[column]) / schur[column, column]
        pivots = {k: schur[k, k] for k in remaining if schur[k, k] > _SMALLEST}
        if not pivots:
            break
        order.append(min(pivots, key=pivots.__getitem__))
        remaining.remove(order[-1])
    return order + remaining


@dataclass(frozen=True)
class RowCandidates:
    """A tree of row prefixes. child[t]: (N_t, 2), the continuations of each prefix of t + 1 bits by 0 and by 1, or -1.

    most[t]: (N_t,), the largest number of rows with each prefix of t + 1 bits. The tree ends early if it becomes too wide.
    """

    child: list[np.ndarray]
    most: list[np.ndarray]
    rows: int

    def limits(self, level: int, nodes: np.ndarray, bit: int) -> tuple[np.ndarray, np.ndarray]:
        """The prefixes continued by a bit, and the most rows of each. nodes: (g,) at `level`. Returns two (g,)."""
        child = self.child[level][nodes, bit]
        return child, np.where(child >= 0, self.most[level + 1][child], 0)


def leverages(levels: list[Level], level: int, bits: np.ndarray, leverage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower bounds of r^T alpha^+ r for the prefixes r continued with a 0 and with a 1 at `level`.

    bits: (g, level) float, leverage: (g,) of the prefixes. At each level it grows by the squared distance of the bit from
    its prediction by the earlier bits, over the Schur complement, as far as the level's cut is certain of it. n equal rows
    of leverage h satisfy n h <= 1.
    """
    cut = levels[level].cut
    zero = bits @ cut.vector[:-1]
    return leverage + zero**2 * cut.weight, leverage + (zero + cut.vector[-1]) ** 2 * cut.weight


def of_intercept(levels: list[Level]) -> np.ndarray:
    """(1,): the bound of the leverage of the prefix that all rows have."""
    return levels[0].cut.vector ** 2 * levels[0].cut.weight


def rows_allowed(leverage: np.ndarray, rows: int) -> np.ndarray:
    """The largest number of equal rows with a leverage. leverage: (g,) >= 0."""
    return np.minimum(np.floor((1 + ROUNDING) / np.maximum(leverage, 1 / (2 * rows))), rows).astype(np.int64)


def dependent_bits_are_valid(level: Level, bits: np.ndarray) -> np.ndarray:
    """Whether every column that depends on the levels so far is 0 or 1. bits: (g, level + 1) int64. Returns (g,) bool."""
    if not len(level.dependent) or not len(bits):
        return np.ones(len(bits), dtype=bool)
    return ((bits @ level.coefficients) % level.prime <= 1).all(1)


def row_candidates(levels: list[Level], rows: int, widest: int, time_limit: TimeLimit) -> RowCandidates:
    """The tree of the prefixes that a row can have: in the range of alpha, with a leverage of at most 1.

    levels: of the Gram matrix of [1, X]. widest: the largest number of prefixes of a level; the tree stops before. If the
    rank is the number of rows, every row has leverage 1. Raises TimeLimitReached.
    """
    bits, leverage = np.ones((1, 1), dtype=np.int64), of_intercept(levels)
    child: list[np.ndarray] = []
    allowed = [np.where(dependent_bits_are_valid(levels[0], bits), rows, 0)]
    least = min(level.cut.least for level in levels)
    for t in range(1, len(levels)):
        time_limit.check()
        both = np.concatenate(leverages(levels, t, bits.astype(float), leverage))
        inside = np.flatnonzero(both <= 1 + ROUNDING)
        if len(inside) > widest:
            return _without_dead_ends(child, allowed, rows)
        parents = len(bits)
        bit, parent = np.divmod(inside, parents)
        bits, leverage = np.c_[bits[parent], bit], both[inside]
        valid = dependent_bits_are_valid(levels[t], bits)
        if t + 1 == rows:
            valid &= leverage >= least
        bits, leverage = bits[valid], leverage[valid]
        child.append(np.full((parents, 2), -1))
        child[-1][parent[valid], bit[valid]] = np.arange(len(bits))
        allowed.append(rows_allowed(leverage, rows))
    return _without_dead_ends(child, allowed, rows)


def _without_dead_ends(child: list[np.ndarray], allowed: list[np.ndarray], rows: int) -> RowCandidates:
    """A prefix has at most as many rows as its continuations have together."""
    most = [*allowed[:-1], allowed[-1]]
    for t in range(len(child) - 1, -1, -1):
        below = (
            np.where(child[t] >= 0, most[t + 1][child[t]], 0).sum(1) if len(most[t + 1]) else np.zeros(len(child[t]), int)
        )
        most[t] = np.minimum(allowed[t], below)
    return RowCandidates(child, most, rows)


class ColumnSearch:
    """Depth first over the levels. Rows with equal bits so far form a group; the next column is a count for each group.

    The counts n_g of ones in the next column j satisfy, for every placed column i,

        sum_{g: i is 1 in g} n_g = alpha_ij,   0 <= n_g <= s_g,

    where the intercept is the first column placed. Different counts are different batches, whatever the order of rows.
    Dependent columns split no group: the placed columns determine their bits, which must be 0 or 1.

    gram: (d + 1, d + 1), of [1, X]. row_candidates: the prefixes that rows can have.
    """

    def __init__(self, gram: np.ndarray, levels: list[Level], row_candidates: RowCandidates, time_limit: TimeLimit):
        self._gram, self._levels, self._row_candidates, self._time_limit = gram, levels, row_candidates, time_limit
        self._rows = int(gram[0, 0])

    def batches(self) -> Iterator[np.ndarray]:
        """(m, d) batches, unverified, rows in no order. Raises TimeLimitReached."""
        start = np.ones((1, 1), dtype=np.int64)
        if not dependent_bits_are_valid(self._levels[0], start).all():
            return
        sizes = np.full(1, self._rows)
        yield from self._place(1, start, of_intercept(self._levels), sizes, np.zeros(1, dtype=np.int64))

    def _place(
        self, level: int, bits: np.ndarray, leverage: np.ndarray, sizes: np.ndarray, nodes: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Groups at a level: bits (g, level), leverages (g,), sizes (g,), the tree nodes of their prefixes (g,)."""
        if level == len(self._levels):
            yield self._batch(bits, sizes)
            return
        extended = [np.c_[bits, np.full(len(bits), bit)] for bit in (0, 1)]
        both = leverages(self._levels, level, bits.astype(float), leverage)
        children, most = zip(*(self._most(level, nodes, bit, extended[bit], both[bit]) for bit in (0, 1)), strict=True)
        low, high = np.maximum(sizes - most[0], 0), np.minimum(most[1], sizes)
        if (low > high).any():
            return
        placed = [earlier.column for earlier in self._levels[:level]]
        column = self._levels[level].column
        ones = self._gram[placed, column]
        member = np.r_[bits.T, 1 - bits.T[1:]]
        target = np.r_[ones, ones[0] - ones[1:]]
        for n in bounded_counts(member, target, low, high, self._time_limit):
            counts = np.r_[sizes - n, n]
            kept = counts > 0
            yield from self._place(
                level + 1,
                np.r_[extended[0], extended[1]][kept],
                np.concatenate(both)[kept],
                counts[kept],
                np.concatenate(children)[kept],
            )

    def _most(
        self, level: int, nodes: np.ndarray, bit: int, extended: np.ndarray, leverage: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tree nodes of the prefixes continued by a bit, and the largest number of rows of each."""
        most = rows_allowed(leverage, self._rows)
        if level <= len(self._row_candidates.child):
            children, limit = self._row_candidates.limits(level - 1, nodes, bit)
            return children, np.minimum(most, limit)
        return nodes, np.where(dependent_bits_are_valid(self._levels[level], extended), most, 0)

    def _batch(self, bits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        batch = np.empty((len(bits), len(self._gram)), dtype=np.int64)
        for k, level in enumerate(self._levels):
            batch[:, level.column] = bits[:, k]
            batch[:, level.dependent] = bits[:, : k + 1] @ level.coefficients % level.prime
        return np.repeat(batch[:, 1:], sizes, axis=0)


def labellings(gram: Gram, x: np.ndarray, most: int, time_limit: TimeLimit) -> tuple[tuple[np.ndarray, ...], bool]:
    """The labellings of a batch that fit beta: X^T y = (beta + diag alpha) / 2 with y in {0, 1}.

    gram: with beta. x: (m, d) matching alpha. most: the largest number that is returned. Returns the labellings, each (m,)
    in [0, 1], and whether these are all. Equal rows can't be distinguished, so each has the share of positives among them; a
    row of zeros does not enter beta and has nan. Raises TimeLimitReached.
    """
    groups, of_row, sizes = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    of_row = of_row.reshape(-1)
    nonzero = groups.any(1)
    target = (gram.beta + np.diagonal(gram.alpha)) // 2
    member, high = groups[nonzero].T.astype(np.int64), sizes[nonzero].astype(np.int64)
    solutions: list[np.ndarray] = []
    for n in bounded_counts(member, target.astype(np.int64), np.zeros_like(high), high, time_limit):
        if len(solutions) == most:
            return tuple(solutions), False
        share = np.full(len(groups), np.nan)
        share[nonzero] = n / high
        solutions.append(share[of_row])
    return tuple(solutions), True


# The largest number of reductions, each from another order of the basis.
_ROUNDS = 100


def unique_batch(gram: np.ndarray, order: list[int], time_limit: TimeLimit) -> np.ndarray | None:
    """The batch, if a lattice reduction yields it; no other batch then has this Gram matrix.

    gram: (n, n) integers, the Gram matrix A of [1, X], of rank m, the number of rows. order: m columns S that span the
    others. The rows of A generate a sublattice of the one that the rows r of [1, X] generate. Under the form r^T A^+ r the
    rows r are orthonormal, so their lattice is Z^m, whose vectors of norm 1 are the rows and their negatives. A reduced
    basis of vectors of norm 1 proves that both lattices are equal: the basis is then the rows up to sign, and no other batch
    has them. This is likely from m + 4 columns on. Returns (m, d) int64, not yet verified, or None if the reduction is
    inconclusive. Raises TimeLimitReached, between two reductions.
    """
    gram_columns = fmpz_mat(gram[:, order].tolist())
    basis = gram_columns.hnf()
    basis = fmpz_mat([[basis[i, j] for j in range(len(order))] for i in range(len(order))])
    # Coordinates in S determine a row: its form is that of the inverse of A_SS, and integral on the lattice of A's rows.
    form, denominator = (basis * fmpz_mat(gram[np.ix_(order, order)].tolist()).solve(basis.transpose())).numer_denom()
    if denominator != 1 or form.det() != 1:
        return None
    change = _orthonormal(form, time_limit)
    return None if change is None else _extended(gram, order, change * basis)


def _orthonormal(form: fmpz_mat, time_limit: TimeLimit) -> fmpz_mat | None:
    """The change of basis that makes a unimodular form the identity, or None if the reductions do not reach it.

    From some 80 rows on, one reduction ends in a basis of longer vectors; another order of these gets further.
    """
    rank = form.nrows()
    reduced, change = form.lll(transform=True, rep="gram")
    for attempt in range(_ROUNDS):
        norms = np.array([int(reduced[i, i]) for i in range(rank)])
        if (norms == 1).all():
            return change
        time_limit.check()
        order = np.random.default_rng(attempt).permutation(rank)
        order = order[np.argsort(norms[order] != 1, kind="stable")].tolist()
        reduced = fmpz_mat([[reduced[i, j] for j in order] for i in order])
        reduced, further = reduced.lll(transform=True, rep="gram", delta=0.999)
        change = further * fmpz_mat([[change[i, j] for j in range(rank)] for i in order])
    return None


def _extended(gram: np.ndarray, order: list[int], rows: fmpz_mat) -> np.ndarray:
    """From the coordinates in S to all columns; the intercept, which is 1, determines the signs."""
    inside = fmpz_mat(gram[np.ix_(order, order)].tolist())
    coefficients = inside.solve(fmpz_mat(gram[order].tolist()))
    products, denominator = (rows * coefficients).numer_denom()
    coordinates = np.array([[int(v) for v in row] for row in products.tolist()], dtype=object)
    if denominator != 1:
        coordinates = coordinates * 0 - 1  # not integral, so no batch: the verification rejects it
    signs = np.where(coordinates[:, :1] < 0, -1, 1)
    return np.clip(coordinates * signs, -2, 2).astype(np.int64)[:, 1:]


# With fewer rows a search by columns ends within milliseconds, before flint has reduced anything.
_FEW_ROWS = 12
# With more rows a single reduction takes seconds, cannot be stopped at the time limit, and seldom ends in unit vectors.
_MANY_ROWS = 128
_WIDEST = 1 << 17  # of the tree of row candidates


class _Matches:
    """The verified batches so far."""

    def __init__(self, gram: Gram, most: int, time_limit: TimeLimit):
        self._gram, self._most, self.time_limit = gram, most, time_limit
        self.labels: list[tuple[np.ndarray, ...]] | None = None if gram.beta is None else []
        self.batches: list[np.ndarray] = []
        self.all_labels = True

    def add(self, x: np.ndarray) -> bool:
        """Keep a batch if it has the Gram matrix and some labels fit. False if that would be one too many."""
        if not self._gram.matches(x):
            return True
        x = sort_rows(x)
        fitting: tuple[np.ndarray, ...] = ()
        if self.labels is not None:
            fitting, complete = labellings(self._gram, x, max(self._most, 1), self.time_limit)
            if not fitting:
                return True
            self.all_labels &= complete
        if len(self.batches) >= self._most:
            return False
        self.batches.append(x)
        if self.labels is not None:
            self.labels.append(fitting)
        return True


def enumerate_batches(gram: Gram, *, time_limit: float | None = 60.0, max_batches: int = 1000) -> Solutions:
    """Every batch X, up to row order, with X^T X = alpha, and with labels that fit beta if it is given.

    gram: the sums that the updates determine. time_limit: seconds, None for no limit. max_batches: the search ends at the
    next batch and reports "more than" this number; as many labellings of each batch are kept.

    With rank m and more than a few rows, a basis of alpha's rows is reduced first, which in practice proves from d >= m + 4
    on that there is one batch. Otherwise columns are placed one at a time over groups of equal rows, pruned by the vectors
    that can be rows unless there are too many of these.

    Returns Solutions, each batch verified in integers: `proved` with all of them and `infeasible` if there is none, where
    the search ended or the lattice proves it; else `partial` with some, `limit` with none.
    """
    matches = _Matches(gram, max_batches, TimeLimit(time_limit))
    if (problem := gram.inconsistency()) is not None:
        return _solutions(matches, True, problem)
    if gram.rows == 0:
        matches.add(np.zeros((0, len(gram.alpha)), dtype=np.int64))
        return _solutions(matches, True, "a batch without rows")
    try:
        return _solutions(matches, *_search(gram, matches))
    except TimeLimitReached:
        note = f"the time limit of {time_limit:g} s was reached"
    if len(matches.batches) == 1 and is_alone(matches.batches[0]):
        return _solutions(matches, True, f"{note}, but the columns of [1, X] generate Z^m: no other batch has this alpha")
    return _solutions(matches, False, note)


def _search(gram: Gram, matches: _Matches) -> tuple[bool, str]:
    """Whether the matches are all batches, and why."""
    levels, x = order_columns(gram.with_intercept), None
    if len(levels) == gram.rows and _FEW_ROWS <= gram.rows <= _MANY_ROWS:
        x = unique_batch(gram.with_intercept, [level.column for level in levels], matches.time_limit)
    found: Iterable[np.ndarray]
    if x is not None and gram.matches(x):
        found, note = [x], "the lattice of alpha's rows is Z^m: no other batch has it"
    else:
        tree = row_candidates(levels, gram.rows, _WIDEST, matches.time_limit)
        found, note = ColumnSearch(gram.with_intercept, levels, tree, matches.time_limit).batches(), "the search ended"
    for batch in found:
        if not matches.add(batch):
            return False, f"more than {len(matches.batches)} batches match"
    return True, note


def is_alone(x: np.ndarray) -> bool:
    """Whether the columns of Z = [1, X] generate Z^m over the integers, which proves that X is alone up to row order.

    x: (m, d) of 0 and 1. They do if and only if Z has m invariant factors (Smith normal form), all of them 1. Then another
    batch with Z'^T Z' = Z^T Z has Z' = Q Z with an orthogonal Q, unique since Z has rank m. Each unit vector is Z c for
    integers c, so the columns of Q are Z' c: Q is integral, a signed permutation, and no sign is negative, since Q takes the
    column of ones to itself. False means nothing.
    """
    factors = fmpz_mat(np.c_[np.ones(len(x), dtype=np.int64), x].tolist()).snf()
    return len(x) <= x.shape[1] + 1 and all(factors[i, i] == 1 for i in range(len(x)))


def _solutions(matches: _Matches, complete: bool, note: str) -> Solutions:
    count = len(matches.batches)
    status: Status = ("proved" if count else "infeasible") if complete else ("partial" if count else "limit")
    return Solutions(
        status=status,
        batches=tuple(matches.batches),
        labels=None if matches.labels is None else tuple(matches.labels),
        count=count,
        complete=complete,
        seconds=matches.time_limit.seconds,
        note=note if matches.all_labels else f"{note}; for some batches more labellings fit than were kept",
        labellings=None if matches.labels is None else sum(map(len, matches.labels)),
    )
