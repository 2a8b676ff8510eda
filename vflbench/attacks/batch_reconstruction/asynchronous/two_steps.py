"""All sums of two local batches that one map determines, proved for any rate at which they are."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.local_sums import local_sums
from vflbench.attacks.batch_reconstruction.asynchronous.separation import separate
from vflbench.attacks.batch_reconstruction.asynchronous.symmetric_factors import symmetric_factors
from vflbench.attacks.batch_reconstruction.gram import Gram


@dataclass(frozen=True)
class TwoSteps:
    """first, second: A_1 = alpha_1 + alpha_2 and A_2 = alpha_2 alpha_1. alphas: alpha_1 and alpha_2, or None if these terms
    leave a choice. beta_sum = beta_1 + beta_2 and second_labels = alpha_2 beta_1, or None if their separation leaves one.
    assumption: what the terms need, or nothing.
    """

    first: np.ndarray
    second: np.ndarray
    alphas: tuple[np.ndarray, np.ndarray] | None
    beta_sum: np.ndarray | None
    second_labels: np.ndarray | None
    assumption: str = ""


def two_steps(scaled: np.ndarray, labels: np.ndarray, q: float, rows: int, slack: float) -> TwoSteps | None:
    """The sums, or None if they are not proved, but for an assumption.

    scaled: (d, d), gamma / q; labels: (d,), eta / (2 q); q: rate / 4 for summed gradients, with errors up to `slack`. rows:
    m of each batch.
    """
    separated = separate(scaled, q, rows, slack)
    if separated.first is not None and separated.second is not None:
        first, second, assumption = separated.first, separated.second, ""
        alphas = local_sums(first, second)
    else:
        factors = symmetric_factors(scaled, q, rows, slack)
        if factors is None:
            return None
        alphas, assumption = factors.alphas, factors.assumption
        first, second = alphas[0] + alphas[1], alphas[1] @ alphas[0]
    grams = [Gram(first, None, 2 * rows), *(Gram(alpha, None, rows) for alpha in alphas or ())]
    if any(gram.inconsistency() for gram in grams):
        return None
    return TwoSteps(first, second, alphas, *_labels(labels, first, alphas, q, rows, slack), assumption)


def _labels(
    scaled: np.ndarray,
    first: np.ndarray,
    alphas: tuple[np.ndarray, np.ndarray] | None,
    q: float,
    rows: int,
    slack: float,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """beta_sum and alpha_2 beta_1 from b_i - q c_i = x_i, if one pair of integers fits in every entry.

    |b_i| <= A_ii, b_i - A_ii even, and |c| <= alpha_2 diag(alpha_1), with an even difference. Without the alphas the bounds
    are those of alphas with entries up to A_1's and m.
    """
    if slack >= q / 4:
        return None, None
    beta, products = np.zeros(len(first), dtype=np.int64), np.zeros(len(first), dtype=np.int64)
    at_most = np.minimum(first, rows)
    most = at_most @ np.diagonal(at_most) if alphas is None else alphas[1] @ np.diagonal(alphas[0])
    for i, ones in enumerate(np.diagonal(first)):
        values = np.arange(-ones, ones + 1, 2)
        real = (values - scaled[i]) / q
        integers = np.rint(real)
        fits = (np.abs(real - integers) <= slack / q + 4e-16 * np.abs(real)) & (np.abs(integers) <= most[i])
        if alphas is not None:
            fits &= (integers - most[i]) % 2 == 0
        if fits.sum() != 1:
            return None, None
        beta[i], products[i] = values[fits][0], int(integers[fits][0])
    return beta, products
