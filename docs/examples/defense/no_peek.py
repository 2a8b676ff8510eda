"""NoPeek: embeddings that say as little as training allows about the columns they were made of."""

import torch
from torch import Tensor

from vflbench import Context, NonLabelDefense
from vflbench.numerics.distance_correlation import distance_correlation
from vflbench.options import NonNegative, options


@options
class NoPeek(NonLabelDefense):
    """A penalty of the non-label party on the dependence of its embeddings and its own columns.

        L = L_c + weight dCor^2(X, H),   X its columns, where an id of a category counts as a number

    Source: Vepakomma et al., "NoPeek: information leakage reduction to share activations in distributed deep learning",
    2020.
    """

    weight: NonNegative = 0.1

    def received(self, g: Tensor, h: Tensor, context: Context) -> Tensor:
        columns = torch.cat([context.columns.numeric, context.columns.categorical.float()], dim=1)
        with torch.enable_grad():
            x = h.detach().requires_grad_()
            (own,) = torch.autograd.grad(self.weight * distance_correlation(x, columns), x)
        return g + own.to(g.dtype)
