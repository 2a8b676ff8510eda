"""Model: what every entry of configs/model builds; bottoms for the parties that hold features, a top for the label party."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.models.layer_names import WIDE as WIDE
from vflbench.models.layers import ColumnEmbedding, ReluStack, linear
from vflbench.options import LayerCount, TopLayers, Width, options

N = TypeVar("N", bound=nn.Module)


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
