"""Two whole local batches, in their order and with labels, from one pushed difference and the rows that a solver found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.row_labels import labels_apart, labels_pushed
from vflbench.attacks.batch_reconstruction.asynchronous.row_membership import tell_apart
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalRecovered


@dataclass(frozen=True)
class TwoBatches:
    """first, second: (m1, d) and (m2, d) uint8, the batches in the order of their steps. Rows within a batch have no order.

    first_labels, second_labels: (m1,) and (m2,) in [-1, 1], the mean label of a batch's equal rows, 0 for rows of zeros;
    None where the labels could not be told. labels_unique: whether no others fit.
    """

    first: np.ndarray
    second: np.ndarray
    first_labels: np.ndarray | None
    second_labels: np.ndarray | None
    labels_unique: bool


@dataclass(frozen=True)
class Division:
    """found: one answer for each candidate that the second term allows, the first division of it. unique: whether there is
    one in all, given that the candidates were all. refusal: why there is none, or None.
    """

    found: tuple[TwoBatches, ...] = ()
    unique: bool = False
    refusal: str | None = None


def two_batches(
    candidates: Sequence[np.ndarray], answer: TotalRecovered, eta: np.ndarray, rate: float, *, rows: int | None = None
) -> Division:
    """Divide the rows of both batches, each candidate of a solver for Gram(alpha_sum, beta_sum, m1 + m2) in turn.

    The second term also tells candidates apart that have the same alpha_sum. candidates: (m1 + m2, d) of 0 and 1 each.
    answer: of `total` with n = 2. eta, rate: as for `total`, the rate of summed gradients (mean ones: rate / m). rows: m1.
    """
    if answer.second is None:
        return Division(refusal=answer.refusal or "the second term is not known to the integer")
    found, single = [], True
    for z in candidates:
        apart = tell_apart(z, answer.second, rows=rows)
        if apart.membership is None:
            continue
        single = single and apart.unique
        if answer.beta_sum is not None and answer.second_labels is not None:
            told = labels_apart(z, apart.membership, answer.beta_sum, answer.second_labels)
        else:
            told = labels_pushed(z, apart.membership, eta, rate)
        z, early = np.asarray(z).astype(np.uint8), apart.membership == 1
        labels = (None, None) if told.y is None else (told.y[early], told.y[~early])
        found.append(TwoBatches(z[early], z[~early], *labels, told.unique))
    if not found:
        return Division(refusal=f"none of the {len(candidates)} candidates has this second term")
    return Division(tuple(found), single and len(found) == 1)
