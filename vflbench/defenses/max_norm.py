"""Max-norm alignment: no gradient looks longer than another."""

import torch
from torch import Tensor

from vflbench.defenses.base import Context, LabelDefense
from vflbench.options import options


@options
class MaxNorm(LabelDefense):
    """Noise along each gradient, so that every expected norm is that of the longest in the batch. Falls to `posterior`,
    which needs no label. If one class is always much longer, `norm` reads AUC P(|e_i| < 1) = 0.683.

        g'_i = g_i (1 + s_i e_i),   s_i^2 = max_j |g_j|^2 / |g_i|^2 - 1,   e_i ~ N(0, 1)

    It makes expected norms equal, but not their distributions, and it does not change the line of each gradient. It carries
    no guarantee.

    Source: ByteDance, "Technical Report of Label Leakage and Protection in Federated Learning", section "Max Norm
    Alignment".
    """

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Tensor:
        """Perturb per-example gradients.

        g: (n, d). A zero row carries no direction to scale and stays zero. Computed in float64, where no square of a
        float32 under- or overflows: rows of any length are protected.
        """
        exact = g.double()
        squared_norm = exact.square().sum(dim=1, keepdim=True)  # (n, 1)
        ratio = squared_norm.max() / squared_norm
        scale = torch.where(squared_norm > 0, ratio - 1, 0.0).clamp_min(0).sqrt()
        noise = torch.randn(len(g), 1, generator=context.rng, device=g.device, dtype=g.dtype)
        return (exact * (1 + scale * noise)).to(g.dtype)
