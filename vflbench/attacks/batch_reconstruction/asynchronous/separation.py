"""The two integers that each entry of the map of two local steps holds, separated."""

from dataclasses import dataclass

import numpy as np

_ROUNDS = 20
"""Times that the bounds are tightened by each other; further ones change little."""


@dataclass(frozen=True)
class SeparatedTerms:
    """first: (d, d) int64, A_1 = alpha_1 + alpha_2; second: (d, d) int64, A_2 = alpha_2 alpha_1. None with a refusal.

    Without a refusal they are proved: no other integers in the range of binary batches give this map up to its error.
    """

    first: np.ndarray | None = None
    second: np.ndarray | None = None
    refusal: str | None = None


def separate(scaled: np.ndarray, q: float, rows: int, slack: float) -> SeparatedTerms:
    """Both terms of gamma / q = A_1 - q A_2, if exactly one pair of integers fits in every entry.

        s_ij - q p_ij = x_ij,   s_ij - q p_ji = x_ji,   0 <= s_ij <= min(s_ii, s_jj),   s_ii + s_jj - 2 m <= s_ij,
        p_ij <= sum_k min(m, s_ik) min(m, s_kj),   p_ij + p_ji <= (A_1^2)_ij,   p_ii <= sum_k s_ik^2 / 4

    Every s in its range is tried, so the search is exhaustive; the bounds follow from the values that are left, and are
    tightened until nothing changes. A rate whose q is a fraction a / b with small a and b leaves several: s + a, p + b.

    scaled: (d, d) float64, gamma / q. rows: m of each batch. slack: the largest error of an entry of `scaled`; it must be
    below q / 4, or neighbouring p can't be distinguished.
    """
    if slack >= q / 4:
        return SeparatedTerms(refusal=f"the precision of gamma ({slack:.2g}) does not resolve the second-order term")
    values = np.arange(2 * rows + 1)
    second = (values[:, None, None] - scaled) / q
    possible = np.abs(second - np.rint(second)) <= slack / q + 4e-16 * np.abs(second)
    second = np.rint(second)
    possible &= possible.transpose(0, 2, 1) & (second >= 0) & (second >= 0).transpose(0, 2, 1)
    for _ in range(_ROUNDS):
        if not possible.any(axis=0).all():
            return SeparatedTerms(refusal="no sums of two binary batches have this map")
        left = int(possible.sum())
        possible &= _in_range(possible, values, second, rows)
        if int(possible.sum()) == left:
            break
    counts = possible.sum(axis=0)
    if (counts == 0).any():
        return SeparatedTerms(refusal="no sums of two binary batches have this map")
    if (counts > 1).any():
        why = f"{int((counts > 1).sum())} of {counts.size} entries of the map hold more than one pair of integers"
        return SeparatedTerms(refusal=why)
    chosen = possible.argmax(axis=0)
    return SeparatedTerms(chosen, np.take_along_axis(second, chosen[None], axis=0)[0].astype(np.int64))


def _in_range(possible: np.ndarray, values: np.ndarray, second: np.ndarray, rows: int) -> np.ndarray:
    """Which values the bounds allow, given the largest and the least of those that are possible. All (2 m + 1, d, d)."""
    least = values[possible.argmax(axis=0)]
    most = values[len(values) - 1 - possible[::-1].argmax(axis=0)]
    ones_least, ones_most = np.diagonal(least), np.diagonal(most)
    low = np.add.outer(ones_least, ones_least) - 2 * rows
    high = np.minimum.outer(ones_most, ones_most)
    np.fill_diagonal(low, ones_least)
    allowed = (values[:, None, None] >= low) & (values[:, None, None] <= high)
    single, both = np.minimum(most, rows), most @ most
    np.fill_diagonal(both, 2 * ((most**2) // 4).sum(axis=1))
    return allowed & (second <= single @ single) & (second + second.transpose(0, 2, 1) <= both)
