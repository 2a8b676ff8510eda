"""Distance correlation: embeddings that depend as little on the labels as training allows."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vflbench.defenses.base import Defense, LabelDefense
from vflbench.numerics.distance_correlation import distance_correlation
from vflbench.options import NonNegativeInt, Weight, options


class DependencePenalty(Defense):
    """The weight of a penalty on a dependence, which rises linearly from 0 over the steps of a warm-up. Its figures are the
    constant batches, a party each, and the mean of dCor of the others.
    """

    warmup: NonNegativeInt

    def __post_init__(self) -> None:
        self._steps = 0

    def warmed(self, weight: float) -> float:
        """The weight of this step."""
        self._steps += 1
        return weight * min(1.0, self._steps / self.warmup) if self.warmup else weight

    def counts(self, value: float) -> bool:
        """Whether a dependence can be lowered: a batch with a constant side has none, and is counted."""
        self.tally("constant_batches", int(value <= 0))
        if value > 0:
            self.tally("dcor", value, of=1)
        return value > 0


@options
class Dcor(DependencePenalty, LabelDefense):
    """A penalty on the dependence between the embeddings and the labels of a batch. Falls to `directions`, which needs no
    label and reads as much as without a defense. The penalty makes one direction without the label larger and leaves the
    others as they are.

        L = L_c + alpha_d sum_parties log dCor(h, Y),   one term a non-label party,

    with the squared distance correlation dCor (`numerics.distance_correlation`), exact over the whole batch, between all
    that a party sends and the labels (classes, or real numbers).

    alpha_d: weight; 0 is no penalty. statistic: `squared` as published, or its `root`, which other code calls dCor and which
    halves alpha_d under the logarithm. warmup: steps over which the weight rises linearly from 0; published with 0. Without
    a warm-up, a large alpha_d delays learning, because the gradient of the log is large if little is left to hide. A batch
    with constant embeddings or labels has no penalty, and is counted.

    Source: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    alpha_d: Weight = 0.003
    statistic: Literal["squared", "root"] = "squared"
    warmup: NonNegativeInt = 0

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """embeddings: one (n, d) a non-label party; y: (n,) classes, or numbers."""
        weight = self.warmed(self.alpha_d)
        if weight == 0:
            return 0.0
        values = [distance_correlation(h, y, self.statistic) for h in embeddings]
        return sum((weight * dcor.log() for dcor in values if self.counts(dcor.item())), 0.0)
