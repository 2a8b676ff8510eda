"""Two local batches at a rate that is a simple fraction, where no entry of their map alone tells its two integers."""

from fractions import Fraction

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.lattice_reduction import flint_installed
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME, rank

_LARGEST_DENOMINATOR = 4096
_MOST_COLUMNS = 40  # the lattice has twice as many dimensions


def symmetric_factors(scaled: np.ndarray, q: float, rows: int, slack: float) -> tuple[np.ndarray, np.ndarray] | None:
    """alpha_1 and alpha_2 if they are proved to be the only ones of two binary batches with this map, or None.

    With q = a / b, T = a b gamma / q is a matrix of integers, and L = b I - a alpha_1 is symmetric with

        b^2 I - T = (b I - a alpha_2) (b I - a alpha_1),   so   L T = T^T L

    Where e_i and T^T generate all directions, one row l of L determines all others, modulo the prime p = 2^31 - 1 as well:
    L = K^-1 [l T^k]_k, with rows e_i^T (T^T)^k in K. The pairs of two rows of L are a lattice of 2 d dimensions and
    determinant p^d, so its vectors have a length of some sqrt(p), except those of L, whose entries are small. The reduced
    basis proves it: a vector shorter than the shortest of b*_2, b*_3, ... of Gram-Schmidt is a multiple of the first one.

    scaled: (d, d) float64, gamma / q. rows: m of each batch. slack: the largest error of an entry of `scaled`. Needs
    `vflbench[lattice]`, 2 to 40 columns that are linearly independent, and b up to 4096; None otherwise.
    """
    fraction = Fraction(q).limit_denominator(_LARGEST_DENOMINATOR)
    a, b, d = fraction.numerator, fraction.denominator, len(scaled)
    if not 2 <= d <= _MOST_COLUMNS or abs(float(fraction) - q) > 4e-16 * q or not flint_installed():
        return None
    real = a * b * scaled
    t = np.rint(real).astype(np.int64)
    error = a * b * slack + 1e-15 * float(np.abs(real).max())
    if error > 0.25 or np.abs(real - t).max() > error or np.abs(t).max() * d * b >= 2**62:
        return None
    chosen = _rows_by_one(t)
    if chosen is None:
        return None
    index, maps = chosen
    partner = 1 if index == 0 else 0
    longest = 2 * (max(b, abs(a * rows - b)) ** 2 + (d - 1) * (a * rows) ** 2)
    shortest = _only_short_vector(maps[partner], longest)
    if shortest is None:
        return None
    found = []
    for factor in _multiples(shortest, index, a, b, rows):
        if (alphas := _alphas(factor * shortest[:d], maps, t, a, b, rows)) is not None:
            found.append(alphas)
    return found[0] if len(found) == 1 else None


def _rows_by_one(t: np.ndarray) -> tuple[int, np.ndarray] | None:
    """(i, maps): row j of L is l @ maps[j] modulo p, l being its row i; maps: (d, d, d)."""
    d = len(t)
    t = t % PRIME
    powers = [np.eye(d, dtype=np.int64)]
    for _ in range(d - 1):
        powers.append(_product(powers[-1], t))
    for index in range(d):
        krylov = np.array([power[:, index] for power in powers])  # row k: e_i^T (T^T)^k, column i of T^k
        if rank(krylov) == d:
            inverse = _inverse(krylov)
            maps = np.zeros((d, d, d), dtype=np.int64)
            for k, power in enumerate(powers):
                maps = (maps + inverse[:, k, None, None] * power % PRIME) % PRIME
            return index, maps
    return None


def _only_short_vector(row_map: np.ndarray, longest: int) -> np.ndarray | None:
    """v such that every vector of squared length up to `longest` in {(l, l @ row_map mod p)} is a multiple of it."""
    from flint import fmpz_mat

    d = len(row_map)
    basis = np.zeros((2 * d, 2 * d), dtype=np.int64)
    basis[:d, :d] = np.eye(d, dtype=np.int64)
    basis[:d, d:] = row_map
    basis[d:, d:] = PRIME * np.eye(d, dtype=np.int64)
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
    row: np.ndarray, maps: np.ndarray, t: np.ndarray, a: int, b: int, rows: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Both alphas from row i of L, verified in integers, or None."""
    d = len(t)
    factor = np.array([(row % PRIME) @ (part.astype(object)) % PRIME for part in maps]).astype(np.int64)
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


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x @ y modulo p."""
    total = np.zeros((len(x), y.shape[1]), dtype=np.int64)
    for k in range(len(y)):
        total = (total + x[:, k, None] * y[k] % PRIME) % PRIME
    return total


def _inverse(x: np.ndarray) -> np.ndarray:
    """Of an invertible matrix modulo p."""
    d = len(x)
    both = np.column_stack([x % PRIME, np.eye(d, dtype=np.int64)])
    for step in range(d):
        at = step + int(np.flatnonzero(both[step:, step])[0])
        both[[step, at]] = both[[at, step]]
        both[step] = both[step] * pow(int(both[step, step]), -1, PRIME) % PRIME
        others = np.arange(d) != step
        both[others] = (both[others] - both[others, step, None] * both[step] % PRIME) % PRIME
    return both[:, d:]
