"""Several local steps in one update: the sums over all their batches, and two batches told apart."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product

import numpy as np
from flint import fmpz_mat

from vflbench.attacks.batch_reconstruction.enumeration import integers_that_solve
from vflbench.attacks.batch_reconstruction.gram import PRIME, Gram, Solutions, agreed, integer_array, kernel_modulo, residues
from vflbench.attacks.batch_reconstruction.recover import SAFE_ERROR, AffineFit, fit_affine, rounding_unit


def recover_map(thetas: np.ndarray, differences: np.ndarray, *, intermediate: float = 0.0) -> AffineFit:
    """The affine map of n local steps, linear = -gamma^T and constant = eta, by least squares.

        theta_i = (I - rate/4 alpha_i) theta_{i-1} + rate/2 beta_i,        theta_n - theta_0 = eta - gamma theta_0,
        I - gamma = prod_{i=n..1} (I - rate/4 alpha_i),   eta = rate/2 sum_i prod_{j=n..i+1} (I - rate/4 alpha_j) beta_i

    thetas, differences: (n, d), theta_0 and theta_n - theta_0 of rounds with the same batches in the same order; n >= d + 1,
    thetas affinely independent. intermediate: how far labels can move the models between the local steps, rate / 2
    times the rows of all steps (sum) or the number of steps (mean). These models are rounded as well, and may be far larger
    than the first and the last one, where labels cancel.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", Theorem 1.
    """
    largest = np.abs(thetas).max(initial=0.0) + np.abs(differences).max(initial=0.0) + intermediate
    return fit_affine(thetas, differences, floor=4 * rounding_unit(thetas, differences) * float(largest))


@dataclass(frozen=True)
class TotalSums:
    """What the map of several local steps determines of their batches, in integers.

    alpha_sum: (d, d) int64, X^T X of the rows of all batches together. beta_sum: (d,) int64, None if only it is not
    determined. assumption: what is needed for no other alpha_sum of binary batches to give this map up to 8 standard errors,
    or "". alphas: alpha_1, alpha_2 of two batches if they are the only ones, or None. labels: (b, a, right) with
    b (beta_1 + beta_2) - a alpha_2 beta_1 = right, (d,) int64. refusal: why there is no alpha_sum, or "".
    """

    alpha_sum: np.ndarray | None = None
    beta_sum: np.ndarray | None = None
    assumption: str = ""
    alphas: tuple[np.ndarray, np.ndarray] | None = None
    labels: tuple[tuple[int, int, np.ndarray], ...] = ()
    refusal: str = ""


def recover_total(
    gamma: np.ndarray, eta: np.ndarray, rate: float, batches: int, *, rows: int, error: float = 0.0
) -> TotalSums:
    """The alpha and beta of all batches together, which gamma and eta determine only because they are integers.

        gamma / q = A_1 - q A_2 + ...,    q = rate / 4,    A_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i1

    With two batches every entry is separated into its two integers (`two_steps`). Where that is not possible, and for more
    batches, the symmetric part is rounded, if the second-order term that the result predicts is below 1/2: an assumption.

    gamma: (d, d), eta: (d,), of `recover_map`. rate: of summed gradients, rate / m for mean ones. batches: n >= 2. rows: m
    of each batch. error: standard error of an entry of gamma or eta.
    """
    q = rate / 4
    if error / q > SAFE_ERROR:
        return TotalSums(refusal=f"the rate is too small for the precision: alpha has a standard error of {error / q:.2g}")
    scaled, labels, slack = gamma / q, eta / (2 * q), 8 * error / q
    if batches == 2 and slack < q / 4 and (total := two_steps(scaled, labels, q, rows, slack)):
        return total
    symmetric = (scaled + scaled.T) / 2
    alpha = np.rint(symmetric).astype(np.int64)
    predicted = q * (batches - 1) / (2 * batches) * (alpha @ alpha)  # of equal batches
    off = np.abs(alpha - predicted - symmetric).max(initial=0.0)
    if max(predicted.max(initial=0.0), off) >= 1 / 2 or Gram(alpha, None, batches * rows).inconsistency():
        return TotalSums(refusal=f"the rate {rate:g} hides the sum of {batches} batches")
    beta = _beta_sum(labels, alpha, q, batches, slack)
    return TotalSums(alpha, beta, "other sums of binary batches are not ruled out")


def _beta_sum(scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, slack: float) -> np.ndarray | None:
    """The only vector of alpha's parity as near to eta / (2 q) as beta_sum must be, or None if there are several.

    |B_k| <= A_1^(k-1) diag(A_1),   so   |beta_sum - eta / (2 q)| <= sum_{k=1..n-1} q^k A_1^k diag(A_1) + its error
    """
    rest, term = np.full(len(alpha), slack), np.diagonal(alpha).astype(float)
    for _ in range(n - 1):
        term = q * (alpha @ term)
        rest = rest + term
    parity = np.diagonal(alpha) % 2
    low, high = np.ceil((scaled - rest - parity) / 2), np.floor((scaled + rest - parity) / 2)
    return (2 * low + parity).astype(np.int64) if (low == high).all() else None


def two_steps(scaled: np.ndarray, labels: np.ndarray, q: float, rows: int, slack: float) -> TotalSums | None:
    """The sums of two batches, a refusal if no two binary batches have this map, or None if several sums have.

    If several pairs of integers fit an entry, and q is a fraction a / b, both alphas follow from T = a b gamma / q, which is
    integral. Directions w with T w = T^T w = 0 are those that no row has, alpha_1 w = alpha_2 w = 0, unless a step
    overshoots in them: an assumption if there are any.

    scaled: (d, d), gamma / q; labels: (d,), eta / (2 q); q: rate / 4 for summed gradients. rows: m of each batch. slack: the
    largest error of an entry of either; below q / 4, or neighbouring integers can't be distinguished.
    """
    count, first, second = separate(scaled, q, rows, slack)
    if not count.all():
        return TotalSums(refusal="no sums of two binary batches have this map")
    assumption, fraction = "", Fraction(q).limit_denominator(_LARGEST_DENOMINATOR)
    a, b = fraction.as_integer_ratio()
    error = np.inf if abs(float(fraction) - q) > 4e-16 * q else a * b * slack + 1e-15 * a * b * float(np.abs(scaled).max())
    if (count == 1).all():
        null, size = fmpz_mat(first.tolist()).nullspace()
        kernel = np.array([[int(null[i, k]) % PRIME for i in range(len(first))] for k in range(size)], dtype=np.int64)
        of_steps = 2 * rows * len(first) + 1  # above every eigenvalue
        alphas = symmetric_factors(of_steps * first - second, 1, of_steps, kernel.reshape(size, len(first)), rows)
    else:
        t = np.rint(a * b * scaled)
        if error > 1 / 4 or np.abs(a * b * scaled - t).max() > error or np.abs(t).max() * len(t) * b >= 2**62:
            return None
        t = t.astype(np.int64)
        null = kernel_modulo(np.vstack([t, t.T]))
        alphas = symmetric_factors(t, a, b, null, rows)
        if alphas is None:
            return None
        first, second = alphas[0] + alphas[1], alphas[1] @ alphas[0]
        assumption = "columns whose combination no update shows are dependent in the batch" if len(null) else ""
    grams = [Gram(first, None, 2 * rows), *(Gram(alpha, None, rows) for alpha in alphas or ())]
    if any(gram.inconsistency() for gram in grams):
        return TotalSums(refusal="no sums of two binary batches have this map")
    separated = _separated_labels(labels, first, alphas, q, rows, slack)
    equations: tuple[tuple[int, int, np.ndarray], ...] = ()
    if separated is not None:
        equations = ((1, 0, separated[0]), (0, -1, separated[1]))
    elif b * error < 1 / 4:
        equations = ((b, a, np.rint(b * labels).astype(np.int64)),)
    return TotalSums(first, separated[0] if separated else None, assumption, alphas, equations)


_TIGHTENINGS = 20  # of the bounds by each other; further ones change little


def separate(scaled: np.ndarray, q: float, rows: int, slack: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each entry of gamma / q = A_1 - q A_2 the number of pairs of integers that fit, and the least: three (d, d) int64.

        s_ij - q p_ij = x_ij,   s_ij - q p_ji = x_ji,   0 <= s_ij <= min(s_ii, s_jj),   s_ii + s_jj - 2 m <= s_ij,
        p_ij <= sum_k min(m, s_ik) min(m, s_kj),   p_ij + p_ji <= (A_1^2)_ij,   p_ii <= sum_k s_ik^2 / 4

    Every s in its range is tried, so the search is exhaustive; the bounds follow from the values that are left, and are
    tightened until nothing changes. A rate whose q is a fraction a / b with small a and b leaves several: s + a, p + b.
    """
    values = np.arange(2 * rows + 1)
    second = (values[:, None, None] - scaled) / q
    possible = np.abs(second - np.rint(second)) <= slack / q + 4e-16 * np.abs(second)
    second = np.rint(second)
    possible &= possible.transpose(0, 2, 1) & (second >= 0) & (second >= 0).transpose(0, 2, 1)
    for _ in range(_TIGHTENINGS):
        left = possible.sum(axis=0)
        if not left.all():
            break
        possible &= _in_range(possible, values, second, rows)
        if (possible.sum(axis=0) == left).all():
            break
    first = possible.argmax(axis=0)
    return possible.sum(axis=0), first, np.take_along_axis(second, first[None], axis=0)[0].astype(np.int64)


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


_MOST_COLUMNS = 40  # the lattice has twice as many dimensions
_LARGEST_DENOMINATOR = 10**6


def symmetric_factors(t: np.ndarray, a: int, b: int, null: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray] | None:
    """alpha_1 and alpha_2 if they are the only ones of two binary batches with this T, or None.

        T = a b (alpha_1 + alpha_2) - a^2 alpha_2 alpha_1,
        b^2 I - T = (b I - a alpha_2) L,   L = b I - a alpha_1,   so   L T = T^T L

    Where e_i and T^T generate all directions but those of `null`, row x = e_i^T alpha_1 determines the others, modulo the
    prime p = 2^31 - 1 as well: they are x M_j + C_j.

    t: (d, d) int64, 2 to 40 columns. null: (k, d), directions w with alpha_1 w = 0 modulo p. rows: m. None also where no e_i
    generates the directions.
    """
    d = len(t)
    if not 2 <= d <= _MOST_COLUMNS:
        return None
    powers = [np.eye(d, dtype=np.int64)]
    for _ in range(d - 1 - len(null)):
        powers.append(integer_array(residues(powers[-1]) * residues(t)))
    for i in range(d):
        together = residues(np.vstack([np.array([power[:, i] for power in powers]), null])[:d])  # rows e_i^T (T^T)^k
        if int(together.rank()) == d:
            break
    else:
        return None
    inverse, unit = integer_array(together.inv()), b * np.eye(d, dtype=np.int64)
    maps = np.zeros((d, d, d), dtype=np.int64)
    for k in range(d - len(null)):
        maps = (maps + inverse[:, k, None, None] * powers[k] % PRIME) % PRIME
    of_null = integer_array(residues(inverse[:, d - len(null) :]) * residues(null)) if len(null) else 0
    constants = (unit - b * maps[:, i] - b * of_null) % PRIME * pow(a, -1, PRIME) % PRIME
    factors = []
    for row in _short_rows(maps[int(i == 0)], constants[int(i == 0)], rows):
        alpha_1 = (np.array([integer_array(residues(row[None]) * residues(part))[0] for part in maps]) + constants) % PRIME
        if alpha_1.max() <= rows and np.array_equal(alpha_1, alpha_1.T):
            left = unit - a * alpha_1
            if int(residues(left).det()) == 0:
                continue
            alpha_2 = integer_array(residues(a * left).solve(residues(t.T - a * b * alpha_1))).T
            product_ = a * b * (alpha_1 + alpha_2) - a * a * alpha_2 @ alpha_1
            if alpha_2.max() <= rows and np.array_equal(alpha_2, alpha_2.T) and np.array_equal(product_, t):
                factors.append((alpha_1, alpha_2))
    return factors[0] if len(factors) == 1 else None


def _short_rows(map_: np.ndarray, constant: np.ndarray, rows: int) -> list[np.ndarray]:
    """Every x (d,) with entries from 0 to m of which x M + C has as well, modulo p, if the reduced basis proves that.

    The vectors (x, x M + s C, s m) are a lattice of 2 d + 1 dimensions and determinant m p^d, so its vectors have a length
    of some sqrt(p), except those of alpha_1 and, if b is small, of L with s = 0. Vectors shorter than the shortest of b*_2,
    b*_3, ... of Gram-Schmidt are multiples of the first one, those shorter than b*_3, ... combinations of two.
    """
    d = len(map_)
    unit, last = np.eye(d, dtype=np.int64), rows * (np.arange(2 * d + 1) == 2 * d)
    basis = np.block([[unit, map_], [0 * unit, PRIME * unit], [np.zeros((1, d), dtype=np.int64), constant[None]]])
    short = fmpz_mat(np.column_stack([basis, last]).tolist()).lll().tolist()
    basis = np.array(short, dtype=object).astype(np.int64)
    lengths = np.abs(np.diagonal(np.linalg.qr(basis.T.astype(float), mode="r")))
    dimensions = 1 + int(lengths[1] ** 2 <= (longest := 1.01 * (2 * d + 1) * rows**2))
    if lengths[dimensions:].min() ** 2 <= longest:
        return []
    vectors = np.vstack([basis[0], -basis[0]])
    if dimensions == 2:
        with_one, without = (basis[0], basis[1]) if basis[0, -1] else (basis[1], basis[0])
        if without[-1]:
            return []
        most = rows + int(np.abs(basis[:2]).max())
        vectors = np.vstack([with_one, -with_one])[:, None] + np.arange(-most, most + 1)[:, None] * without
        vectors = vectors.reshape(-1, 2 * d + 1)
    allowed = (vectors[:, -1] == rows) & (vectors >= 0).all(axis=1) & (vectors <= rows).all(axis=1)
    return list(vectors[allowed, :d])


def _separated_labels(
    scaled: np.ndarray, first: np.ndarray, alphas: tuple[np.ndarray, np.ndarray] | None, q: float, rows: int, slack: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """beta_sum and alpha_2 beta_1 from b_i - q c_i = x_i, if one pair of integers fits in every entry.

    |b_i| <= A_ii, b_i - A_ii even, and |c| <= alpha_2 diag(alpha_1), with an even difference. Without the alphas the bounds
    are those of alphas with entries up to A_1's and m.
    """
    ones, at_most = np.diagonal(first), np.minimum(first, rows)
    most = at_most @ np.diagonal(at_most) if alphas is None else alphas[1] @ np.diagonal(alphas[0])
    values = np.arange(-2 * rows, 2 * rows + 1)[:, None]
    real = (values - scaled) / q
    integers = np.rint(real)
    fits = (np.abs(values) <= ones) & ((values - ones) % 2 == 0) & (np.abs(integers) <= most)
    fits &= np.abs(real - integers) <= slack / q + 4e-16 * np.abs(real)
    if alphas is not None:
        fits &= (integers - most) % 2 == 0
    if (fits.sum(axis=0) != 1).any():
        return None
    chosen = fits.argmax(axis=0)
    return values[chosen, 0], integers[chosen, np.arange(len(chosen))].astype(np.int64)


Pair = tuple[np.ndarray, np.ndarray | None]


def join_batches(first: Solutions, second: Solutions, total: TotalSums, *, most: int) -> tuple[list[Pair], bool]:
    """Every pair of a first and a second batch for which labels may fit, and whether these are all.

    first, second: the batches with alpha_1 and alpha_2. most: the largest number of pairs that are looked at. A pair is its
    rows (m1 + m2, d) and what all labellings that fit agree on, (m1 + m2,) in [-1, 1], the mean label of equal rows in a
    batch and nan of rows of zeros; or None if the labels are not determined. Pairs with labels come first. If none has,
    all pairs count.
    """
    joint = islice(product(first.batches, second.batches), most)
    pairs = [(np.vstack([x_1, x_2]), labels_of_two(x_1, x_2, total)) for x_1, x_2 in joint]
    fitting: list[Pair] = [(rows, agreed(labels)) for rows, labels in pairs if labels is not None and len(labels)]
    undecided: list[Pair] = [(rows, None) for rows, labels in pairs if labels is None]
    excluded: list[Pair] = [] if fitting else [(rows, None) for rows, labels in pairs if labels is not None]
    complete = first.complete and second.complete and len(first.batches) * len(second.batches) <= most
    return [*fitting, *undecided, *excluded], complete


def labels_of_two(x_1: np.ndarray, x_2: np.ndarray, total: TotalSums) -> np.ndarray | None:
    """All labels of two batches that fit `total.labels`, (N, m1 + m2), as in `join_batches`; None: too many to list.

    beta_1 = X_1^T y_1,   beta_2 = X_2^T y_2,   y in {-1, +1}
    """
    if not total.labels:
        return None
    keyed = np.column_stack([np.vstack([x_1, x_2]), np.repeat([1, 0], [len(x_1), len(x_2)])]).astype(np.int64)
    distinct, group, sizes = np.unique(keyed, axis=0, return_inverse=True, return_counts=True)
    z, alpha_2 = distinct[:, :-1], x_2.astype(np.int64).T @ x_2
    later = alpha_2 @ (z * distinct[:, -1:]).T
    matrix = np.vstack([b * z.T - a * later for b, a, _ in total.labels])
    known = z.any(axis=1)
    positive = np.concatenate([right for _, _, right in total.labels]) + matrix @ sizes  # y = 2 p - 1, p counts of positives
    if (positive % 2).any():
        return np.empty((0, len(keyed)))
    counts = integers_that_solve(matrix[:, known], positive // 2, sizes[known])
    if isinstance(counts, int):
        return None
    mean = np.full((len(counts), len(sizes)), np.nan)
    mean[:, known] = 2 * counts / sizes[known] - 1
    return mean[:, group.ravel()]
