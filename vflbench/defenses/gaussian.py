"""Gaussian noise, the same in all directions and for all rows."""

import math

import torch
from torch import Tensor

from vflbench.defenses.base import Context, LabelDefense, ParticipantDefense
from vflbench.options import RatioOrZero, Sigma, options


@options
class Gaussian(LabelDefense, ParticipantDefense):
    """Isotropic Gaussian noise on each gradient, or on each update of federated training. On gradients it falls to `direct`,
    which needs no label, also at ratio 1.

        g'_i = g_i + N(0, s^2 I),   s = ratio max_j |g_j| / sqrt(d),   so that the noise's length is about ratio max_j |g_j|

    An update is one such vector.

    ratio: length of the noise, relative to the longest gradient of the batch. sigma: in place of ratio, the standard
    deviation s, in the units of the gradient (of the mean loss of a batch). The defense carries no guarantee, because the
    gradients have no bound that is known beforehand.

    Source: ByteDance, "Technical Report of Label Leakage and Protection in Federated Learning", section "iso".
    """

    withholds = False

    ratio: RatioOrZero = 1.0
    sigma: Sigma | None = None

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Tensor:
        """g: (n, d)."""
        return self._perturbed(g, context.rng)

    def update(self, u: Tensor, context: Context) -> Tensor:
        """u: (d,)."""
        return self._perturbed(u[None], context.rng)[0]

    def _perturbed(self, g: Tensor, rng: torch.Generator) -> Tensor:
        deviation = self.sigma
        if deviation is None:  # in float64, where no square of a float32 under- or overflows
            longest = torch.linalg.vector_norm(g, dim=1, dtype=torch.float64).max().item()
            deviation = self.ratio * longest / math.sqrt(g.shape[1])
        noise = torch.randn(g.shape, generator=rng, device=g.device, dtype=g.dtype)
        return torch.add(g, noise, alpha=deviation)
