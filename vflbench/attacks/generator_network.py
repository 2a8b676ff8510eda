"""The network of the generator attack, and the joint model of what it makes up."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.messages.facts import OwnColumns
from vflbench.models.layers import linear

_BUCKETS = 8  # coordinates of an own categorical column; ids that are equal modulo this share one


class GeneratorNetwork(nn.Module):
    """(own columns, what is read beside them, noise) -> numeric columns (n, k) in [0, 1], and shares of the ids of each
    categorical one.

    own_numeric, own_categories: numbers of own columns. beside: numbers that are read beside them, a prediction for one.
    Noise has as many coordinates as there are unknown columns.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        own_numeric: int,
        own_categories: int,
        beside: int,
        numeric: int,
        cardinalities: Sequence[int],
        width: int,
        rng: torch.Generator,
    ):
        super().__init__()
        self.numeric, self.cardinalities = numeric, list(cardinalities)
        self.noise = numeric + len(cardinalities)
        drawn = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))
        sizes = [own_numeric + _BUCKETS * own_categories + beside + self.noise, width, -(-width // 3), -(-width // 6)]
        layers: list[nn.Module] = []
        for below, above in pairwise(sizes):
            layers += [linear(below, above, drawn), nn.LayerNorm(above), nn.ReLU()]
        self.layers = nn.Sequential(*layers, linear(sizes[-1], numeric + sum(cardinalities), drawn, gain=0.5))
        self.register_buffer("mean", torch.zeros(beside))
        self.register_buffer("scale", torch.ones(beside))
        self.to(rng.device)

    def scale_to(self, beside: Tensor) -> None:
        """What is read beside own columns (n, m) is read less its mean here, and in units of its standard deviation."""
        if beside.shape[1] and len(beside) > 1:
            self.mean, self.scale = beside.mean(dim=0), beside.std(dim=0, correction=int(len(beside) > 1)).clamp_min(1e-3)

    def given(self, own: OwnColumns, beside: Tensor) -> Tensor:
        """(n, inputs) all that it reads of each row but the noise."""
        ids = F.one_hot(own.categorical.long() % _BUCKETS, _BUCKETS).flatten(1).to(beside.dtype)
        return torch.cat([own.numeric, ids, (beside - self.mean) / self.scale], dim=1)

    def forward(self, given: Tensor, rng: torch.Generator) -> tuple[Tensor, list[Tensor]]:
        """Numeric columns (n, k), and (n, ids) for each categorical one, which add up to 1."""
        noise = torch.randn(len(given), self.noise, generator=rng, device=rng.device)
        numeric, *scores = self.layers(torch.cat([given, noise], dim=1)).split([self.numeric, *self.cardinalities], dim=1)
        return torch.sigmoid(numeric), [score.softmax(dim=1) for score in scores]
