"""The result of a search for the batches with a given Gram matrix, and guesses that need no search."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

Status = Literal["proved", "found", "partial", "limit", "infeasible"]


@dataclass(frozen=True)
class Solutions:
    """The matching batches of a search, each verified in integers, and what the search proved.

    status: what is known of the batches with this Gram matrix, up to the order of their rows:

    - `proved`: `batches` are all of them: the search ended, or the lattice of the rows leaves no other.
    - `infeasible`: none exists; the search ended.
    - `found`: an integer programme ended with this batch. Nothing is claimed of others.
    - `partial`: these batches match. The search did not end.
    - `limit`: no batch was found, and nothing is claimed. `note` says which limit was reached.

    complete: whether the status is `proved` or `infeasible`.
    batches: matching X (m, d) uint8, rows in lexicographic order, each once up to row order.
    labels: for each batch the labellings that fit beta, each (m,) in [0, 1]. A value is the share of positives among the
    equal rows, since only their number is determined; it is nan for rows of zeros, whose labels enter no sum. None if beta
    is None. A batch without any fitting labelling is no solution.
    count: the number of matching batches; a lower bound unless `complete`.
    labellings: the number of (batch, labelling) pairs, None if beta is None.
    seconds: duration of the search. note: why it ended, as a sentence.
    """

    status: Status
    batches: tuple[np.ndarray, ...] = ()
    labels: tuple[tuple[np.ndarray, ...], ...] | None = None
    count: int = 0
    complete: bool = False
    seconds: float = 0.0
    note: str = ""
    labellings: int | None = field(default=None, kw_only=True)

    @property
    def ended(self) -> bool:
        """Whether the search came to its own end, and not to a limit."""
        return self.status in ("proved", "found", "infeasible")

    @property
    def unique(self) -> bool:
        """Whether there is provably exactly one matching batch, up to row order."""
        return self.complete and self.count == 1


def sort_rows(x: np.ndarray) -> np.ndarray:
    """The rows in lexicographic order, the first column first. x: (m, d) of 0 and 1. Returns (m, d) uint8."""
    x = np.asarray(x).astype(np.uint8)
    return x[np.lexsort(x.T[::-1])] if x.size else x


def align_rows(x: np.ndarray, to: np.ndarray) -> np.ndarray:
    """The order of x's rows that matches `to` best, by least total Hamming distance. Both (m, d). Returns (m,) indices."""
    distance = (to[:, None, :] != x[None, :, :]).sum(2)
    return linear_sum_assignment(distance)[1]


def share_of_ones(solutions: Solutions) -> np.ndarray:
    """For each entry the share of the matching batches in which it is 1. Returns (m, d) in [0, 1].

    Rows have no identity, so the rows of each batch are first matched to those of the first batch (`align_rows`). The values
    0 and 1 are certain if the solutions are complete. Raises ValueError if there is no batch.
    """
    if not solutions.batches:
        raise ValueError("there is no matching batch")
    first = solutions.batches[0]
    return np.mean([x[align_rows(x, first)] for x in solutions.batches], axis=0, dtype=float)


def guesses_by_columns(shares: np.ndarray, rows: int, *, draws: int = 20, seed: int = 0) -> np.ndarray:
    """Batches that need no update, only each column's share of ones: (draws, m, d) uint8.

    Rows of a guess are matched to the true ones before they are compared, so independent draws are right more often than
    their entries alone. The entries are 1 with probability p^k / (p^k + (1 - p)^k), and k is that of 1, 2, 4 and infinity
    (the majority of each column) which does best on batches drawn by the shares themselves. shares: (d,) in [0, 1].
    """
    draw = np.random.default_rng(seed)
    shares = np.clip(np.asarray(shares, dtype=float), 0.0, 1.0)
    truths = draw.random((draws, rows, len(shares))) < shares
    best: np.ndarray = np.empty(0)
    most = -1.0
    for power in (1.0, 2.0, 4.0, np.inf):
        drawn = draw.random(truths.shape) < _sharpened(shares, power)
        right = float(np.mean([(g[align_rows(g, x)] == x).mean() for g, x in zip(drawn, truths, strict=True)]))
        if right > most:
            best, most = drawn, right
    return best.astype(np.uint8)


def _sharpened(shares: np.ndarray, power: float) -> np.ndarray:
    if power == np.inf:
        return np.where(shares > 0.5, 1.0, 0.0)
    ones, zeros = shares**power, (1 - shares) ** power
    return ones / (ones + zeros)
