"""Gaussian or Laplace noise on embeddings of bounded length."""

from typing import Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context, Form, NonLabelDefense
from vflbench.metrics.embedding_privacy import Sent, gaussian_release, gaussian_sigma, laplace_release
from vflbench.options import Delta, Eps, Length, options


@options
class EmbeddingNoise(NonLabelDefense):
    """Embeddings are shortened to a declared norm, and noise is added to each coordinate.

        gaussian   h' = h min(1, C / |h|_2) + N(0, s^2 I),   the least s with (eps, delta)-DP for embeddings 2 C apart
        laplace    h' = h min(1, C / |h|_1) + Laplace(0, b),   b = 2 C / eps,   which is eps-DP

    norm: C, L2 or L1. eps, delta: of one message about a row; laplace has delta = 0. The guarantee is about one row's
    embedding, the network being given: it does not bound what the weights, and through them messages about other rows,
    reveal about a row. It also holds for h' after any other defense. Noise is drawn in floating point, as if that were
    exact.

    Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018; Dwork et al.,
    "Calibrating noise to sensitivity in private data analysis", TCC 2006.
    """

    takes = frozenset({Form.REAL})
    gives = Form.REAL

    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    norm: Length = 1.0
    eps: Eps = 1.0
    delta: Delta = 1e-6

    @property
    def scale(self) -> float:
        """The standard deviation s, or b."""
        if self.mechanism == "laplace":
            return 2 * self.norm / self.eps
        return gaussian_sigma(2 * self.norm, self.eps, self.delta)

    def __post_init__(self) -> None:
        self._scale = self.scale

    def embedding(self, h: Tensor, context: Context) -> Tensor:
        """h: (n, d)."""
        order = 2 if self.mechanism == "gaussian" else 1
        length = torch.linalg.vector_norm(h, order, dim=1, keepdim=True)
        clipped = h * (self.norm / length.clamp_min(self.norm))
        return torch.add(clipped, self._unit_noise(h, context.rng), alpha=self._scale)

    def _unit_noise(self, h: Tensor, rng: torch.Generator) -> Tensor:
        if self.mechanism == "gaussian":
            return torch.randn(h.shape, generator=rng, device=h.device, dtype=h.dtype)
        u = torch.rand(2, *h.shape, generator=rng, device=h.device, dtype=torch.float64)
        waits = -torch.log1p(-u)  # exponential; the difference of two is Laplace
        return (waits[0] - waits[1]).to(h.dtype)

    def sent(self, name: str, before: Sent) -> Sent:
        if self.mechanism == "laplace":
            return before.released(name, laplace_release(self.eps))
        return before.released(name, gaussian_release(2 * self.norm, self._scale, self.delta))
