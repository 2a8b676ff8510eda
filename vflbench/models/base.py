"""Model: what every entry of configs/model builds; bottoms for the parties that hold features, a top for the label party."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vflbench.models.layers import ReluStack, linear
from vflbench.options import Count, NonNegativeInt, options

WIDE = "wide"
"""The name of the linear part's output where a model sends one across the cut."""


class Bottom(nn.Module):
    """A party's part of the network.

    layers: the names f1 .. fk of its layers, first layer first; the last is the cut layer.
    sends: what crosses to the label party: the cut layer, and `wide` where there is a linear part.
    cut_width: width of the cut layer.

    A subclass's forward(numeric (n, k), categorical (n, c)) returns name -> (n, width) for every name in layers and sends.
    """

    layers: tuple[str, ...]
    sends: tuple[str, ...]
    cut_width: int

    @property
    def cut(self) -> str:
        return self.layers[-1]


class Top(nn.Module):
    """The label party's part: ReLU layers h1 .. hk over the concatenated embeddings, and the logits.

    embeddings: one (n, width) a party; wide: what the linear parts add to the logits, (n, outputs) each.
    Returns the activations h1 .. hk and the logits, (n, outputs).
    """

    def __init__(self, inputs: int, layers: int, width: int, outputs: int, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("h", layers)
        self.stack = ReluStack(self.layers, inputs, [width] * layers, rng)
        self.output = linear(width if layers else inputs, outputs, rng)

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        x = torch.cat(list(embeddings), dim=1)
        activations = self.stack(x)
        logits = self.output(activations[self.layers[-1]] if self.layers else x)
        return activations, sum(wide, start=logits)


@options
class Model:
    """A network that is cut in two.

    bottom_layers, top_layers: ReLU layers below the cut (f1 .. fk, fk is the cut layer) and above it (h1 .. hk).
    width: of every layer. cut_width: of the cut layer, if it differs.

    A subclass overrides `bottom`.
    """

    bottom_layers: Count = 5
    top_layers: NonNegativeInt = 3
    width: Count = 128
    cut_width: Count | None = None

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        """A bottom for a party with these numeric columns and categorical columns of these sizes."""
        raise NotImplementedError

    def top(self, inputs: int, outputs: int, rng: torch.Generator) -> Top:
        """A top over `inputs` embedding coordinates with `outputs` logits (1 for two classes, K for K > 2)."""
        return Top(inputs, self.top_layers, self.width, outputs, rng)

    @property
    def bottom_widths(self) -> list[int]:
        return [self.width] * (self.bottom_layers - 1) + [self.cut_width or self.width]


def layer_names(letter: str, count: int) -> tuple[str, ...]:
    """f1, f2, ... or h1, h2, ..."""
    return tuple(f"{letter}{i}" for i in range(1, count + 1))
