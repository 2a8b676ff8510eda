"""NoPeek: embeddings that depend as little on the features as training allows."""

from typing import Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context, NonLabelDefense
from vflbench.defenses.dcor import DependencePenalty
from vflbench.numerics.distance_correlation import MixedColumns, distance_correlation
from vflbench.options import NonNegativeInt, Weight, options


@options
class Nopeek(DependencePenalty, NonLabelDefense):
    """A penalty on the dependence between the embeddings of a batch and the features from which they were computed. It
    changes no message. What it hides from which attack, and at what cost: docs/experiments/feature_defenses.md.

        L = L_c + alpha dCor(X, h),   one term each layer that a party sends

    with the distance correlation dCor (`numerics.distance_correlation`), exact over the whole batch. Distances of features
    are Euclidean: over numeric columns, which lie in [0, 1], and each categorical column that differs adds 1 to the squared
    distance.

    The non-label party adds the gradient of its term with respect to h to the gradient that it receives, which is that of a
    mean loss. So the weights of its network follow the gradient of L, if the label party sends the true gradient. No
    message, no other party and no label is needed. h are activations, before any other defense of the party changes them.

    alpha: weight; 0 is no penalty. statistic: `root`, as the authors' code has it, or the `squared` one. warmup: steps over
    which the weight rises linearly from 0. A batch with constant embeddings or features has no penalty, and is counted. A
    large weight, such as 5 on MNIST, leaves constant embeddings and no model.

    Source: Vepakomma, Singh, Gupta and Raskar, "NoPeek: Information leakage reduction to share activations in distributed
    deep learning", ICDM workshops 2020 (arXiv 2008.09161), and the authors' notebooks, which weight root dCor beside the
    cross-entropy.
    """

    alpha: Weight = 0.5
    statistic: Literal["root", "squared"] = "root"
    warmup: NonNegativeInt = 0

    def received(self, g: Tensor, h: Tensor, context: Context) -> Tensor:
        """g + dP / dh. g, h: (n, d)."""
        weight, columns = self.warmed(self.alpha), context.columns
        if weight == 0 or columns is None:
            return g
        with torch.enable_grad():
            h = h.detach().requires_grad_()
            dcor = distance_correlation(h, MixedColumns(columns.numeric, columns.categorical), self.statistic)
            if not self.counts(dcor.item()):
                return g
            (gradient,) = torch.autograd.grad(weight * dcor, h)
        return g + gradient.to(g.dtype)
