"""Two whole local batches, in the order of their steps and with labels, from one update and the rows of both."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.row_labels import labels_from_eta, labels_from_sums
from vflbench.attacks.batch_reconstruction.asynchronous.row_membership import row_membership
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalSums


@dataclass(frozen=True)
class TwoBatches:
    """first, second: (m1, d) and (m2, d) uint8, the batches in the order of their steps. Rows within a batch have no order.

    first_labels, second_labels: (m1,) and (m2,) in [-1, 1], the mean label of a batch's equal rows, 0 for rows of zeros;
    None if the labels are not determined. labels_unique: whether no other labels fit.
    """

    first: np.ndarray
    second: np.ndarray
    first_labels: np.ndarray | None
    second_labels: np.ndarray | None
    labels_unique: bool


@dataclass(frozen=True)
class Division:
    """batches: the first division of each candidate that agrees with the second-order term. unique: whether there is only
    one in total, if the candidates are complete. refusal: why there is none, or None.
    """

    batches: tuple[TwoBatches, ...] = ()
    unique: bool = False
    refusal: str | None = None


def divide_rows(
    candidates: Sequence[np.ndarray], total: TotalSums, eta: np.ndarray, rate: float, *, rows: int | None = None
) -> Division:
    """Divide the rows of both batches, for each candidate of a solver for Gram(alpha_sum, beta_sum, m1 + m2).

    The second-order term also distinguishes candidates with the same alpha_sum. candidates: (m1 + m2, d) of 0 and 1 each.
    total: of `recover_total` with n = 2. eta, rate: as for `recover_total`, the rate of summed gradients (mean ones: rate /
    m). rows: m1.
    """
    if total.second is None:
        return Division(refusal=total.refusal or "the second-order term is not determined to the integer")
    batches, one_division = [], True
    for z in candidates:
        division = row_membership(z, total.second, rows=rows)
        if division.membership is None:
            one_division = one_division and division.complete  # a division that was not found may exist
            continue
        one_division = one_division and division.unique
        if total.beta_sum is not None and total.second_labels is not None:
            row_labels = labels_from_sums(z, division.membership, total.beta_sum, total.second_labels)
        else:
            row_labels = labels_from_eta(z, division.membership, eta, rate)
        z, in_first = np.asarray(z).astype(np.uint8), division.membership == 1
        labels = (None, None) if row_labels.y is None else (row_labels.y[in_first], row_labels.y[~in_first])
        batches.append(TwoBatches(z[in_first], z[~in_first], *labels, row_labels.unique))
    if not batches:
        return Division(refusal=f"none of the {len(candidates)} candidates has this second-order term")
    return Division(tuple(batches), one_division and len(batches) == 1)
