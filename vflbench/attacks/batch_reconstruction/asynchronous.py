"""Several local steps in one update: the sums over all their batches, and two batches told apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product
from typing import Literal

import numpy as np
from flint import fmpz_mat
from scipy.linalg import fractional_matrix_power

from vflbench.attacks.batch_reconstruction.gram import PRIME, Gram, array_of, kernel_modulo, rank, reduced, residues
from vflbench.attacks.batch_reconstruction.recover import (
    SAFE_ERROR,
    Reduction,
    chance_limit,
    checked_pairs,
    fit_affine,
    inconsistency,
    rounding_unit,
)
from vflbench.attacks.batch_reconstruction.solutions import Solutions


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


@dataclass(frozen=True)
class RowLabels:
    """y: (rows,) in [-1, 1], the mean label of the equal rows of a batch, which is all that sums determine; 0 for zero rows.

    unique, count, complete, refusal: as in `RowMembership`.
    """

    y: np.ndarray | None = None
    unique: bool = False
    count: int = 0
    complete: bool = True
    refusal: str | None = None


def labels_from_sums(
    z: np.ndarray,
    membership: np.ndarray,
    beta_sum: np.ndarray,
    second_labels: np.ndarray | None = None,
    *,
    max_tries: int = 4096,
) -> RowLabels:
    """The labels of the rows of two local batches, from sums of labelled rows.

        Z_1^T y_1 + Z_2^T y_2 = beta_sum,   alpha_2 Z_1^T y_1 = second_labels,   y in {-1, +1}

    z: (N, d) of 0 and 1; membership: (N,), 1 for the first batch. beta_sum, second_labels: (d,) int64; without second_labels
    the rows of both batches are treated as one batch. Raises ValueError for wrong shapes.
    """
    z, membership = _checked(z, membership, beta_sum)
    if second_labels is None:
        membership = np.zeros_like(membership)
    distinct, first, group, sizes = _equal_rows_by_batch(z, membership)
    nonzero = np.asarray(distinct.any(axis=1))
    matrix, right = distinct[nonzero].T, np.asarray(beta_sum).astype(np.int64)
    if second_labels is not None:
        alpha_2 = z[membership == 0].T @ z[membership == 0]
        second_matrix = alpha_2 @ (distinct * first[:, None])[nonzero].T
        matrix, right = np.vstack([matrix, second_matrix]), np.append(right, np.asarray(second_labels).astype(np.int64))
    positive = right + matrix @ sizes[nonzero]  # y = 2 p - 1: M (2 p - size) = right for counts p of positives
    if (positive % 2).any():
        return RowLabels(refusal="no labels of these rows have such sums: the parity is wrong")

    def fits(counts: np.ndarray) -> bool:
        return np.array_equal(2 * (matrix @ counts), positive)

    solutions, complete = bounded_integers(matrix, positive // 2, sizes[nonzero], fits, max_tries)
    return _row_labels(solutions, complete, group, sizes, nonzero, max_tries)


def labels_from_eta(
    z: np.ndarray,
    membership: np.ndarray,
    eta: np.ndarray,
    rate: float,
    *,
    tolerance: float = 1e-6,
    max_tries: int = 4096,
) -> RowLabels:
    """The labels directly from eta: for rates that hide beta_sum, but not the batches.

        2/rate eta = (I - rate/4 alpha_2) Z_1^T y_1 + Z_2^T y_2,   y in {-1, +1}

    d equations for the rows of both batches; if they leave some labels free, their values are tried, up to `max_tries`. eta:
    (d,), of `recover_map`; rate: of summed gradients, rate / m for mean ones. tolerance: absolute, of 2/rate eta, for a fit.
    For small rates the equations of both batches coincide: use `labels_from_sums`. Otherwise as there.
    """
    z, membership = _checked(z, membership, eta)
    distinct, first, group, sizes = _equal_rows_by_batch(z, membership)
    nonzero = np.asarray(distinct.any(axis=1))
    alpha_2 = z[membership == 0].T @ z[membership == 0]
    later = np.eye(z.shape[1]) - rate / 4 * alpha_2
    matrix = np.where(first[nonzero], later @ distinct[nonzero].T, distinct[nonzero].T)
    scaled = 2 / rate * np.asarray(eta, dtype=float)

    def fits(counts: np.ndarray) -> bool:
        return bool(np.abs(matrix @ (2 * counts - sizes[nonzero]) - scaled).max(initial=0.0) <= tolerance)

    solutions, complete = bounded_integers(matrix, (scaled + matrix @ sizes[nonzero]) / 2, sizes[nonzero], fits, max_tries)
    return _row_labels(solutions, complete, group, sizes, nonzero, max_tries)


def _checked(z: np.ndarray, membership: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z, membership = np.asarray(z).astype(np.int64), np.asarray(membership).astype(np.int64)
    if z.ndim != 2 or membership.shape != z.shape[:1] or np.shape(right) != z.shape[1:]:
        raise ValueError("rows must be (N, d), the membership (N,) and beta (d,)")
    return z, membership


def _equal_rows_by_batch(z: np.ndarray, membership: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of each batch, whether of the first batch, the index of each row's distinct row, and their sizes."""
    keyed, group, sizes = equal_rows(np.column_stack([z, membership]))
    return keyed[:, :-1], keyed[:, -1] == 1, group, sizes


def _row_labels(
    solutions: list[np.ndarray], complete: bool, group: np.ndarray, sizes: np.ndarray, nonzero: np.ndarray, max_tries: int
) -> RowLabels:
    if not solutions:
        why = "no labels of these rows have such sums" if complete else f"none of {max_tries} labellings fits"
        return RowLabels(complete=complete, refusal=why)
    mean = np.zeros(len(sizes))
    mean[nonzero] = 2 * solutions[0] / sizes[nonzero] - 1
    return RowLabels(mean[group], len(solutions) == 1 and complete, len(solutions), complete)


@dataclass(frozen=True)
class LocalMap:
    """theta_n - theta_0 = eta - gamma theta_0. gamma: (d, d), not symmetric for n > 1; eta: (d,); both with standard errors.

    condition, residual, rounds: as in `RecoveredSums`, the residual in units of the difference. refusal: why there is none.
    """

    rounds: int
    gamma: np.ndarray | None = None
    eta: np.ndarray | None = None
    gamma_error: np.ndarray | None = None
    eta_error: np.ndarray | None = None
    condition: float | None = None
    residual: float | None = None
    refusal: str | None = None


def compose(alphas: Sequence[np.ndarray], betas: Sequence[np.ndarray], rate: float) -> tuple[np.ndarray, np.ndarray]:
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


def expansion_terms(
    alphas: Sequence[np.ndarray], betas: Sequence[np.ndarray], order: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first `order` integer terms of the expansion in powers of q = rate / 4.

        gamma / q  = A_1 - q A_2 + q^2 A_3 - ...,    A_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i1
        eta / (2q) = B_1 - q B_2 + q^2 B_3 - ...,    B_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i2 beta_i1

    Both end with k = n. Integer alphas and betas give integers. Returns (A_k, B_k) for k = 1..order.
    """
    d = len(betas[0])
    expansion = [(np.zeros_like(alphas[0]), np.zeros_like(betas[0])) for _ in range(order)]
    for alpha, beta in zip(alphas, betas, strict=True):
        for k in range(order - 1, 0, -1):
            matrix, vector = expansion[k - 1]
            expansion[k] = (expansion[k][0] + alpha @ matrix, expansion[k][1] + alpha @ vector)
        expansion[0] = (expansion[0][0] + alpha @ np.eye(d, dtype=alpha.dtype), expansion[0][1] + beta)
    return expansion


def recover_map(
    thetas: np.ndarray, differences: np.ndarray, *, unit: float | None = None, intermediate: float = 0.0
) -> LocalMap:
    """gamma and eta by least squares, from theta_0 and theta_n - theta_0 of rounds with the same batches in the same order.

    thetas, differences: (n, d), n >= d + 1, thetas affinely independent. unit: relative rounding of the differences,
    estimated from the values if None. intermediate: how far labels can move the models between the local steps, rate / 2
    times the rows of all steps (sum) or the number of steps (mean). These models are rounded as well, and may be far larger
    than the first and the last one, where labels cancel. Raises ValueError for invalid shapes or numbers.
    """
    thetas, differences = checked_pairs(thetas, differences)
    largest = np.abs(thetas).max(initial=0.0) + np.abs(differences).max(initial=0.0) + intermediate
    fit = fit_affine(thetas, differences, floor=4 * rounding_unit(thetas, differences, unit) * float(largest))
    if fit.refusal:
        return LocalMap(fit.rounds, condition=fit.condition, refusal=fit.refusal)
    return LocalMap(
        fit.rounds, -fit.linear.T, fit.constant, fit.linear_error.T, fit.constant_error, fit.condition, fit.residual
    )


_ROUNDS = 20
"""Times that the bounds are tightened by each other; further ones change little."""


@dataclass(frozen=True)
class SeparatedTerms:
    """first: (d, d) int64, A_1 = alpha_1 + alpha_2; second: (d, d) int64, A_2 = alpha_2 alpha_1. None with a refusal.

    Without a refusal they are proved: no other integers in the range of binary batches give this map up to its error.
    """

    first: np.ndarray | None = None
    second: np.ndarray | None = None
    refusal: str | None = None


def separate(scaled: np.ndarray, q: float, rows: int, slack: float) -> SeparatedTerms:
    """Both terms of gamma / q = A_1 - q A_2, if exactly one pair of integers fits in every entry.

        s_ij - q p_ij = x_ij,   s_ij - q p_ji = x_ji,   0 <= s_ij <= min(s_ii, s_jj),   s_ii + s_jj - 2 m <= s_ij,
        p_ij <= sum_k min(m, s_ik) min(m, s_kj),   p_ij + p_ji <= (A_1^2)_ij,   p_ii <= sum_k s_ik^2 / 4

    Every s in its range is tried, so the search is exhaustive; the bounds follow from the values that are left, and are
    tightened until nothing changes. A rate whose q is a fraction a / b with small a and b leaves several: s + a, p + b.

    scaled: (d, d) float64, gamma / q. rows: m of each batch. slack: the largest error of an entry of `scaled`; it must be
    below q / 4, or neighbouring p can't be distinguished.
    """
    if slack >= q / 4:
        return SeparatedTerms(refusal=f"the precision of gamma ({slack:.2g}) does not resolve the second-order term")
    values = np.arange(2 * rows + 1)
    second = (values[:, None, None] - scaled) / q
    possible = np.abs(second - np.rint(second)) <= slack / q + 4e-16 * np.abs(second)
    second = np.rint(second)
    possible &= possible.transpose(0, 2, 1) & (second >= 0) & (second >= 0).transpose(0, 2, 1)
    for _ in range(_ROUNDS):
        if not possible.any(axis=0).all():
            return SeparatedTerms(refusal="no sums of two binary batches have this map")
        left = int(possible.sum())
        possible &= _in_range(possible, values, second, rows)
        if int(possible.sum()) == left:
            break
    counts = possible.sum(axis=0)
    if (counts == 0).any():
        return SeparatedTerms(refusal="no sums of two binary batches have this map")
    if (counts > 1).any():
        why = f"{int((counts > 1).sum())} of {counts.size} entries of the map hold more than one pair of integers"
        return SeparatedTerms(refusal=why)
    chosen = possible.argmax(axis=0)
    return SeparatedTerms(chosen, np.take_along_axis(second, chosen[None], axis=0)[0].astype(np.int64))


def _in_range(possible: np.ndarray, values: np.ndarray, second: np.ndarray, rows: int) -> np.ndarray:
    """Which values the bounds allow, given the largest and the least of those that are possible. All (2 m + 1, d, d)."""
    least = values[possible.argmax(axis=0)]
    most = values[len(values) - 1 - possible[::-1].argmax(axis=0)]
    ones_least, ones_most = np.diagonal(least), np.diagonal(most)
    low = np.add.outer(ones_least, ones_least) - 2 * rows
    high = np.minimum.outer(ones_most, ones_most)
    np.fill_diagonal(low, ones_least)
    allowed = (values[:, None, None] >= low) & (values[:, None, None] <= high)
    single, both = np.minimum(most, rows), most @ most
    np.fill_diagonal(both, 2 * ((most**2) // 4).sum(axis=1))
    return allowed & (second <= single @ single) & (second + second.transpose(0, 2, 1) <= both)


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


def _kernel(a: np.ndarray) -> np.ndarray:
    """(k, d): a basis of the kernel of an integer matrix over the rationals, modulo 2^31 - 1."""
    basis, size = fmpz_mat(a.tolist()).nullspace()
    return np.array([[int(basis[i, k]) % PRIME for i in range(len(a))] for k in range(size)], dtype=np.int64)


def _solve_modulo(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The only x with matrix @ x = right modulo 2^31 - 1, or None if there is none, or more than one."""
    echelon, pivots = reduced(np.column_stack([matrix, right]))
    unknowns = matrix.shape[1]
    return echelon[:unknowns, -1] if pivots == list(range(unknowns)) else None


_LARGEST_DENOMINATOR = 4096
_MOST_LATTICE_COLUMNS = 40  # the lattice has twice as many dimensions


ASSUMPTION = "columns whose combination no update shows are dependent in the batch"


@dataclass(frozen=True)
class SymmetricFactors:
    """alphas: alpha_1, alpha_2, the only ones of two binary batches with this map. assumption: what it needs, or ""."""

    alphas: tuple[np.ndarray, np.ndarray]
    assumption: str = ""


def symmetric_factors(scaled: np.ndarray, q: float, rows: int, slack: float) -> SymmetricFactors | None:
    """alpha_1 and alpha_2 if they are the only ones of two binary batches with this map, or None.

    With q = a / b, T = a b gamma / q is a matrix of integers, and L = b I - a alpha_1 is symmetric with

        b^2 I - T = (b I - a alpha_2) (b I - a alpha_1),   so   L T = T^T L

    Where e_i and T^T generate all directions, one row l of L determines all others, modulo the prime p = 2^31 - 1 as well:
    L = K^-1 [l T^k]_k, with rows e_i^T (T^T)^k in K. The pairs of two rows of L are a lattice of 2 d dimensions and
    determinant p^d, so its vectors have a length of some sqrt(p), except those of L, whose entries are small. The reduced
    basis proves it: a vector shorter than the shortest of b*_2, b*_3, ... of Gram-Schmidt is a multiple of the first one.

    Directions w with T w = T^T w = 0 are those that no row has, alpha_1 w = alpha_2 w = 0, unless a step overshoots in them:
    that is the assumption if there are any. Then w^T L = b w^T, the rows of L are affine in l, and the lattice has one
    dimension more.

    scaled: (d, d) float64, gamma / q. rows: m of each batch. slack: the largest error of an entry of `scaled`. Needs 2 to 40
    columns, and b up to 4096; None otherwise.
    """
    fraction = Fraction(q).limit_denominator(_LARGEST_DENOMINATOR)
    a, b, d = fraction.numerator, fraction.denominator, len(scaled)
    if not 2 <= d <= _MOST_LATTICE_COLUMNS or abs(float(fraction) - q) > 4e-16 * q:
        return None
    real = a * b * scaled
    t = np.rint(real).astype(np.int64)
    error = a * b * slack + 1e-15 * float(np.abs(real).max())
    if error > 0.25 or np.abs(real - t).max() > error or np.abs(t).max() * d * b >= 2**62:
        return None
    chosen = _rows_by_one(t, b)
    if chosen is None:
        return None
    index, maps, constants = chosen
    partner = 1 if index == 0 else 0
    longest = 2 * (max(b, abs(a * rows - b)) ** 2 + (d - 1) * (a * rows) ** 2)
    shortest = _only_short_vector(maps[partner], None if constants is None else constants[partner], b, longest)
    if shortest is None:
        return None
    if constants is None:
        factors = _multiples(shortest, index, a, b, rows)
    else:
        factors = [int(np.sign(shortest[-1]))] if abs(shortest[-1]) == b else []
    found = []
    for factor in factors:
        if (alphas := _alphas(factor * shortest[:d], maps, constants, t, a, b, rows)) is not None:
            found.append(alphas)
    if len(found) != 1:
        return None
    return SymmetricFactors(found[0], "" if constants is None else ASSUMPTION)


def _rows_by_one(t: np.ndarray, b: int) -> tuple[int, np.ndarray, np.ndarray | None] | None:
    """(i, maps, constants): row j of L is l @ maps[j] + constants[j] modulo p, l being its row i. maps: (d, d, d);
    constants: (d, d), or None if they are 0 because T and T^T have no common kernel.
    """
    d = len(t)
    t = t % PRIME
    kernel = kernel_modulo(np.vstack([t, t.T]))
    powers = [np.eye(d, dtype=np.int64)]
    for _ in range(d - 1 - len(kernel)):
        powers.append(array_of(residues(powers[-1]) * residues(t)))
    for index in range(d):
        krylov = np.array([power[:, index] for power in powers])  # row k: e_i^T (T^T)^k, column i of T^k
        together = np.vstack([krylov, kernel])
        if len(together) == d and rank(together) == d:
            inverse = array_of(residues(together).inv())
            maps = np.zeros((d, d, d), dtype=np.int64)
            for k, power in enumerate(powers):
                maps = (maps + inverse[:, k, None, None] * power % PRIME) % PRIME
            constants = array_of(residues(inverse[:, len(powers) :]) * residues(b * kernel)) if len(kernel) else None
            return index, maps, constants
    return None


def _only_short_vector(row_map: np.ndarray, constant: np.ndarray | None, b: int, longest: int) -> np.ndarray | None:
    """v such that every vector of squared length up to `longest` in {(l, l @ row_map mod p)} is a multiple of it.

    With a constant the vectors are (l, l @ row_map + s constant mod p, s b), where s is 1 for a row of L.
    """
    d = len(row_map)
    size = 2 * d if constant is None else 2 * d + 1
    basis = np.zeros((size, size), dtype=np.int64)
    basis[:d, :d] = np.eye(d, dtype=np.int64)
    basis[:d, d : 2 * d] = row_map
    basis[d : 2 * d, d : 2 * d] = PRIME * np.eye(d, dtype=np.int64)
    if constant is not None:
        basis[-1, d : 2 * d], basis[-1, -1], longest = constant, b, longest + b * b
    reduced = np.array(fmpz_mat(basis.tolist()).lll().tolist(), dtype=object).astype(np.int64)
    lengths = np.abs(np.diagonal(np.linalg.qr(reduced.T.astype(float), mode="r")))
    return reduced[0] if lengths[1:].min() ** 2 > 1.01 * longest else None


def _multiples(shortest: np.ndarray, index: int, a: int, b: int, rows: int) -> list[int]:
    """Factors c for which entry i of c v, b - a alpha_ii, is in its range, and the others are."""
    diagonal = int(shortest[index])
    most = max(b, abs(a * rows - b)) + a * rows
    if diagonal == 0:  # b = a alpha_ii
        return [c for c in range(-most, most + 1) if c]
    return [c for c in range(-most, most + 1) if c and b - a * rows <= c * diagonal <= b]


def _alphas(
    row: np.ndarray, maps: np.ndarray, constants: np.ndarray | None, t: np.ndarray, a: int, b: int, rows: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Both alphas from row i of L, verified in integers, or None."""
    d = len(t)
    factor = np.array([(row % PRIME) @ (part.astype(object)) % PRIME for part in maps]).astype(np.int64)
    factor = factor if constants is None else (factor + constants) % PRIME
    factor = np.where(factor > PRIME // 2, factor - PRIME, factor)
    scaled = b * np.eye(d, dtype=np.int64) - factor
    if (scaled % a).any() or not np.array_equal(factor, factor.T):
        return None
    alpha_1 = scaled // a
    if alpha_1.min() < 0 or alpha_1.max() > rows or rank(factor) < d:
        return None
    alpha_2 = np.linalg.solve(factor.T.astype(float), ((t - a * b * alpha_1) / a).T).T
    alpha_2 = np.rint(alpha_2)
    if alpha_2.min() < 0 or alpha_2.max() > rows:
        return None
    alpha_2 = alpha_2.astype(np.int64)
    verified = np.array_equal(a * b * (alpha_1 + alpha_2) - a * a * (alpha_2 @ alpha_1), t)
    return (alpha_1, alpha_2) if verified and np.array_equal(alpha_2, alpha_2.T) else None


@dataclass(frozen=True)
class TwoSteps:
    """first, second: A_1 = alpha_1 + alpha_2 and A_2 = alpha_2 alpha_1. alphas: alpha_1 and alpha_2, or None if these terms
    leave a choice. beta_sum = beta_1 + beta_2 and second_labels = alpha_2 beta_1, or None if their separation leaves one.
    assumption: what the terms need, or nothing.
    """

    first: np.ndarray
    second: np.ndarray
    alphas: tuple[np.ndarray, np.ndarray] | None
    beta_sum: np.ndarray | None
    second_labels: np.ndarray | None
    assumption: str = ""


def two_steps(scaled: np.ndarray, labels: np.ndarray, q: float, rows: int, slack: float) -> TwoSteps | None:
    """The sums, or None if they are not proved, but for an assumption.

    scaled: (d, d), gamma / q; labels: (d,), eta / (2 q); q: rate / 4 for summed gradients, with errors up to `slack`. rows:
    m of each batch.
    """
    separated = separate(scaled, q, rows, slack)
    if separated.first is not None and separated.second is not None:
        first, second, assumption = separated.first, separated.second, ""
        alphas = local_sums(first, second)
    else:
        factors = symmetric_factors(scaled, q, rows, slack)
        if factors is None:
            return None
        alphas, assumption = factors.alphas, factors.assumption
        first, second = alphas[0] + alphas[1], alphas[1] @ alphas[0]
    grams = [Gram(first, None, 2 * rows), *(Gram(alpha, None, rows) for alpha in alphas or ())]
    if any(gram.inconsistency() for gram in grams):
        return None
    return TwoSteps(first, second, alphas, *_separated_labels(labels, first, alphas, q, rows, slack), assumption)


def _separated_labels(
    scaled: np.ndarray,
    first: np.ndarray,
    alphas: tuple[np.ndarray, np.ndarray] | None,
    q: float,
    rows: int,
    slack: float,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """beta_sum and alpha_2 beta_1 from b_i - q c_i = x_i, if one pair of integers fits in every entry.

    |b_i| <= A_ii, b_i - A_ii even, and |c| <= alpha_2 diag(alpha_1), with an even difference. Without the alphas the bounds
    are those of alphas with entries up to A_1's and m.
    """
    if slack >= q / 4:
        return None, None
    beta, products = np.zeros(len(first), dtype=np.int64), np.zeros(len(first), dtype=np.int64)
    at_most = np.minimum(first, rows)
    most = at_most @ np.diagonal(at_most) if alphas is None else alphas[1] @ np.diagonal(alphas[0])
    for i, ones in enumerate(np.diagonal(first)):
        values = np.arange(-ones, ones + 1, 2)
        real = (values - scaled[i]) / q
        integers = np.rint(real)
        fits = (np.abs(real - integers) <= slack / q + 4e-16 * np.abs(real)) & (np.abs(integers) <= most[i])
        if alphas is not None:
            fits &= (integers - most[i]) % 2 == 0
        if fits.sum() != 1:
            return None, None
        beta[i], products[i] = values[fits][0], int(integers[fits][0])
    return beta, products


Estimate = Literal["separation", "root", "rounding"]


@dataclass(frozen=True)
class TotalSums:
    """The sums over all batches, from one update.

    alpha_sum: (d, d) int64, X^T X of the rows of all batches together. beta_sum: (d,) int64, None if only it is not safe.
    second: (d, d) int64, A_2 = sum_{i<j} alpha_j alpha_i; second_labels: (d,) int64, B_2 = sum_{i<j} alpha_j beta_i; each
    None if it is not determined to the integer.
    proved: whether no other alpha_sum of binary batches gives this gamma up to its error; otherwise the integers are the
    most plausible ones. labels_proved: the same of beta_sum. alphas: alpha_1, alpha_2 of two batches if they are proved, or
    None. error: of 2 eta / rate. needs: an assumption of the alphas. refusal: why there is no alpha_sum, or None.
    """

    alpha_sum: np.ndarray | None = None
    beta_sum: np.ndarray | None = None
    second: np.ndarray | None = None
    second_labels: np.ndarray | None = None
    proved: bool = False
    labels_proved: bool = False
    alphas: tuple[np.ndarray, np.ndarray] | None = None
    error: float = 0.0
    needs: str = ""
    refusal: str | None = None

    @property
    def assumption(self) -> str:
        """What is not proved of the sums, or nothing."""
        if self.needs:
            return self.needs
        if not self.proved:
            return "other sums of binary batches are not ruled out"
        return "" if self.beta_sum is None or self.labels_proved else "other sums of labelled rows are not ruled out"


def recover_total(
    gamma: np.ndarray,
    eta: np.ndarray,
    rate: float,
    batches: int,
    *,
    rows: int | None = None,
    reduction: Reduction = "sum",
    error: float = 0.0,
    estimate: Estimate = "separation",
) -> TotalSums:
    """The alpha and beta of all batches together, which gamma and eta determine only because they are integers.

    `rounding` rounds the symmetric part of gamma / q = A_1 - q A_2 + ..., which is right while q |A_2| < 1/2. `root` first
    subtracts the higher terms that equal batches would have, (n/q) (I - (I - gamma)^(1/n)). Its error is q/2 sum_i D_i^2,
    D_i = alpha_i - A_1/n, the fluctuation between batches, and terms of q^2, so larger rates work. If its result is not
    verified, rounding is tried. beta_sum is rounded to the parity of alpha_sum's diagonal.
    `separation` first separates every entry of gamma into its two integers, for two batches of a known size (`two_steps`),
    and takes the root where that is not proved. With two batches the expansion ends, so A_2 = (A_1 - gamma/q) / q must be
    integral: this is the check for n = 2. For more batches the root must be near integers, or the predicted q A_2 below 1/2.

    gamma: (d, d), eta: (d,), of `recover_map`. rate: the local step size; batches: n. rows: m of each batch, required for
    `mean` (the step is then rate / m), otherwise it only makes checks sharper. error: standard error of gamma's entries.
    Raises ValueError for invalid shapes or numbers.
    """
    gamma, eta = np.asarray(gamma, dtype=float), np.asarray(eta, dtype=float)
    if gamma.ndim != 2 or gamma.shape != (len(eta), len(eta)):
        raise ValueError(f"gamma must be (d, d) and eta (d,), not {gamma.shape} and {eta.shape}")
    if reduction == "mean" and rows is None:
        raise ValueError("for mean gradients the batch size must be given")
    if rate <= 0 or batches < 1:
        raise ValueError(f"the rate must be positive and the number of batches at least 1, not {rate} and {batches}")
    q = rate / 4 / (rows if reduction == "mean" else 1)
    if error / q > SAFE_ERROR:
        why = f"the rate is too small for the precision of gamma: alpha has a standard error of {error / q:.2g}"
        return TotalSums(refusal=why)
    scaled, precision = gamma / q, error / q
    separable = estimate == "separation" and batches == 2 and rows is not None
    if separable and (steps := two_steps(scaled, eta / (2 * q), q, rows, 8 * precision)):
        proved = not steps.assumption
        found = (steps.first, steps.beta_sum, steps.second, steps.second_labels, proved, proved, steps.alphas)
        return TotalSums(*found, 8 * precision, steps.assumption)
    tried = []
    for real, evident in _estimates(scaled, q, batches, estimate):
        candidate = np.rint(real).astype(np.int64)
        why, second = _check(candidate, real, scaled, q, batches, precision, evident)
        all_rows = None if rows is None else batches * rows
        why = why or inconsistency(candidate, np.diagonal(candidate).copy(), all_rows)
        if why is None:
            beta, second_labels = _labels(eta / (2 * q), candidate, q, batches, error / q)
            second_labels = None if second is None else second_labels  # both have the same third-order error
            proved = batches == 1 or _proved(scaled, candidate, q, batches, precision, all_rows)
            labels_proved = batches == 1 or (proved and _labels_proved(eta / (2 * q), candidate, q, batches, precision))
            return TotalSums(candidate, beta, second, second_labels, proved, labels_proved, error=8 * precision)
        tried.append(why)
    return TotalSums(refusal=f"the rate {rate:g} hides the sum of {batches} batches: {tried[0]}")


def _estimates(scaled: np.ndarray, q: float, n: int, estimate: Estimate) -> list[tuple[np.ndarray, bool]]:
    """Symmetric real matrices near alpha_sum, and whether their distance from integers is evidence."""
    symmetric = (scaled + scaled.T) / 2
    if n == 1:
        return [(symmetric, True)]
    estimates = []
    if estimate != "rounding" and (root := _root(scaled, q, n)) is not None:
        equal = (n / q) * (np.eye(len(scaled)) - root)
        estimates.append(((equal + equal.T) / 2, True))
    return [*estimates, (symmetric, False)]


def _root(scaled: np.ndarray, q: float, n: int) -> np.ndarray | None:
    """(I - gamma)^(1/n), or None if the steps overshoot, so that I - gamma has eigenvalues far from the positive reals."""
    product = np.eye(len(scaled)) - q * scaled
    values = np.linalg.eigvals(product)
    if (values.real <= 1e-9).any() or (np.abs(values.imag) > values.real).any():
        return None
    return np.real(fractional_matrix_power(product, 1 / n))


def _check(
    alpha: np.ndarray, real: np.ndarray, scaled: np.ndarray, q: float, n: int, precision: float, evident: bool
) -> tuple[str | None, np.ndarray | None]:
    """(Why the candidate is rejected, or None; A_2 if it is determined, or None)."""
    d = len(alpha)
    distance = float(np.abs(real - np.rint(real)).max(initial=0.0))
    limit = chance_limit(d * (d + 1) // 2)
    if n == 1:
        return (f"not integral, {distance:.2g} off" if distance > limit else None), None
    square = alpha @ alpha
    expected = q * (n - 1) / (2 * n) * square  # the symmetric part of the second-order term of equal batches
    symmetric = (scaled + scaled.T) / 2
    if not evident and np.abs(alpha - expected - symmetric).max(initial=0.0) >= 0.5:
        return "the second-order term that it predicts would have changed the rounding", None
    remainder = (alpha - scaled) / q
    second = np.rint(remainder).astype(np.int64)
    resolved = precision / q <= SAFE_ERROR and np.abs(remainder - second).max(initial=0.0) <= chance_limit(d * d)
    resolved = resolved and second.min(initial=0) >= 0 and (second + second.T <= square).all()
    if n > 2:  # A_2 - q A_3 + ... was rounded: with the A_3 of equal batches
        resolved = resolved and q * (n - 1) * (n - 2) / (6 * n * n) * float((square @ alpha).max(initial=0)) < 0.35
    if resolved and n == 2:  # A^2 - 2 (P + P^T) = (alpha_1 - alpha_2)^2
        spread = square - 2 * (second + second.T)
        resolved = np.linalg.eigvalsh(spread.astype(float))[0] >= -1e-9 * max(1.0, float(np.trace(square)))
    if n == 2 and precision / q <= SAFE_ERROR:
        return (None if resolved else "the remainder after the first-order term is no product of two integer matrices"), (
            second if resolved else None
        )
    predicted = float(expected.max(initial=0.0))
    if (evident and distance > limit) or (not evident and predicted >= 0.5):
        return f"its second-order term is too large ({predicted:.2g}), the sum is {distance:.2g} off integers", None
    return None, second if resolved else None


def _labels(
    scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """beta_sum and B_2 from eta / (2 q), each None if it is not safe.

    Equal batches with equal betas would give eta / (2 q) = 1/n sum_{k<n} (I - q A/n)^k beta_sum. Solved for beta_sum, the
    error is to first order q sum_i ((n - 1)/2 - i) A/n beta_i, with variance q^2 (n^2 - 1) / (12 n^2) (A^3)_kk for random
    labels. Four standard deviations must be below 1, half the step between numbers of one parity.
    """
    a = alpha.astype(float)
    step, power, mean_power = np.eye(len(a)) - q / n * a, np.eye(len(a)), np.zeros(a.shape)
    for _ in range(n):
        mean_power, power = mean_power + power / n, power @ step
    deviation = q * np.sqrt((n * n - 1) / (12 * n * n) * np.diagonal(a @ a @ a)).max(initial=0.0)
    if 4 * deviation > 1 or precision > SAFE_ERROR or np.linalg.cond(mean_power) > 1e6:
        return None, None
    parity = np.diagonal(alpha) % 2
    beta = (2 * np.rint((np.linalg.solve(mean_power, scaled) - parity) / 2) + parity).astype(np.int64)
    if (np.abs(beta) > np.diagonal(alpha)).any():
        return None, None
    remainder = (beta - scaled) / q
    second = np.rint(remainder).astype(np.int64)
    resolved = n > 1 and precision / q <= SAFE_ERROR
    integral = np.abs(remainder - second).max(initial=0.0) <= chance_limit(len(beta))
    if n == 2 and resolved and not integral:  # with two batches no further term follows: it must be integral
        return None, None
    return beta, second if resolved and integral else None


def _proved(scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float, rows: int | None) -> bool:
    """Whether alpha is the only integer matrix within the bounds of the expansion.

        0 <= A_2 + A_2^T <= A_1^2,   0 <= A_k <= A_1^k,   entry by entry, as all alphas have entries >= 0

    so with A_1 <= U: S - r <= A_1 <= S + q/2 U^2 + r, S the symmetric part of gamma/q, r = q^2 U^3 + q^3 U^4 + ... (0 for
    n = 2). U starts from the number of rows, or if it is unknown from twice the candidate, and is tightened.
    """
    symmetric = (scaled + scaled.T) / 2
    slack = 8 * precision + 1e-9
    upper = np.full(alpha.shape, float(rows)) if rows else 2.0 * alpha + 1
    for _ in range(50):
        rest = np.zeros(alpha.shape)
        if n > 2:
            if q * np.abs(upper).sum(1).max() >= 1:
                return False
            rest = q**2 * upper @ upper @ upper @ np.linalg.inv(np.eye(len(alpha)) - q * upper)
        bound = np.minimum(upper, np.floor(symmetric + q / 2 * upper @ upper + rest + slack))
        if np.array_equal(bound, upper):
            break
        upper = bound
    least = np.ceil(symmetric - rest - slack)
    return bool((least == upper).all() and (upper == alpha).all())


def _labels_proved(scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float) -> bool:
    """Whether only one vector of alpha's parity is as near to eta / (2 q) as beta_sum must be.

    |B_k| <= A_1^(k-1) diag(A_1),   so   |beta_sum - eta / (2 q)| <= sum_{k=1..n-1} q^k A_1^k diag(A_1) + its error
    """
    rest, term = np.full(len(alpha), 8 * precision), np.diagonal(alpha).astype(float)
    for _ in range(n - 1):
        term = q * (alpha @ term)
        rest = rest + term
    parity = np.diagonal(alpha) % 2
    low, high = np.ceil((scaled - rest - parity) / 2), np.floor((scaled + rest - parity) / 2)
    return bool((low == high).all())


@dataclass(frozen=True)
class TwoBatches:
    """first, second: (m1, d) and (m2, d) uint8, the batches in the order of their steps. Rows within a batch have no order.

    first_labels, second_labels: (m1,) and (m2,) in [-1, 1], the mean label of a batch's equal rows, 0 for rows of zeros;
    None if the labels are not determined. labels_unique: whether no other labels fit.
    """

    first: np.ndarray
    second: np.ndarray
    first_labels: np.ndarray | None
    second_labels: np.ndarray | None
    labels_unique: bool


@dataclass(frozen=True)
class JoinedBatches:
    """pairs: of a first and a second batch that fit together. complete: whether these are all. labels_fit: whether the pairs
    have labels; otherwise none was found for any pair, and each pair counts.
    """

    pairs: tuple[TwoBatches, ...]
    complete: bool
    labels_fit: bool


def join_batches(
    first: Solutions, second: Solutions, total: TotalSums, eta: np.ndarray, rate: float, *, most: int = 1000
) -> JoinedBatches:
    """Every pair of a first and a second batch for which labels may fit, with the first such labels.

    first, second: the batches with alpha_1 and alpha_2. total: of `recover_total`. eta: (d,); rate: of summed gradients.
    most: the largest number of pairs that are looked at.
    """
    fitting, unlabelled, complete = [], [], first.complete and second.complete
    complete = complete and len(first.batches) * len(second.batches) <= most
    for x_1, x_2 in islice(product(first.batches, second.batches), most):
        labels = _fitting_labels(x_1, x_2, total, eta, rate)
        if labels.y is not None:
            fitting.append(TwoBatches(x_1, x_2, labels.y[: len(x_1)], labels.y[len(x_1) :], labels.unique))
        else:
            unlabelled.append((TwoBatches(x_1, x_2, None, None, False), labels.complete))
    undecided = [pair for pair, excluded in unlabelled if not excluded]
    if fitting:
        return JoinedBatches(tuple(fitting + undecided), complete, True)
    return JoinedBatches(tuple(pair for pair, _ in unlabelled), complete, False)


def _fitting_labels(x_1: np.ndarray, x_2: np.ndarray, total: TotalSums, eta: np.ndarray, rate: float) -> RowLabels:
    z, membership = np.vstack([x_1, x_2]), np.repeat([1, 0], [len(x_1), len(x_2)])
    if total.beta_sum is not None and total.second_labels is not None:
        return labels_from_sums(z, membership, total.beta_sum, total.second_labels)
    return labels_from_eta(z, membership, eta, rate, tolerance=max(1e-6, total.error))
