"""Wide & Deep: ReLU layers on category embeddings and numeric features, with an optional linear part in parallel."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vflbench.models.base import WIDE, Bottom, Model, layer_names
from vflbench.models.layers import ColumnEmbedding, ReluStack, Wide
from vflbench.options import Width, options

_EMBEDDING_STD = 0.01  # small, so that rarely seen categories have little effect


@options
class WideDeep(Model):
    """Embedding lookup and numeric features -> 5 ReLU layers of 128 | cut | 3 ReLU layers of 128 -> logit.

    embedding_dim: dimensions of a category's embedding.
    wide: add the linear part. Its output, one logit contribution per row, crosses the cut and is attacked too. Its gradient
    is one number per row, (p - y) / n, whose *sign* is the label. A defense that changes only norms cannot hide it.

    Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016; sizes from Sun et al., "Label Leakage and
    Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    embedding_dim: Width = 4
    wide: bool = False

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> Bottom:
        return _WideDeepBottom(self, len(numeric), cardinalities, outputs, rng)


class _WideDeepBottom(Bottom):
    def __init__(self, model: WideDeep, numeric: int, cardinalities: Sequence[int], outputs: int, rng: torch.Generator):
        super().__init__()
        self.layers = layer_names("f", model.bottom_layers)
        self.cut_width = model.bottom_widths[-1]
        self.cardinalities = list(cardinalities)
        self.embedding = ColumnEmbedding(cardinalities, model.embedding_dim, rng, _EMBEDDING_STD)
        inputs = numeric + len(cardinalities) * model.embedding_dim
        self.stack = ReluStack(self.layers, inputs, model.bottom_widths, rng)
        self.wide = Wide(numeric, cardinalities, outputs, rng) if model.wide else None
        self.sends = (self.cut, WIDE) if model.wide else (self.cut,)

    def tables(self) -> tuple[Tensor, ...]:
        return self.embedding.values().split(self.cardinalities)

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """Without the linear part, which needs ids."""
        layers: dict[str, Tensor] = self.stack(torch.cat([numeric, vectors.flatten(1)], dim=1))
        return layers

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        layers = self.from_vectors(numeric, self.embedding(categorical))
        return layers if self.wide is None else {**layers, WIDE: self.wide(numeric, categorical)}
