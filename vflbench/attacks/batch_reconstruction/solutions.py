"""The result of a search for the batches with a given Gram matrix, and guesses that need no search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

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
