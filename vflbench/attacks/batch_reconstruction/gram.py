"""What a batch's updates come to, alpha = X^T X and beta = X^T Y, and what a search for the batch answers."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from vflbench.attacks.batch_reconstruction.modular_rank import rank

Status = Literal["proved", "found", "limit", "infeasible"]


@dataclass(frozen=True)
class Gram:
    """What the updates of one private batch come to.

    alpha: (d, d) int64, X^T X of the binary batch X (m, d). beta: (d,) int64, X^T Y with Y in {-1, +1}, or None where the
    labels are not asked for. rows: m, the batch size.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """

    alpha: np.ndarray
    beta: np.ndarray | None
    rows: int

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray | None = None) -> "Gram":
        """The Gram matrix of a batch. x: (m, d) of 0 and 1, y: (m,) of -1 and +1. Raises ValueError for anything else."""
        x = np.asarray(x)
        if x.ndim != 2 or not np.isin(x, (0, 1)).all():
            raise ValueError("a batch is a matrix of 0 and 1")
        x = x.astype(np.int64)
        if y is None:
            return cls(x.T @ x, None, len(x))
        y = np.asarray(y)
        if y.shape != (len(x),) or not np.isin(y, (-1, 1)).all():
            raise ValueError("labels are one -1 or +1 a row")
        return cls(x.T @ x, x.T @ y.astype(np.int64), len(x))

    @property
    def with_intercept(self) -> np.ndarray:
        """(d + 1, d + 1): the Gram matrix of [1, X]. Nothing more is known: x^2 = x, so 1^T x_j = alpha_jj."""
        ones = np.diagonal(self.alpha)
        return np.block([[np.full((1, 1), self.rows), ones[None]], [ones[:, None], self.alpha]]).astype(np.int64)

    def holds(self, x: np.ndarray, y: np.ndarray | None = None) -> bool:
        """Whether the batch has exactly this Gram matrix, in integers (and beta, where y is given and beta is known)."""
        try:
            other = Gram.of(x, y)
        except ValueError:
            return False
        if other.rows != self.rows or not np.array_equal(other.alpha, self.alpha):
            return False
        return y is None or self.beta is None or np.array_equal(other.beta, self.beta)

    def inconsistency(self) -> str | None:
        """Why no binary batch of these rows can have it, or None where no test speaks against it.

        Necessary only: shape, integers, symmetry, the bounds of a pair's common ones, the rank and definiteness of the
        Gram matrix of [1, X], and parity and size of beta. A search may still find that there is none.
        """
        return self._shape() or self._pairs() or self._labels() or self._spectrum()

    def _shape(self) -> str | None:
        alpha = self.alpha
        if alpha.ndim != 2 or alpha.shape[0] != alpha.shape[1]:
            return f"alpha is not square: its shape is {alpha.shape}"
        if not np.issubdtype(alpha.dtype, np.integer):
            return f"alpha holds {alpha.dtype}, not integers"
        if self.rows < 0:
            return f"a batch of {self.rows} rows"
        if self.beta is None:
            return None
        if self.beta.shape != alpha.shape[:1]:
            return f"beta has shape {self.beta.shape}, alpha {alpha.shape}"
        if not np.issubdtype(self.beta.dtype, np.integer):
            return f"beta holds {self.beta.dtype}, not integers"
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
        for text, wrong in tests:
            if wrong.any():
                i, j = (int(k) for k in np.argwhere(wrong)[0])
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
        if (found := rank(alpha)) > self.rows:
            return f"its rank (with the intercept) is {found}, more than the {self.rows} rows"
        least = float(np.linalg.eigvalsh(alpha.astype(float))[0])
        if least < -1e-9 * max(1.0, float(np.trace(alpha))):
            return f"it is not positive semidefinite (with the intercept): an eigenvalue is {least:.3g}"
        return None


@dataclass(frozen=True)
class Answer:
    """The batches that a search found, each verified in integers, and what the search proved.

    status: `proved` (the search ended: all matching batches are known, or an integer programme returned one optimal
    solution that was verified), `found` (verified batches, the search did not end), `limit` (nothing within the limit),
    `infeasible` (there is none).
    batches: matching X (m, d) uint8, rows in lexicographic order, each once up to row order.
    labels: for each batch the labellings that fit beta, each (m,) in [0, 1]: the share of positives in the row's group of
    equal rows (only their number is determined), nan for rows of zeros (nothing is); None where beta is None. A batch
    that no labelling fits is no solution.
    count: the number of matching batches; all there are if `complete`, else at least so many.
    labellings: the number of (batch, labelling) pairs found, None where beta is None.
    seconds: the time it took. note: why it ended, in words.
    """

    status: Status
    batches: tuple[np.ndarray, ...] = ()
    labels: tuple[tuple[np.ndarray, ...], ...] | None = None
    count: int = 0
    complete: bool = False
    seconds: float = 0.0
    note: str = ""
    method: str = field(default="", kw_only=True)
    labellings: int | None = field(default=None, kw_only=True)

    @property
    def unique(self) -> bool:
        """Whether there is exactly one matching batch up to row order, proved."""
        return self.complete and self.count == 1


def in_order(x: np.ndarray) -> np.ndarray:
    """The rows in lexicographic order, the first column first. x: (m, d) of 0 and 1. Returns (m, d) uint8."""
    x = np.asarray(x).astype(np.uint8)
    return x[np.lexsort(x.T[::-1])] if x.size else x


def align(x: np.ndarray, to: np.ndarray) -> np.ndarray:
    """The order of x's rows that matches `to` best: least Hamming distance in all. Both (m, d). Returns (m,) indices."""
    distance = (to[:, None, :] != x[None, :, :]).sum(2)
    return linear_sum_assignment(distance)[1]


def share_of_ones(answer: Answer) -> np.ndarray:
    """What is known of each entry: the share of the found batches in which it is 1. Returns (m, d) in [0, 1].

    Rows carry no names, so each batch's rows are first matched to those of the first batch, by the assignment of least
    Hamming distance. 0 and 1 are certain if the answer is complete. Raises ValueError where no batch was found.
    """
    if not answer.batches:
        raise ValueError("no batch was found")
    first = answer.batches[0]
    return np.mean([x[align(x, first)] for x in answer.batches], axis=0, dtype=float)
