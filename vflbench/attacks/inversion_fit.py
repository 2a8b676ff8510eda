"""How well candidate features explain the embeddings that a party sent: the objective of model inversion."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.inversion_prior import AuxiliaryPrior
from vflbench.messages.fact import Layers
from vflbench.messages.peer_facts import PeerModel
from vflbench.numerics.open_relu import OpenRelu
from vflbench.numerics.pixels import area_of

_ROUGH = 1e-6  # under the root of the total variation, so that it has a gradient everywhere


def total_variation(pictures: Tensor) -> Tensor:
    """Mean over pixels of the length of the step to the next pixel below and to the right.

    pictures: (n, channels, height, width). Returns (n,).
    """
    down = torch.zeros_like(pictures)
    right = torch.zeros_like(pictures)
    down[:, :, :-1] = pictures[:, :, 1:] - pictures[:, :, :-1]
    right[..., :-1] = pictures[..., 1:] - pictures[..., :-1]
    return (down.square() + right.square() + _ROUGH).sqrt().flatten(1).mean(dim=1)


def open_relus(slope: float) -> AbstractContextManager[Any]:
    """While entered, closed ReLUs pass so much of a gradient (`numerics.open_relu`)."""
    return OpenRelu(slope)


@dataclass
class Fit:
    """One party's messages, and the distance of the embeddings of candidate features from them.

    noise: variance of a received number, relative to the mean square length of a row.
    """

    model: PeerModel
    received: Layers
    compress: Mapping[str, Callable[[Tensor], Tensor]]
    prior: AuxiliaryPrior | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        self.area = area_of(self.model.numeric)
        self.tables = list(self.model.network.tables())
        self.centre = torch.stack([t.mean(dim=0) for t in self.tables]) if self.tables else torch.empty(0, 0)
        spread = [t.std(dim=0, correction=0).clamp_min(1e-9) for t in self.tables]
        self.spread = torch.stack(spread) if spread else torch.empty(0, 0)
        self._energy = {layer: h.square().sum(dim=1).mean().clamp_min(1e-12) for layer, h in self.received.items()}

    def __len__(self) -> int:
        return len(next(iter(self.received.values())))

    def no_ids(self, rows: int) -> Tensor:
        device = next(iter(self.received.values())).device
        return torch.empty(rows, 0, dtype=torch.int32, device=device)

    def vectors(self, z: Tensor) -> Tensor:
        """(n, c, dim) from coordinates (n, c dim) in each column's standard deviations."""
        return self.centre + self.spread * z.view(len(z), *self.centre.shape)

    @torch.no_grad()
    def noise_at(self, x: Tensor, vectors: Tensor) -> float:
        """Relative variance of a received number about that of fitted features x (n, k), vectors; the largest over layers.

        Taken over closed ReLUs where there are any: an open one follows the noise, as far as features can be bent to it.
        """
        layers = self.model.network.from_vectors(x, vectors) if self.tables else self.model.network(x, self.no_ids(len(x)))
        noises = []
        for layer, h in self.received.items():
            if layer in layers:
                squared = (self.sent(layer, layers[layer]) - h).square()
                is_closed = layers[layer] == 0
                mean = squared[is_closed].mean() if is_closed.any() else squared.mean()
                noises.append(float(mean / self._energy[layer]))
        return max(noises)

    def distance(self, x: Tensor, rows: Tensor, *, ids: Tensor | None = None, vectors: Tensor | None = None) -> Tensor:
        """(m,) relative squared distance of f(x) from the received embeddings. x: (m, k) with ids (m, c), or vectors."""
        network = self.model.network
        if self.tables and ids is None:
            layers = network.from_vectors(x, vectors)
        else:
            layers = network(x, self.no_ids(len(x)) if ids is None else ids)
        parts = [
            (self.sent(layer, layers[layer]) - h[rows]).square().sum(dim=1) / self._energy[layer]
            for layer, h in self.received.items()
            if layer in layers
        ]
        return reduce(torch.add, parts)

    def slope(self, x: Tensor, ids: Tensor) -> Tensor:
        """The gradient of the distance by the vector read for each category, (n, c, dim)."""
        read = [table[ids[:, j].long()] for j, table in enumerate(self.tables)]
        vectors = torch.stack(read, dim=1).requires_grad_()
        distance = self.distance(x, torch.arange(len(x), device=x.device), vectors=vectors)
        return torch.autograd.grad(distance.sum(), vectors)[0]

    def sent(self, layer: str, values: Tensor) -> Tensor:
        """These values as they would be sent; gradients pass straight through."""
        if layer in self.compress:
            plain = values.detach()
            values = values + (self.compress[layer](plain) - plain)
        return values if self.prior is None else self.prior.slopes[layer] * values
