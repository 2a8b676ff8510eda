"""The Gram matrix of a private batch, alpha = X^T X, and beta = X^T Y: what its updates determine."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from flint import fmpz, nmod_mat

PRIME = 2**31 - 1


def primes() -> Iterator[int]:
    """The primes from 2^31 - 1 downwards. Products of two residues fit into int64."""
    return (number for number in range(PRIME, 2, -2) if fmpz(number).is_prime())


def residues(a: np.ndarray, prime: int = PRIME) -> nmod_mat:
    """An integer matrix (n, k) modulo a prime."""
    a = np.asarray(a)
    return nmod_mat(*a.shape, [int(value) for value in (a % prime).ravel()], prime)


def array_of(matrix: nmod_mat) -> np.ndarray:
    """(n, k) int64, from 0 to the prime."""
    return np.array([int(value) for value in matrix.entries()], dtype=np.int64).reshape(matrix.nrows(), matrix.ncols())


def reduced(a: np.ndarray, prime: int = PRIME) -> tuple[np.ndarray, list[int]]:
    """The reduced echelon form of (n, k) integers modulo a prime, and its pivot columns."""
    form, rank_ = residues(a, prime).rref()
    echelon = array_of(form)
    return echelon, [int(np.flatnonzero(row)[0]) for row in echelon[:rank_]]


def rank(a: np.ndarray) -> int:
    """The rank of an integer matrix over the field of 2^31 - 1 elements.

    a: (n, k) integers. The result never exceeds the rank over the rationals. It is smaller only if the prime divides every
    minor of that size: use it as a lower bound. For matrices that nobody chose, this has a probability of about 2^-31.
    """
    return int(residues(a).rank())


def kernel_modulo(x: np.ndarray) -> np.ndarray:
    """(k, d): a basis of the vectors w with x @ w = 0 modulo p. x: (n, d)."""
    basis, size = residues(x).nullspace()
    return array_of(basis)[:, : int(size)].T


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

    def __post_init__(self) -> None:
        """Integers of fewer bits as int64: sums of theirs would wrap around."""
        for name in ("alpha", "beta"):
            part = getattr(self, name)
            if part is not None and np.issubdtype(part.dtype, np.integer) and part.dtype != np.uint64:
                object.__setattr__(self, name, part.astype(np.int64, copy=False))

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray | None = None) -> "Gram":
        """The Gram matrix of a batch. x: (m, d) of 0 and 1, y: (m,) of -1 and +1. Raises ValueError for anything else."""
        x = np.asarray(x)
        if x.ndim != 2 or not np.isin(x, (0, 1)).all():
            raise ValueError("a batch must be a matrix of 0 and 1")
        x = x.astype(np.int64)
        if y is None:
            return cls(x.T @ x, None, len(x))
        y = np.asarray(y)
        if y.shape != (len(x),) or not np.isin(y, (-1, 1)).all():
            raise ValueError("labels must be one -1 or +1 for each row")
        return cls(x.T @ x, x.T @ y.astype(np.int64), len(x))

    @property
    def with_intercept(self) -> np.ndarray:
        """(d + 1, d + 1): the Gram matrix of [1, X]. It follows from alpha and m: x^2 = x, so 1^T x_j = alpha_jj."""
        ones = np.diagonal(self.alpha)
        return np.block([[np.full((1, 1), self.rows), ones[None]], [ones[:, None], self.alpha]]).astype(np.int64)

    def matches(self, x: np.ndarray, y: np.ndarray | None = None) -> bool:
        """Whether the batch has exactly this alpha, in integers (and this beta, if y is given and beta is known)."""
        try:
            other = Gram.of(x, y)
        except ValueError:
            return False
        if other.rows != self.rows or not np.array_equal(other.alpha, self.alpha):
            return False
        return y is None or self.beta is None or np.array_equal(other.beta, self.beta)

    def inconsistency(self) -> str | None:
        """The reason why no binary batch of m rows can have these sums, or None if every test passes.

        The tests are necessary conditions only: shape, integers, symmetry, the bounds of each alpha_ij, the rank and
        definiteness of the Gram matrix of [1, X], and parity and size of beta. A search may still find no batch.
        """
        return self._shape() or self._pairs() or self._labels() or self._spectrum()

    def _shape(self) -> str | None:
        alpha = self.alpha
        if alpha.ndim != 2 or alpha.shape[0] != alpha.shape[1]:
            return f"alpha is not square: its shape is {alpha.shape}"
        if not np.issubdtype(alpha.dtype, np.integer):
            return f"alpha contains {alpha.dtype}, not integers"
        if self.rows < 0:
            return f"a batch of {self.rows} rows"
        if self.beta is None:
            return None
        if self.beta.shape != alpha.shape[:1]:
            return f"beta has shape {self.beta.shape}, alpha {alpha.shape}"
        if not np.issubdtype(self.beta.dtype, np.integer):
            return f"beta contains {self.beta.dtype}, not integers"
        return None

    def _pairs(self) -> str | None:
        alpha = self.alpha.astype(np.int64)
        ones = np.diagonal(alpha)
        least = np.add.outer(ones, ones) - self.rows
        tests = (
            ("alpha is not symmetric: alpha_ij = {a}, alpha_ji = {b}", alpha != alpha.T),
            ("alpha_ij = {a} is negative", alpha < 0),
            (f"alpha_ij = {{a}} is more than the {self.rows} rows", alpha > self.rows),
            ("alpha_ij = {a} is more than alpha_ii or alpha_jj", alpha > np.minimum.outer(ones, ones)),
            (f"alpha_ij = {{a}} is less than alpha_ii + alpha_jj - {self.rows}", alpha < least),
        )
        for text, violated in tests:
            if violated.any():
                i, j = (int(k) for k in np.argwhere(violated)[0])
                return f"{text.format(a=alpha[i, j], b=alpha[j, i])} (i = {i}, j = {j})"
        return None

    def _labels(self) -> str | None:
        if self.beta is None:
            return None
        ones = np.diagonal(self.alpha).astype(np.int64)
        for i in range(len(ones)):
            if (self.beta[i] - ones[i]) % 2:
                return f"beta_i = {self.beta[i]} and alpha_ii = {ones[i]} are not both odd or both even (i = {i})"
            if abs(self.beta[i]) > ones[i]:
                return f"|beta_i| = {abs(self.beta[i])} is more than alpha_ii = {ones[i]} (i = {i})"
        return None

    def _spectrum(self) -> str | None:
        alpha = self.with_intercept
        if (alpha_rank := rank(alpha)) > self.rows:
            return f"the rank of alpha (with the intercept) is {alpha_rank}, more than the {self.rows} rows"
        least = float(np.linalg.eigvalsh(alpha.astype(float))[0])
        if least < -1e-9 * max(1.0, float(np.trace(alpha))):
            return f"alpha (with the intercept) is not positive semidefinite: an eigenvalue is {least:.3g}"
        return None
