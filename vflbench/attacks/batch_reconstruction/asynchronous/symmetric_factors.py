"""Two local batches at a rate that is a simple fraction, where no entry of their map alone tells its two integers."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.lattice_reduction import flint_installed
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME, kernel_modulo, rank

_LARGEST_DENOMINATOR = 4096
_MOST_COLUMNS = 40  # the lattice has twice as many dimensions


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

    scaled: (d, d) float64, gamma / q. rows: m of each batch. slack: the largest error of an entry of `scaled`. Needs
    `vflbench[lattice]`, 2 to 40 columns, and b up to 4096; None otherwise.
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
        powers.append(_product(powers[-1], t))
    for index in range(d):
        krylov = np.array([power[:, index] for power in powers])  # row k: e_i^T (T^T)^k, column i of T^k
        together = np.vstack([krylov, kernel])
        if len(together) == d and rank(together) == d:
            inverse = _inverse(together)
            maps = np.zeros((d, d, d), dtype=np.int64)
            for k, power in enumerate(powers):
                maps = (maps + inverse[:, k, None, None] * power % PRIME) % PRIME
            constants = _product(inverse[:, len(powers) :], b * kernel % PRIME) if len(kernel) else None
            return index, maps, constants
    return None


def _only_short_vector(row_map: np.ndarray, constant: np.ndarray | None, b: int, longest: int) -> np.ndarray | None:
    """v such that every vector of squared length up to `longest` in {(l, l @ row_map mod p)} is a multiple of it.

    With a constant the vectors are (l, l @ row_map + s constant mod p, s b), where s is 1 for a row of L.
    """
    from flint import fmpz_mat

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
