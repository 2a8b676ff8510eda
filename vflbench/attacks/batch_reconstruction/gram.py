"""The Gram matrix of a private batch, alpha = X^T X, and beta = X^T Y: what its updates determine."""

from dataclasses import dataclass

import numpy as np
from flint import nmod_mat

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
