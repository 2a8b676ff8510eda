"""ReLU layers on numeric columns."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.models.base import Bottom, Model, layer_names
from vflbench.models.layers import ReluStack
from vflbench.options import options


@options
class Mlp(Model):
    """Numeric features -> ReLU layers | cut | ReLU layers -> logit. Categorical columns raise UserError."""

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        if cardinalities:
            raise UserError(
                f"it accepts numeric columns only, but a party has {len(cardinalities)} categorical columns; use wide_deep",
                key="model",
                value="mlp",
                see="vflbench list models",
            )
        return _MlpBottom(self, len(numeric), rng)


class _MlpBottom(Bottom):
    def __init__(self, model: Mlp, numeric: int, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("f", model.bottom_layers)
        self.cut_width = model.bottom_widths[-1]
        self.stack = ReluStack(self.layers, numeric, model.bottom_widths, rng)
        self.sends = (self.cut,)

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        return self.stack(numeric)
