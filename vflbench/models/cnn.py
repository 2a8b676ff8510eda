"""Convolutional layers on pixels."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.models.base import Bottom, Model, Top, layer_names
from vflbench.models.layers import convolution, linear
from vflbench.numerics.pixels import Area, area_of
from vflbench.options import LayerCount, TopLayers, Width, options


@options
class Cnn(Model):
    """Pixels -> 3 x 3 convolutions with ReLU | cut | ReLU layers -> logits. A party's pixels must fill a rectangle.

    Every second layer (f2, f4, ...) halves height and width while both are at least 4. The embedding is the last layer,
    flattened channel by channel.

    width: channels of each convolution. cut_width: width of a dense ReLU layer in place of the last convolution. top_width:
    width of the label party's layers.
    """

    bottom_layers: LayerCount = 2
    top_layers: TopLayers = 1
    width: Width = 16
    top_width: Width = 128

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        area = None if cardinalities else area_of(numeric)
        if area is None:
            columns = "categorical columns" if cardinalities else f"the columns {', '.join(numeric[:3])}, ..."
            problem = f"it accepts the pixels of a rectangle, row by row, but a party has {columns}; use mlp or wide_deep"
            raise UserError(problem, key="model", value="cnn", see="vflbench list models")
        return _CnnBottom(self, area, rng)

    def top(self, inputs: int, outputs: int, rng: torch.Generator) -> Top:
        return Top(inputs, self.top_layers, self.top_width, outputs, rng)


class _CnnBottom(Bottom):
    def __init__(self, model: Cnn, area: Area, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("f", model.bottom_layers)
        self.sends = (self.cut,)
        self.area = area
        channels, height, width = area.channels, area.height, area.width
        stack: dict[str, nn.Module] = {}
        for number, name in enumerate(self.layers, 1):
            if name == self.cut and model.cut_width is not None:
                stack[name] = linear(channels * height * width, model.cut_width, rng, gain=2**0.5)
                channels, height, width = model.cut_width, 1, 1
                continue
            stride = 2 if number % 2 == 0 and min(height, width) >= 4 else 1
            stack[name] = convolution(channels, model.width, stride, rng, gain=2**0.5)
            channels, height, width = model.width, (height - 1) // stride + 1, (width - 1) // stride + 1
        self.stack = nn.ModuleDict(stack)
        self.cut_width = channels * height * width

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        activations = {}
        x = self.area.picture(numeric)
        for name, layer in self.stack.items():
            x = F.relu(layer(x.flatten(1) if isinstance(layer, nn.Linear) else x))
            activations[name] = x.flatten(1)
        return activations
