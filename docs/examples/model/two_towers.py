"""A network of plain torch modules: nothing in them knows of vflbench."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vflbench import Model
from vflbench.options import Count, options


class Tower(nn.Module):
    """Category embeddings summed up, beside a layer over numeric columns."""

    def __init__(self, numeric: int, cardinalities: Sequence[int], width: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in cardinalities)
        self.numeric = nn.Linear(numeric, width)
        self.mixed = nn.Sequential(nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        ids = categorical.long()
        return self.mixed(self.numeric(numeric) + sum(table(ids[:, j]) for j, table in enumerate(self.tables)))


@options
class TwoTowers(Model):
    """Sums of category embeddings | cut | a linear layer."""

    width: Count = 32

    def bottom(self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        return Tower(len(numeric), cardinalities, self.width)

    def top(self, inputs: int, outputs: int, rng: torch.Generator) -> nn.Module:
        return nn.Linear(inputs, outputs)
