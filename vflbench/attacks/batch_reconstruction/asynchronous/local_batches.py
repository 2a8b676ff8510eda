"""Two local batches that were searched for one by one, joined with labels that fit the update of both."""

from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.division import TwoBatches
from vflbench.attacks.batch_reconstruction.asynchronous.row_labels import RowLabels, labels_from_eta, labels_from_sums
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalSums
from vflbench.attacks.batch_reconstruction.solutions import Solutions


@dataclass(frozen=True)
class JoinedBatches:
    """pairs: of a first and a second batch that fit together. complete: whether these are all. labels_fit: whether the pairs
    have labels; otherwise none was found for any pair, and each pair counts.
    """

    pairs: tuple[TwoBatches, ...]
    complete: bool
    labels_fit: bool


def join_batches(
    first: Solutions, second: Solutions, total: TotalSums, eta: np.ndarray, rate: float, *, most: int = 1000
) -> JoinedBatches:
    """Every pair of a first and a second batch for which labels may fit, with the first such labels.

    first, second: the batches with alpha_1 and alpha_2. total: of `recover_total`. eta: (d,); rate: of summed gradients.
    most: the largest number of pairs that are looked at.
    """
    fitting, unlabelled, complete = [], [], first.complete and second.complete
    complete = complete and len(first.batches) * len(second.batches) <= most
    for x_1, x_2 in islice(product(first.batches, second.batches), most):
        labels = _labels(x_1, x_2, total, eta, rate)
        if labels.y is not None:
            fitting.append(TwoBatches(x_1, x_2, labels.y[: len(x_1)], labels.y[len(x_1) :], labels.unique))
        else:
            unlabelled.append((TwoBatches(x_1, x_2, None, None, False), labels.complete))
    undecided = [pair for pair, excluded in unlabelled if not excluded]
    if fitting:
        return JoinedBatches(tuple(fitting + undecided), complete, True)
    return JoinedBatches(tuple(pair for pair, _ in unlabelled), complete, False)


def _labels(x_1: np.ndarray, x_2: np.ndarray, total: TotalSums, eta: np.ndarray, rate: float) -> RowLabels:
    z, membership = np.vstack([x_1, x_2]), np.repeat([1, 0], [len(x_1), len(x_2)])
    if total.beta_sum is not None and total.second_labels is not None:
        return labels_from_sums(z, membership, total.beta_sum, total.second_labels)
    return labels_from_eta(z, membership, eta, rate, tolerance=max(1e-6, total.error))
