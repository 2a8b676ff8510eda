"""The result of a search for the batches with a given Gram matrix."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

Status = Literal["proved", "found", "partial", "limit", "infeasible"]


@dataclass(frozen=True)
class Solutions:
    """The matching batches of a search, each verified in integers, and what the search proved.

    status: what is known of the batches with this Gram matrix, up to the order of their rows:

    - `proved`: `batches` are all of them. A second search, or an argument that needs none, confirmed it: see the package
      `certificate`.
    - `infeasible`: none exists, confirmed in the same way.
    - `found`: an integer programme ended with this batch. Nothing is claimed of others.
    - `partial`: these batches match. The search did not end, or a second one did not confirm that no batch is missing.
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
    method: str = field(default="", kw_only=True)
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
