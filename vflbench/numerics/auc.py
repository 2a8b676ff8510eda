"""Area under the ROC curve, exactly; of values as arrays, whether they come from torch or from a file."""

import numpy as np
from torch import Tensor


def array_of(values: Tensor | np.ndarray) -> np.ndarray:
    """The same values on the CPU, in the memory that they have there; floating-point types of less than 32 bits, of which
    numpy lacks one, as float32, without loss.
    """
    if isinstance(values, np.ndarray):
        return values
    plain = values.detach().cpu()
    return (plain.float() if plain.is_floating_point() and plain.element_size() < 4 else plain).numpy()


def auc(scores: Tensor | np.ndarray, truth: Tensor | np.ndarray) -> float:
    """Share of pairs in which the positive scores above the negative; a tie counts one half.

        AUC = (1 / (P N)) sum_(i: y_i=1, j: y_j=0) [s_i > s_j] + 1/2 [s_i = s_j]

    scores: (n,) floating; truth: (n,) bool or 0/1. Exact in integers up to n = 10^9; O(n log n).
    Returns nan if a class is missing or a score is nan.

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982.
    """
    values, is_positive = array_of(scores), array_of(truth).astype(np.bool_, copy=False)
    positives = int(np.count_nonzero(is_positive))
    negatives = len(is_positive) - positives
    if not positives or not negatives or bool(np.isnan(values).any()):
        return float("nan")
    if values.dtype != np.float64:  # narrower types convert to float32 without loss
        return _packed_auc(values.astype(np.float32, copy=False), is_positive, positives, negatives)
    below, above = np.sort(values[~is_positive]), np.sort(values[is_positive])
    lower, upper = (np.searchsorted(below, above, side=side) for side in ("left", "right"))
    return (int(lower.sum()) + int(upper.sum())) / (2 * positives * negatives)


def _packed_auc(scores: np.ndarray, is_positive: np.ndarray, positives: int, negatives: int) -> float:
    """AUC of float32 scores by one sort of 64-bit keys: the bits of the score, then the label in the lowest bit.

    As integers, the bits of non-negative floats sort like the floats. The bits of negative floats are inverted first.
    """
    bits = (scores + np.float32(0)).view(np.int32)  # -0 + 0 = 0
    keys = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    keys <<= 1
    keys |= is_positive
    keys.sort()
    labels = keys & 1
    keys >>= 1
    ends = np.append((keys[1:] != keys[:-1]).nonzero()[0], len(keys) - 1)  # last index of each run of equal scores
    up_to = labels.cumsum()[ends]
    negatives_up_to = ends + 1 - up_to
    # Twice the number of (negative, positive) pairs in which the positive scores below; a tie counts once.
    twice_below = int((np.diff(negatives_up_to, prepend=0) * (up_to + np.append(0, up_to[:-1]))).sum())
    return 1 - twice_below / (2 * positives * negatives)
