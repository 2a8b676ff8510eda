"""Rows whose labels are independent of their features, and readers of what split learning sends about them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from builders import session, table
from torch import Tensor

from vflbench.data.base import Dataset
from vflbench.data.table import RawTable, raw_table
from vflbench.defenses.base import Defense, LabelDefense
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.label_noise import chances, gaussian_deviation, one_hot, randomized_response
from vflbench.messages.facts import Gradients, Predictions
from vflbench.models.wide_deep import WideDeep
from vflbench.numerics.auc import auc
from vflbench.numerics.hashing import normals
from vflbench.options import Count, Fraction, options
from vflbench.protocols.split import SplitSession

MU, EPS = 0.661, 0.753
"""Both promise a leak AUC of at most 0.680."""
CEILING = 0.68


@options
class Coins(Dataset):
    """Rows with four numeric columns and one of as many categories as rows, by which a network can learn them by heart.
    Labels are coins, positive with probability `share`.
    """

    count: Count = 1500
    share: Fraction = 0.3

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        columns = {f"I{j}": draw.random(self.count) for j in range(1, 5)}
        own = (draw.permutation(self.count).astype(np.int32), self.count)
        return raw_table({**columns, "C1": own}, (draw.random(self.count) < self.share).astype(np.int8)), {}

    def target_positive_ratio(self) -> float | None:
        return None


@dataclass
class Heard:
    """What was sent about n rows in T visits. logits, residuals: (T, n) or (T, n, K), of the visit; y: (n,) the truth.

    residuals: n times the gradient of the wide part, p - target. from_cut: (T, n), the same from the gradient of the cut
    layer by somebody who knows the top, nan for more than two classes.
    """

    y: Tensor
    logits: Tensor
    residuals: Tensor
    from_cut: Tensor

    @property
    def targets(self) -> Tensor:
        """p - residual, (T, n) or (T, n, K), rounded to what float32 tells."""
        return self._targets.round(decimals=5)

    @property
    def _targets(self) -> Tensor:
        p = self.logits.sigmoid() if self.logits.ndim == 2 else self.logits.softmax(dim=2)
        return p - self.residuals

    @property
    def evidence(self) -> Tensor:
        """(T, n) log-odds of the targets less those of the predictions: what a target of `posterior` has added."""
        return (self._targets.clamp(1e-7, 1 - 1e-7).logit() - self.logits).round(decimals=4)


def planned(defense: LabelDefense, epochs: int) -> LabelDefense:
    defense.plan(epochs)
    return defense


def hear(
    made: Callable[[], Defense],
    epochs: int,
    rows: int,
    seed: int,
    *,
    batch: int = 500,
    classes: int = 2,
    split: SplitSession | None = None,
    first: int = 0,
) -> Heard:
    """Train by split learning on coins, and take down what the label party sends to a feature owner who knows the top.

    made: a new defense, planned. split: a session to go on with from the epoch `first`.
    """
    rng = torch.Generator().manual_seed(1000 + seed)
    truth = table(rng, rows=rows, classes=classes)
    split = split or start(truth, made, seed)
    shape = (epochs, rows) if classes == 2 else (epochs, rows, classes)
    logits, residuals = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    from_cut = torch.full((epochs, rows), math.nan, dtype=torch.float64)
    for visit in range(epochs):
        for ids in torch.randperm(rows, generator=rng).split(batch):
            jacobian = split.label_party.top.output.weight.detach().clone().double()
            round_ = split.round(ids, epoch=first + visit, watch=frozenset({Gradients, Predictions}))
            layers = round_.facts["a"][Gradients].layers
            logits[visit, ids] = flat(round_.facts["label"][Predictions].logits)
            residuals[visit, ids] = len(ids) * flat(layers["wide"])
            if classes == 2:
                from_cut[visit, ids] = len(ids) * (layers["f1"].double() @ jacobian[0]) / jacobian[0].square().sum()
    return Heard(truth.labels, logits, residuals, from_cut)


def start(truth: Any, made: Callable[[], Defense], seed: int) -> SplitSession:
    """Parties with a linear top, whose cut layer and wide part cross."""
    return session(truth, model=WideDeep(bottom_layers=1, top_layers=0, width=4, wide=True), defenses=[made()], seed=seed)


def flat(values: Tensor) -> Tensor:
    """(n, 1) as (n,), in float64."""
    return values.double()[:, 0] if values.shape[1] == 1 else values.double()


def error_of(area: float, positives: int, negatives: int) -> float:
    """Standard error of an AUC.

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982, for exponential scores.
    """
    above, below = area / (2 - area) - area**2, 2 * area**2 / (1 + area) - area**2
    variance = area * (1 - area) + (positives - 1) * above + (negatives - 1) * below
    return math.sqrt(variance / (positives * negatives))


def mean_auc(scores: Mapping[int, tuple[Tensor, Tensor]], expected: float) -> tuple[float, float]:
    """Mean AUC over runs, and its standard error if the truth is `expected`. scores: seed -> scores and labels, (n,)."""
    areas = [auc(s, y) for s, y in scores.values()]
    y = next(iter(scores.values()))[1]
    one = error_of(expected, int(y.sum()), len(y) - int(y.sum()))
    return math.fsum(areas) / len(areas), one / math.sqrt(len(areas))


def response_of_zero_sum(evidence: Tensor, eps: float, epochs: int) -> Tensor:
    """(T, n) x_t of label_dp's zero_sum for two classes, from the log-odds that its posteriors add; exact.

    l = log((e^(eps + u) + 1) / (e^u + e^eps)),   u = (x - 1/2) / ((1 - 2 q) (T - 1) sd^2)
    """
    _, q = chances(2, eps)
    spread = q * (1 - q) / (1 - 2 * q) ** 2
    inner = evidence.clamp(-eps + 1e-9, eps - 1e-9)
    u = torch.log(torch.expm1(inner + eps)) - inner - torch.log(torch.expm1(eps - inner))
    return 0.5 + u * (1 - 2 * q) * (epochs - 1) * spread


# Broken ones.


class TrueLabels(LabelGdp):
    """Hands true labels on to whatever stands behind it."""

    def labels(self, y, logits, context):
        super().labels(y, logits, context)
        self._batch = y, self._batch[1]
        return y


class AfterTheTop(LabelDefense):
    """Trains on true labels, and puts noise along the gradients that are sent: of each layer p - x, where p is near 1/2."""

    def plan(self, epochs):
        self.epochs = epochs

    def gradient(self, g, y, context):
        length = g.norm(dim=1, keepdim=True)
        noise = torch.randn(len(g), 1, generator=context.rng) * math.sqrt(self.epochs) / MU
        return g + g / length * 2 * length.mean() * noise

    def guarantee(self):
        return planned(LabelGdp(mu=MU), self.epochs).guarantee()


class Unplanned(LabelGdp):
    """Fresh noise in each epoch, as large as for one epoch."""

    def _seen(self, y, classes, context):
        self.key(context)  # which draws it at the first call
        noise = normals(context.ids, self._key, context.epoch, 1) * gaussian_deviation(classes, self.mu)
        return one_hot(y, classes) + noise, self.mu

    def guarantee(self):
        return planned(LabelGdp(mu=self.mu), 1).guarantee()


class Leaky(LabelDp):
    """Flips as for three times the eps."""

    def labels(self, y, logits, context):
        return randomized_response(y, 2, 3 * self.eps, torch.rand(len(y), generator=context.rng, dtype=torch.float64))
