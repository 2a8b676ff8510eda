"""Distance correlation: embeddings that depend as little on the labels as training allows."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vflbench.defenses.base import LabelDefense
from vflbench.numerics.dcor import distance_correlation
from vflbench.numerics.whitening import explained_share, whitened
from vflbench.options import NonNegativeInt, Ridge, Weight, options


@options
class Dcor(LabelDefense):
    """A penalty on how far a batch's embeddings and labels depend on each other; it falls to `directions`, which reads AUC
    0.83 without a label, as of an undefended network. The penalty grows one direction without the label and leaves the rest.

        L = L_c + alpha_d sum_parties log dCor(h, Y),   one term a non-label party,

    with the squared distance correlation dCor (`numerics.dcor`), exact over the whole batch, between all that a party sends
    and the labels (classes, or real numbers).

    dependence: what stands in place of dCor(h, Y). `whitened` is dCor of whitened embeddings, `explained` the share of the
    labels that the embeddings explain linearly, R^2 (`numerics.whitening`). A loud direction without the label lowers
    neither. They are ours, and no better defense: at equal test AUC they read up to 0.03 less than the published penalty on
    Criteo and 0.02 more on synthetic rows, and one epoch in place of two, without a penalty, reads no more than the best
    of them (docs/adaptive_attacks.md).
    ridge: of these two, in units of the embeddings' mean variance; directions of much less variance don't count.

    alpha_d: weight; 0 is no penalty. statistic: `squared` as published, or its `root`, which other code calls dCor and which
    halves alpha_d under the logarithm. warmup: steps over which the weight rises linearly from 0; published with 0. Without
    it a large alpha_d delays learning, since the gradient of the log is large where little is left to hide. A batch with
    constant embeddings or labels has no penalty, and is counted.

    Source: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    alpha_d: Weight = 0.003
    statistic: Literal["squared", "root"] = "squared"
    warmup: NonNegativeInt = 0
    dependence: Literal["published", "whitened", "explained"] = "published"
    ridge: Ridge = 0.1

    def __post_init__(self) -> None:
        self._steps = self._constant = 0
        self._sum, self._count = 0.0, 0

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """embeddings: one (n, d) a non-label party; y: (n,) classes, or numbers."""
        self._steps += 1
        weight = self.alpha_d * min(1.0, self._steps / self.warmup) if self.warmup else self.alpha_d
        if weight == 0:
            return 0.0
        total: Tensor | float = 0.0
        for h in embeddings:
            dcor = self._value(h, y)
            if dcor > 0:
                total = total + weight * dcor.log()
                self._sum, self._count = self._sum + dcor.item(), self._count + 1
            else:
                self._constant += 1
        return total

    def _value(self, h: Tensor, y: Tensor) -> Tensor:
        if self.dependence == "explained":
            share = explained_share(h, y, self.ridge)
            return share if self.statistic == "squared" else share.sqrt()
        return distance_correlation(h if self.dependence == "published" else whitened(h, self.ridge), y, self.statistic)

    def figures(self) -> dict[str, float]:
        """Constant batches, a party each, and the mean of dCor, or of what stands in its place, of the others."""
        if not self._count + self._constant:
            return {}
        figures = {"constant_batches": self._constant} | ({"dcor": self._sum / self._count} if self._count else {})
        self._constant, self._sum, self._count = 0, 0.0, 0
        return figures
