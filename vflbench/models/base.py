"""Model: what every entry of configs/model builds, bottoms for the parties that hold features and a top for the label party;
and the layers that models share, initialised from a given generator.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.numerics.optim import BareConv2d, BareLinear, embedding
from vflbench.numerics.system import refuse_too_large
from vflbench.options import LayerCount, TopLayers, Width, options

WIDE = "wide"
"""The name of the linear part's output where a model sends one across the cut."""
EMBEDDING_STD = 0.01
"""Of the first vectors of categories: small, so that rarely seen ones have little effect."""

N = TypeVar("N", bound=nn.Module)

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


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Inside, the network is in evaluation mode, and nothing is differentiated. Then each module is in its mode again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, was_training in modes.items():
            module.training = was_training


class Bottom(nn.Module):
    """A party's part of the network.

    layers: the names f1 .. fk of its layers, first layer first; the last is the cut layer.
    sends: what crosses to the label party: the cut layer, and `wide` where there is a linear part.
    cut_width: width of the cut layer.

    A subclass's forward(numeric (n, k), categorical (n, c)) returns name -> (n, width) for every name in layers and sends.
    One that embeds categorical columns also overrides `tables` and `from_vectors`.
    """

    layers: tuple[str, ...]
    sends: tuple[str, ...]
    cut_width: int

    @property
    def cut(self) -> str:
        return self.layers[-1]

    def tables(self) -> tuple[Tensor, ...]:
        """What the deep part reads for each id of each categorical column, (ids, dim) each."""
        return ()

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """The layers, from what was read for the categorical columns: vectors (n, c, dim), no matter of which ids, or of
        none. Differentiable in both.
        """
        return self(numeric, vectors.new_empty(len(vectors), 0, dtype=torch.int32))

    def frozen(self) -> Self:
        """A copy as it stands, which no later step changes, and through which gradients reach the inputs only."""
        return frozen_copy(self, "a bottom")


def frozen_copy(network: N, name: str) -> N:
    """A copy of a network as it stands, which no later step changes, and through which gradients reach the inputs only.

    name: of what is copied, for the error about a module that can't be copied.
    """
    embeddings = [module for module in network.modules() if isinstance(module, ColumnEmbedding)]
    lookups = [module.lookup for module in embeddings]
    values = [module.values() for module in embeddings]
    for module in embeddings:
        module.lookup = None
    kept = [value for module in network.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    known = {id(value): value.detach().clone() for value in kept if not value.is_leaf}  # torch copies leaves alone
    try:
        copied = copy.deepcopy(network, known).requires_grad_(False)
    except Exception as error:  # whatever a module of a user's own keeps
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"an attack looks into a copy of {name}, which can't be copied ({reason})", key="model") from error
    for module, lookup in zip(embeddings, lookups, strict=True):
        module.lookup = lookup
    for module, table in zip((m for m in copied.modules() if isinstance(m, ColumnEmbedding)), values, strict=True):
        module.table.data = table
    return copied


class TopModel(nn.Module):
    """The label party's part of the network.

    A subclass's forward(embeddings, wide) gets one embedding (n, width) a party, and what linear parts add to the logits,
    (n, outputs) each. It returns its activations, layer -> (n, width), and the logits (n, outputs).
    """


class Top(TopModel):
    """ReLU layers h1 .. hk over the concatenated embeddings, and the logits."""

    def __init__(self, inputs: int, layers: int, width: int, outputs: int, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("h", layers)
        self.stack = ReluStack(self.layers, inputs, [width] * layers, rng)
        self.output = linear(width if layers else inputs, outputs, rng)

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        x = embeddings[0] if len(embeddings) == 1 else torch.cat(list(embeddings), dim=1)
        activations = self.stack(x)
        logits = self.output(activations[self.layers[-1]] if self.layers else x)
        return activations, sum(wide, start=logits)


class CutModel(ABC):
    """A network that is cut in two: what every entry of configs/model builds.

    width: of a typical layer; the number of threads of a run follows from it.
    """

    width: int

    @abstractmethod
    def bottom_for(
        self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
    ) -> nn.Module:
        """A bottom for a party with these numeric columns and categorical columns of these sizes."""

    @abstractmethod
    def top_over(self, widths: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        """A top over embeddings of these widths, one a party, with `outputs` logits (1 for two classes, K for K > 2)."""


@options
class Model(CutModel):
    """A network of ReLU layers that is cut in two.

    A subclass overrides `bottom`, and `top` where it wants another one. Either may return any torch module: see
    `vflbench.models.torch` for what it is called with and returns.

    Args:
        bottom_layers: number of ReLU layers below the cut (f1 .. fk, fk is the cut layer), at least 1.
        top_layers: number of ReLU layers above the cut (h1 .. hk), at least 0.
        width: units of every layer.
        cut_width: units of the cut layer, if it differs.
    """

    bottom_layers: LayerCount = 5
    top_layers: TopLayers = 3
    width: Width = 128
    cut_width: Width | None = None

    @abstractmethod
    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        """A bottom for a party with these numeric columns and categorical columns of these sizes."""

    def bottom_for(
        self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
    ) -> nn.Module:
        return self.bottom(numeric, cardinalities, outputs, rng)

    def top_over(self, widths: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        return self.top(sum(widths), outputs, rng)

    def top(self, inputs: int, outputs: int, rng: torch.Generator) -> nn.Module:
        """A top over `inputs` embedding coordinates with `outputs` logits (1 for two classes, K for K > 2)."""
        return Top(inputs, self.top_layers, self.width, outputs, rng)

    @property
    def bottom_widths(self) -> list[int]:
        return [self.width] * (self.bottom_layers - 1) + [self.cut_width or self.width]


def layer_names(letter: str, count: int) -> tuple[str, ...]:
    """f1, f2, ... or h1, h2, ..."""
    return tuple(f"{letter}{i}" for i in range(1, count + 1))
