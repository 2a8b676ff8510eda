"""Remembered noise: each row gets the same noise in every epoch, so that averaging over epochs removes none of it."""

import torch
from torch import Tensor

from vflbench import Context, NonLabelDefense
from vflbench.numerics.hashing import uniform
from vflbench.options import NonNegative, options


@options
class RememberedNoise(NonLabelDefense):
    """Gaussian noise on embeddings that depends on the row alone.

        h'_i = h_i + sigma e_i,   e_ij ~ N(0, 1) by the Box-Muller transform of two numbers that a key makes of (i, j)

    The key is drawn at the first batch; no memory per row is needed.
    """

    sigma: NonNegative = 0.1

    def __post_init__(self) -> None:
        self._key: int | None = None

    def embedding(self, h: Tensor, context: Context) -> Tensor:
        if self._key is None:
            self._key = int(torch.randint(2**62, (), generator=context.rng, device=context.rng.device))
        cells = context.ids[:, None] * h.shape[1] + torch.arange(h.shape[1], device=h.device)
        u, v = uniform(cells, self._key), uniform(cells, self._key ^ 1)
        return h + self.sigma * ((-2 * torch.log1p(-u)).sqrt() * torch.cos(2 * torch.pi * v)).to(h.dtype)
