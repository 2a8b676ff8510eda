"""What updates determine of a private batch, alpha = X^T X and beta = X^T Y; the batches that a search finds for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flint import nmod_mat
from scipy.optimize import linear_sum_assignment

PRIME = 2**31 - 1
"""Products of two residues fit into int64."""


def residues(a: np.ndarray) -> nmod_mat:
    """An integer matrix (n, k) modulo the prime."""
    return nmod_mat(*a.shape, (a % PRIME).ravel().tolist(), PRIME)


def integer_array(matrix: nmod_mat) -> np.ndarray:
    """(n, k) int64, from 0 to the prime."""
    return np.array([int(value) for value in matrix.entries()], dtype=np.int64).reshape(matrix.nrows(), matrix.ncols())


def rank(a: np.ndarray) -> int:
    """The rank of an integer matrix over the field of 2^31 - 1 elements.

    a: (n, k) integers. The result never exceeds the rank over the rationals. It is smaller only if the prime divides every
    minor of that size: use it as a lower bound. For matrices that nobody chose, this has a probability of about 2^-31.
    """
    return int(residues(a).rank())


def kernel_modulo(x: np.ndarray) -> np.ndarray:
    """(k, d): a basis of the vectors w with x @ w = 0 modulo p. x: (n, d)."""
    basis, size = residues(x).nullspace()
    return integer_array(basis)[:, : int(size)].T


@dataclass(frozen=True)
class Gram:
    """The sums that the updates of one private batch determine.

    alpha: (d, d) int64, X^T X of the binary batch X (m, d). beta: (d,) int64, X^T Y with Y in {-1, +1}, or None if the
    labels are not searched for. rows: m, the batch size.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """

    alpha: np.ndarray
    beta: np.ndarray | None
    rows: int

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray | None = None) -> "Gram":
        """The Gram matrix of a batch. x: (m, d) of 0 and 1, y: (m,) of -1 and +1."""
        x = np.asarray(x).astype(np.int64)
        return cls(x.T @ x, None if y is None else x.T @ np.asarray(y).astype(np.int64), len(x))

    @property
    def with_intercept(self) -> np.ndarray:
        """(d + 1, d + 1): the Gram matrix of [1, X]. It follows from alpha and m: x^2 = x, so 1^T x_j = alpha_jj."""
        ones = np.diagonal(self.alpha)
        return np.block([[np.full((1, 1), self.rows), ones[None]], [ones[:, None], self.alpha]]).astype(np.int64)

    def matches(self, x: np.ndarray, y: np.ndarray | None = None) -> bool:
        """Whether this is a binary batch with exactly this alpha, in integers (and this beta, if both are given)."""
        if not np.isin(x, (0, 1)).all() or len(x) != self.rows:
            return False
        other = Gram.of(x, y)
        fits = np.array_equal(other.alpha, self.alpha)
        return fits and (y is None or self.beta is None or np.array_equal(other.beta, self.beta))

    def inconsistency(self) -> str | None:
        """The reason why no binary batch of m rows can have these sums, or None if every test passes.

        The tests are necessary conditions only: symmetry, the bounds of each alpha_ij, parity and size of beta, the rank
        and definiteness of the Gram matrix of [1, X]. A search may still find no batch.
        """
        alpha, rows, ones = self.alpha, self.rows, np.diagonal(self.alpha)
        pairs = {
            "alpha is not symmetric": alpha != alpha.T,
            "an entry of alpha is negative": alpha < 0,
            f"an entry of alpha is more than the {rows} rows": alpha > rows,
            "alpha_ij is more than alpha_ii or alpha_jj": alpha > np.minimum.outer(ones, ones),
            f"alpha_ij is less than alpha_ii + alpha_jj - {rows}": alpha < np.add.outer(ones, ones) - rows,
        }
        if self.beta is not None:
            pairs["beta_i and alpha_ii are not both odd or both even"] = (self.beta - ones) % 2 != 0
            pairs["|beta_i| is more than alpha_ii"] = np.abs(self.beta) > ones
        if why := next((text for text, violated in pairs.items() if violated.any()), None):
            return why
        whole = self.with_intercept
        if (whole_rank := rank(whole)) > rows:
            return f"the rank of alpha (with the intercept) is {whole_rank}, more than the {rows} rows"
        smallest = float(np.linalg.eigvalsh(whole.astype(float))[0])
        if smallest < -1e-9 * max(1.0, float(np.trace(whole))):
            return f"alpha (with the intercept) is not positive semidefinite: an eigenvalue is {smallest:.3g}"
        return None


SearchStatus = Literal["proved", "found", "partial", "limit", "infeasible"]


@dataclass(frozen=True)
class Solutions:
    """The matching batches of a search, each verified in integers, and what the search proved.

    status: what is known of the batches with this Gram matrix, up to the order of their rows:

    - `proved`: `batches` are all of them: the search ended, or the lattice of the rows leaves no other.
    - `infeasible`: none exists; the search ended.
    - `found`: an integer programme ended with this batch. Nothing is claimed of others.
    - `partial`: these batches match. The search did not end.
    - `limit`: no batch was found, and nothing is claimed. `note` says which limit was reached.

    batches: matching X (m, d) uint8, rows in lexicographic order, each once up to row order.
    labels: for each batch the labellings that fit beta, each (m,) in [0, 1]. A value is the share of positives among the
    equal rows, since only their number is determined; it is nan for rows of zeros, whose labels enter no sum. None if beta
    is None. A batch without any fitting labelling is no solution; one with none listed here has too many.
    seconds: duration of the search. note: why it ended, as a sentence.
    """

    status: SearchStatus
    batches: tuple[np.ndarray, ...] = ()
    labels: tuple[tuple[np.ndarray, ...], ...] | None = None
    seconds: float = 0.0
    note: str = ""

    @property
    def complete(self) -> bool:
        """Whether the batches are all that match."""
        return self.status in ("proved", "infeasible")

    @property
    def ended(self) -> bool:
        """Whether the search came to its own end, and not to a limit."""
        return self.complete or self.status == "found"

    @property
    def unique(self) -> bool:
        """Whether there is provably exactly one matching batch, up to row order."""
        return self.complete and len(self.batches) == 1


def agreed(labellings: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """(m,) what all labellings (m,) say of each row; nan where they differ, or say nothing."""
    return np.where(np.equal(labellings, labellings[0]).all(axis=0), labellings[0], np.nan)


def sort_rows(x: np.ndarray) -> np.ndarray:
    """The rows in lexicographic order, the first column first. x: (m, d) of 0 and 1. Returns (m, d) uint8."""
    x = np.asarray(x).astype(np.uint8)
    return x[np.lexsort(x.T[::-1])] if x.size else x


def align_rows(x: np.ndarray, to: np.ndarray) -> np.ndarray:
    """The order of x's rows that matches `to` best, by least total Hamming distance. Both (m, d). Returns (m,) indices."""
    return linear_sum_assignment((to[:, None, :] != x[None, :, :]).sum(2))[1]


def share_of_ones(batches: tuple[np.ndarray, ...]) -> np.ndarray:
    """For each entry the share of the matching batches in which it is 1. Returns (m, d) in [0, 1].

    Rows have no identity, so the rows of each batch are first matched to those of the first batch (`align_rows`). The values
    0 and 1 are certain if the batches are all that match.
    """
    return np.mean([x[align_rows(x, batches[0])] for x in batches], axis=0, dtype=float)


def guesses_by_columns(shares: np.ndarray, rows: int, *, draws: int = 20, seed: int = 0) -> np.ndarray:
    """Batches that need no update, only each column's share of ones: (draws, m, d) uint8.

    Rows of a guess are matched to the true ones before they are compared, so independent draws are right more often than
    their entries alone. The entries are 1 with probability p^k / (p^k + (1 - p)^k), and k is that of 1, 2, 4 and infinity
    (the majority of each column) which does best on batches drawn by the shares themselves. shares: (d,) in [0, 1].
    """
    draw = np.random.default_rng(seed)
    shares = np.clip(np.asarray(shares, dtype=float), 0.0, 1.0)
    truths = draw.random((draws, rows, len(shares))) < shares
    majority = np.where(shares > 0.5, 1.0, 0.0)
    sharpened = [*(shares**k / (shares**k + (1 - shares) ** k) for k in (1.0, 2.0, 4.0)), majority]
    guesses = [draw.random(truths.shape) < p for p in sharpened]
    right = [np.mean([(g[align_rows(g, x)] == x).mean() for g, x in zip(each, truths, strict=True)]) for each in guesses]
    return guesses[int(np.argmax(right))].astype(np.uint8)
