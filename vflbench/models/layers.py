"""Layers shared by several models, initialised from a given generator."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.numerics.optim import BareConv2d, BareLinear, embedding
from vflbench.numerics.system import refuse_too_large

_TRAINED = (8, "the weights of the network, with their gradients,", "model")
"""Bytes of a weight, itself and its gradient at least; what they are, and the option that is too large."""


def linear(inputs: int, outputs: int, rng: torch.Generator, gain: float = 1.0) -> nn.Linear:
    """A linear layer with weights U(-b, b), b = gain sqrt(3 / inputs), so that Var(Wx) = gain^2 mean(x^2); zero bias."""
    refuse_too_large(inputs * outputs, *_TRAINED)
    layer = BareLinear(inputs, outputs)
    bound = gain * math.sqrt(3 / inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=rng)
        layer.bias.zero_()
    return layer


def convolution(channels: int, outputs: int, stride: int, rng: torch.Generator, gain: float = 1.0) -> nn.Conv2d:
    """A 3 x 3 convolution with zero padding, initialised like `linear` with inputs = 9 channels."""
    refuse_too_large(9 * channels * outputs, *_TRAINED)
    layer = BareConv2d(channels, outputs, 3, stride=stride, padding=1)
    bound = gain * math.sqrt(3 / (9 * channels))
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=rng)
        layer.bias.zero_()
    return layer


class ReluStack(nn.Module):
    """Named ReLU layers. x: (n, inputs). Returns name -> activation (n, width), first layer first.

        a_0 = x;  a_l = max(0, W_l a_(l-1) + b_l)

    Weights have the gain sqrt(2) of He et al. 2015, which preserves the second moment of the activations across layers.
    """

    def __init__(self, names: Sequence[str], inputs: int, widths: Sequence[int], rng: torch.Generator):
        super().__init__()
        sizes = [inputs, *widths]
        refuse_too_large(sum(above * below for below, above in pairwise(sizes)), *_TRAINED)
        self.layers = nn.ModuleDict(
            {name: linear(sizes[i], sizes[i + 1], rng, gain=math.sqrt(2)) for i, name in enumerate(names)}
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        activations = {}
        for name, layer in self.layers.items():
            x = activations[name] = F.relu(layer(x), inplace=True)  # values before the ReLU are not needed
        return activations


class ColumnEmbedding(nn.Module):
    """One table for all categorical columns. ids: (n, c) int, from 0 in each column. Returns (n, c, dim).

    e_ij = T[offset_j + id_ij],   offset_j = the sum of the cardinalities before column j

    lookup: replaces reading T, rows of T (n, c) -> (n, c, dim), if the optimiser stores the table in its own form.
    """

    lookup: Callable[[Tensor], Tensor] | None
    offsets: Tensor

    def __init__(self, cardinalities: Sequence[int], dim: int, rng: torch.Generator, std: float):
        super().__init__()
        self.lookup = None
        refuse_too_large(sum(cardinalities) * dim, *_TRAINED)
        self.table = nn.Parameter(torch.empty(sum(cardinalities), dim).normal_(0.0, std, generator=rng))
        offsets = torch.tensor([0, *cardinalities], dtype=torch.int64).cumsum(0)[:-1]
        self.register_buffer("offsets", offsets.to(torch.int32), persistent=False)

    @torch.no_grad()
    def values(self) -> Tensor:
        """A copy of the present T, (sum of cardinalities, dim), also if it is read through `lookup`."""
        if self.lookup is None:
            return self.table.clone()
        return self.lookup(torch.arange(len(self.table), device=self.table.device)[:, None])[:, 0].clone()

    def forward(self, ids: Tensor) -> Tensor:
        places = ids + self.offsets
        return embedding(places, self.table) if self.lookup is None else self.lookup(places)


class Wide(nn.Module):
    """The linear part: one weight per category or numeric column, and output. Returns (n, outputs), added to the logits.

    z_i = sum_j w[offset_j + id_ij] + V x_i
    """

    def __init__(self, numeric: int, cardinalities: Sequence[int], outputs: int, rng: torch.Generator):
        super().__init__()
        self.categories = ColumnEmbedding(cardinalities, outputs, rng, std=0.0)
        self.numeric = nn.Parameter(torch.zeros(numeric, outputs))

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        return self.categories(categorical).sum(dim=1) + numeric @ self.numeric
