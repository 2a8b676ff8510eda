"""Quality of the trained model, and the dependence of embeddings and labels, both measured without an attack."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.numerics.auc import auc
from vflbench.numerics.distance_correlation import distance_correlation
from vflbench.numerics.interval import UNIT, Interval, mean_interval

BINS = 15


def model_utility(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """auc, log_loss, accuracy, calibration and ece of a two-class model (logits (n, 1)) or a K-class model (logits (n, K)).

    labels: (n,) classes. log_loss is the mean cross-entropy in nats. accuracy is the share of rows whose class has the
    highest score; for two classes logit > 0 predicts class 1. auc for K > 2 is the unweighted mean over classes of one
    class against the rest, and nan if a class has no rows.

        calibration = sum_i p_i / sum_i z_i,   ece = sum_b |sum_(i in b) (p_i - z_i)| / n,   b: 15 bins of p of equal width

    for p the probability of class 1 and z whether it is; for K > 2 the largest probability, and whether its class is right.
    A calibrated model has 1 and about 0; calibration is nan where no z is true. An AUC sees none of the three.

    Source: Guo et al., "On calibration of modern neural networks", ICML 2017; the ratio of mean prediction and base rate:
    He et al., "Practical lessons from predicting clicks on ads at Facebook", ADKDD 2014.
    """
    logits = logits.double().cpu()
    labels = labels.cpu()
    if logits.shape[1] == 1:
        log_loss = F.binary_cross_entropy_with_logits(logits[:, 0], labels.double()).item()
        area, right = auc(logits[:, 0], labels), (logits[:, 0] > 0) == (labels != 0)
        sure, hits = logits[:, 0].sigmoid(), labels != 0
    else:
        log_loss, area = F.cross_entropy(logits, labels).item(), _macro_auc(logits, labels)
        sure = logits.softmax(dim=1).amax(dim=1)
        hits = right = logits.argmax(dim=1) == labels
    excess = torch.zeros(BINS, dtype=torch.float64)
    excess.index_add_(0, (sure * BINS).long().clamp(0, BINS - 1), sure - hits.double())
    return {
        "auc": area,
        "log_loss": log_loss,
        "accuracy": right.double().mean().item(),
        "calibration": (sure.sum() / hits.sum()).item() if bool(hits.any()) else float("nan"),
        "ece": excess.abs().sum().item() / len(labels),
    }


def _macro_auc(logits: Tensor, labels: Tensor) -> float:
    if len(labels.unique()) < logits.shape[1] or not logits.isfinite().all():
        return float("nan")
    shares = torch.softmax(logits, dim=1)
    return sum(auc(share, labels == k) for k, share in enumerate(shares.T)) / len(shares.T)


_ROWS = 1024

_Place = tuple[str, str, bool]
"""Party, layer, and whether an attacker sees the layer."""


@dataclass(frozen=True)
class Dependence:
    """dCor^2 between the embeddings of one layer and the labels: mean over the audited batches of an epoch."""

    party: str
    layer: str
    visible: bool
    dcor: Interval


@dataclass
class DependenceTable:
    """Collects the squared distance correlation of the first 1024 rows of each batch.

    dCor is biased upwards on few rows, also for independent embeddings. Compare only runs with the same batch size.
    """

    _values: dict[_Place, list[float]] = field(default_factory=dict)

    def add(self, place: _Place, embeddings: Tensor, truth: Tensor) -> None:
        """embeddings: (n, d). truth: (n,) classes. A batch with a single class is left out."""
        y = truth[:_ROWS]
        value = distance_correlation(embeddings[:_ROWS], y).item() if len(y) and bool((y != y[0]).any()) else math.nan
        self._values.setdefault(place, []).append(value)

    def entries(self) -> list[Dependence]:
        """One entry per layer, in the order of their first batches."""
        return [Dependence(*place, mean_interval(values, UNIT)) for place, values in self._values.items()]
