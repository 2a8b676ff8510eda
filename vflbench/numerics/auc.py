"""Area under the ROC curve, exactly."""

import torch
from torch import Tensor


def auc(scores: Tensor, truth: Tensor) -> float:
    """P(score of a positive > score of a negative) + 1/2 P(they are equal), over all pairs.

        AUC = (1 / (P N)) sum_(i: y_i=1, j: y_j=0) [s_i > s_j] + 1/2 [s_i = s_j]

    scores: (n,) floating; truth: (n,) bool or 0/1. Exact in integers up to n = 10^9; O(n log n).
    Returns nan when a class is missing or a score is nan: then there is no such area.

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982.
    """
    truth = truth.bool()
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives or scores.isnan().any():
        return float("nan")
    ordered, order = scores.sort()
    end_of_tie = torch.ones_like(truth)
    end_of_tie[:-1] = ordered[1:] != ordered[:-1]
    ends = end_of_tie.nonzero().ravel()
    positives_up_to = truth[order].cumsum(0)[ends]
    negatives_up_to = ends + 1 - positives_up_to
    zero = ends.new_zeros(1)
    negatives_in_tie = negatives_up_to.diff(prepend=zero)
    # Twice the number of (negative, positive) pairs with the positive below, ties counted once.
    twice_below = (negatives_in_tie * (positives_up_to + torch.cat([zero, positives_up_to[:-1]]))).sum()
    return 1 - int(twice_below) / (2 * positives * negatives)
