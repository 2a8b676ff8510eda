"""The labels of a known batch from beta: one more binary column, whose sum is not known."""

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.bounded_counts import bounded_counts
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import TimeLimit
from vflbench.attacks.batch_reconstruction.gram import Gram


def labellings(gram: Gram, x: np.ndarray, most: int, time_limit: TimeLimit) -> tuple[tuple[np.ndarray, ...], bool]:
    """The labellings of a batch that fit beta: X^T y = (beta + diag alpha) / 2 with y in {0, 1}.

    gram: with beta. x: (m, d) matching alpha. most: the largest number that is returned. Returns the labellings, each (m,)
    in [0, 1], and whether these are all. Equal rows can't be distinguished, so each has the share of positives among them; a
    row of zeros does not enter beta and has nan. Raises TimeLimitReached.
    """
    groups, of_row, sizes = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    of_row = of_row.reshape(-1)
    nonzero = groups.any(1)
    target = (gram.beta + np.diagonal(gram.alpha)) // 2
    member, high = groups[nonzero].T.astype(np.int64), sizes[nonzero].astype(np.int64)
    solutions: list[np.ndarray] = []
    for n in bounded_counts(member, target.astype(np.int64), np.zeros_like(high), high, time_limit):
        if len(solutions) == most:
            return tuple(solutions), False
        share = np.full(len(groups), np.nan)
        share[nonzero] = n / high
        solutions.append(share[of_row])
    return tuple(solutions), True
