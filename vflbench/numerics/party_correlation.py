"""How strongly columns, and those of several parties, go together, and divisions of columns that make it weak or strong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import factorial, prod

import numpy as np

_MOST_VALUES = 32
"""Values of a category that are told apart; all rarer ones count as one."""


def association(numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
    """(k + c, k + c) symmetric matrix over k numeric columns, then c categorical ones; the diagonal is 1.

    Two numeric columns: Spearman's rank correlation, in [-1, 1].
    A numeric column x and a category with values 1 .. V: the root of the share of the variance of the ranks of x that lies
    between the values, corrected for what V values explain by chance (Kelley's epsilon squared):
        eps^2 = 1 - (1 - eta^2) (n - 1) / (n - V)
    Two categories: Cramer's V, corrected in the same way (Bergsma 2013).
    Both are 0 where the corrected value is negative. A constant column has 0 with every other and with itself.

    numeric: (n, k). categorical: (n, c) codes; the 31 most frequent values of a column are told apart, all others are one.
    Source: Bergsma, "A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean Statistical Society, 2013.
    """
    k, c = numeric.shape[1], categorical.shape[1]
    from scipy.stats import rankdata  # takes half a second to import

    ranks = np.stack([_standard(rankdata(x)) for x in numeric.T]) if k else np.zeros((0, len(numeric)))
    values = [_frequent(codes) for codes in categorical.T]
    whole = np.zeros((k + c, k + c))
    whole[:k, :k] = ranks @ ranks.T / max(1, ranks.shape[1])
    for j, codes in enumerate(values):
        for i in range(k):
            whole[i, k + j] = whole[k + j, i] = _of_numeric(ranks[i], codes)
        for i in range(j):
            whole[k + i, k + j] = whole[k + j, k + i] = _of_categories(values[i], codes)
    varies = [bool(x.any()) for x in ranks] + [bool(codes.max(initial=0)) for codes in values]
    whole[np.diag_indices(k + c)] = varies
    return whole.clip(-1.0, 1.0)


def _standard(x: np.ndarray) -> np.ndarray:
    """With mean 0 and variance 1; zeros if it is constant."""
    centred = x - x.mean()
    scale = centred.std()
    return centred / scale if scale > 0 else np.zeros_like(centred)


def _frequent(codes: np.ndarray) -> np.ndarray:
    """(n,) 0 .. V - 1, the most frequent value first."""
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    place = np.empty(len(counts), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(place, _MOST_VALUES - 1)[inverse]


def _of_numeric(ranks: np.ndarray, codes: np.ndarray) -> float:
    n, counts = len(codes), np.bincount(codes)
    if n <= len(counts) or not ranks.any():
        return 0.0
    eta_squared = (np.bincount(codes, ranks) ** 2 / counts).sum() / n
    return float(np.sqrt(max(0.0, 1 - (1 - eta_squared) * (n - 1) / (n - len(counts)))))


def _of_categories(a: np.ndarray, b: np.ndarray) -> float:
    n, r, s = len(a), int(a.max(initial=0)) + 1, int(b.max(initial=0)) + 1
    if n < 2:
        return 0.0
    table = np.bincount(a * s + b, minlength=r * s).reshape(r, s)
    expected = np.outer(table.sum(1), table.sum(0)) / n
    phi_squared = max(0.0, ((table - expected) ** 2 / expected).sum() / n - (r - 1) * (s - 1) / (n - 1))
    least = min(size - (size - 1) ** 2 / (n - 1) for size in (r, s)) - 1
    return float(np.sqrt(min(1.0, phi_squared / least))) if least > 0 else 0.0


_WORK = 1e9  # of a search: the sum over its steps of the cube of the columns of a party, in proportion to time
_STEPS, _FEW = (150, 500), 1000


def pcor(correlation: np.ndarray) -> float:
    """The strength of a block of a correlation matrix: how unequal its singular values are. It has d of them.

        Pcor = 1 / sqrt(d) sqrt(1 / (d - 1) sum_t (sigma_t - mean sigma)^2),   0 if d = 1

    Source: Wu, Hou and He, "VertiBench: Advancing Feature Distribution Diversity in Vertical Federated Learning
    Benchmarks", ICLR 2024.
    """
    sigma = np.linalg.svd(correlation, compute_uv=False)
    return float(np.std(sigma, ddof=1) / np.sqrt(len(sigma))) if len(sigma) > 1 else 0.0


@dataclass(frozen=True)
class Division:
    """party: (m,) which of the parties 0 .. K - 1 holds each column. icor: of the division."""

    party: np.ndarray
    icor: float


def icor(correlation: np.ndarray, party: np.ndarray) -> float:
    """Correlation between parties in excess of that within them.

        Icor = 1 / K sum_i (1 / (K - 1) sum_(j != i) Pcor(X_i, X_j) - Pcor(X_i, X_i))

    correlation: (m, m). party: (m,), each of 0 .. K - 1 at least once. Source: as of `pcor`.
    """
    return _Blocks(correlation, party).icor()


class _Blocks:
    """Pcor of each pair of parties, of which a swap changes those of two parties."""

    def __init__(self, correlation: np.ndarray, party: np.ndarray):
        self.correlation, self.party = correlation, party.copy()
        self.count = int(party.max()) + 1
        self.strength = np.zeros((self.count, self.count))
        self._measure(range(self.count))

    def icor(self) -> float:
        within = np.trace(self.strength)
        between = (self.strength.sum() - within) / max(1, self.count - 1)
        return float((between - within) / self.count)

    def swapped(self, a: int, b: int) -> "_Blocks":
        """The division in which the columns a and b have changed places."""
        other = object.__new__(_Blocks)
        other.correlation, other.count = self.correlation, self.count
        other.party, other.strength = self.party.copy(), self.strength.copy()
        other.party[[a, b]] = self.party[[b, a]]
        other._measure((int(self.party[a]), int(self.party[b])))
        return other

    def _measure(self, changed: "range | tuple[int, int]") -> None:
        places = [np.flatnonzero(self.party == k) for k in range(self.count)]
        for i in changed:
            for j in range(self.count):
                self.strength[i, j] = self.strength[j, i] = pcor(self.correlation[np.ix_(places[i], places[j])])


def divide(
    correlation: np.ndarray, sizes: list[int], beta: float, rng: np.random.Generator
) -> tuple[Division, float, float]:
    """A division of the columns among parties of these sizes whose Icor is between the least and the greatest by beta.

        Icor ~ (1 - beta) min Icor + beta max Icor

    Up to 1,000 divisions are all measured. Of more, the least and the greatest are those that a search met, from random
    divisions and from one along the line on which columns that go together are neighbours. It lets two columns change places
    where that comes closer. A last search starts at the division met that is closest to what is wanted. The paper uses a
    genetic algorithm for the same three. Returns the division, and the least and the greatest Icor. Source: as of `pcor`.
    """
    met: dict[bytes, Division] = {}

    def look(blocks: _Blocks) -> float:
        return met.setdefault(blocks.party.tobytes(), Division(blocks.party, blocks.icor())).icor

    if _divisions(sizes) <= _FEW:
        for party in sorted(_every(sizes), key=np.ndarray.tolist):
            look(_Blocks(correlation, party))
        return _closest(met, beta)
    steps = int(np.clip(_WORK / (len(sizes) * (30 + max(sizes)) ** 3), *_STEPS))
    together, separated = _neighbours(correlation, sizes)
    for sign, start in ((1.0, together), (-1.0, separated)):
        left = steps
        while left > 0:
            left = _climb(_Blocks(correlation, start), lambda blocks: sign * look(blocks), left, rng)  # noqa: B023
            start = rng.permutation(together)
    closest, least, greatest = _closest(met, beta)
    target = (1 - beta) * least + beta * greatest
    _climb(_Blocks(correlation, closest.party), lambda blocks: abs(look(blocks) - target), steps, rng)
    division = min(met.values(), key=lambda one: abs(one.icor - target))
    return division, least, greatest


def _closest(met: dict[bytes, Division], beta: float) -> tuple[Division, float, float]:
    least, greatest = (pick(division.icor for division in met.values()) for pick in (min, max))
    target = (1 - beta) * least + beta * greatest
    return min(met.values(), key=lambda division: abs(division.icor - target)), least, greatest


def _divisions(sizes: list[int]) -> int:
    return factorial(sum(sizes)) // prod(factorial(size) for size in sizes)


def _every(sizes: list[int]) -> Iterator[np.ndarray]:
    """Each division (m,) among parties of these sizes."""
    if not sizes:
        yield np.empty(0, np.int64)
    for held in combinations(range(sum(sizes)), sizes[0]) if sizes else ():
        for others in _every(sizes[1:]):
            party = np.zeros(sum(sizes), np.int64)
            party[np.delete(np.arange(len(party)), held)] = others + 1
            yield party


def _neighbours(correlation: np.ndarray, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Two divisions (m,), with neighbours in one party and in different ones.

    The line is the second eigenvector of the normalised matrix of strengths |correlation|, as in spectral clustering.
    """
    strength = np.abs(correlation)
    scale = 1 / np.sqrt(strength.sum(axis=1) + 1e-9)
    line = np.linalg.eigh(scale[:, None] * strength * scale)[1][:, -2:][:, 0]
    order = np.argsort(line, kind="stable")
    together, separated = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    together[order] = np.repeat(np.arange(len(sizes)), sizes)
    left = np.concatenate([np.flatnonzero(np.array(sizes) > turn) for turn in range(max(sizes))])
    separated[order] = left
    return together, separated


def _climb(blocks: _Blocks, cost: Callable[[_Blocks], float], steps: int, rng: np.random.Generator) -> int:
    """Exchange pairs of columns in a random order while that lowers the cost. Returns the steps that are left of these."""
    best, left = cost(blocks), steps - 1
    improved = True
    while improved and left > 0:
        improved = False
        party = blocks.party
        pairs = np.argwhere(np.triu(party[:, None] != party))
        for a, b in rng.permutation(pairs)[:left]:
            if blocks.party[a] == blocks.party[b]:
                continue  # since an exchange in this round
            other = blocks.swapped(int(a), int(b))
            left -= 1
            value = cost(other)
            if value < best - 1e-12:
                blocks, best, improved = other, value, True
    return left
