"""Selective updates: a participant shares some coordinates of its step, and keeps the others."""

import math
from typing import Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context, ParticipantDefense
from vflbench.options import Share, options


@options
class SelectiveUpdate(ParticipantDefense):
    """Share only a part of the coordinates of each update; the others are sent as 0.

        u'_j = u_j  for j in S,  0 elsewhere;   |S| = ceil(fraction d)

    choose: S has the `largest` |u_j|, or `random` coordinates, drawn again in each round. The defense carries no guarantee:
    what is shared is exact, and an attacker who waits collects enough rounds for each coordinate.

    Source: Shokri and Shmatikov, "Privacy-Preserving Deep Learning", 2015 (distributed selective SGD).
    """

    fraction: Share = 0.1
    choose: Literal["largest", "random"] = "largest"

    def __post_init__(self) -> None:
        self.withholds = self.fraction < 1

    def update(self, u: Tensor, context: Context) -> Tensor:
        """u: (d,)."""
        weight = u.abs() if self.choose == "largest" else torch.rand(u.shape, generator=context.rng, device=u.device)
        shared = weight.topk(math.ceil(self.fraction * len(u))).indices
        return torch.zeros_like(u).index_copy_(0, shared, u[shared])
