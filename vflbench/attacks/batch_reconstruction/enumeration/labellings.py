"""The labels of a known batch from beta: one more binary column, whose own sum is not known."""

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.bounded_counts import placements
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock
from vflbench.attacks.batch_reconstruction.gram import Gram


def labellings(gram: Gram, x: np.ndarray, most: int, clock: Clock) -> tuple[tuple[np.ndarray, ...], bool]:
    """The labellings of a batch that fit beta: X^T y = (beta + diag alpha) / 2 with y in {0, 1}.

    gram: with beta. x: (m, d) matching alpha. most: no more are kept. Returns them, each (m,) in [0, 1], and whether these
    are all. Equal rows are told apart by nothing, so each gets the share of positives in its group; a row of zeros takes
    no part in beta and gets nan. Raises TimeIsUp.
    """
    groups, of_row, sizes = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    of_row = of_row.reshape(-1)
    seen = groups.any(1)
    target = (gram.beta + np.diagonal(gram.alpha)) // 2
    member, high = groups[seen].T.astype(np.int64), sizes[seen].astype(np.int64)
    found: list[np.ndarray] = []
    for n in placements(member, target.astype(np.int64), np.zeros_like(high), high, clock):
        if len(found) == most:
            return tuple(found), False
        share = np.full(len(groups), np.nan)
        share[seen] = n / high
        found.append(share[of_row])
    return tuple(found), True
