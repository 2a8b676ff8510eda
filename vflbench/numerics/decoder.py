"""A network that learns the inverse of a function from pairs of inputs and outputs."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.numerics.optim import AdamSteps, BareLinear


@dataclass(frozen=True)
class Decoder:
    """A fitted decoder. ids: for each categorical column, the (s,) ids that occur in the pairs."""

    network: nn.Module
    mean: Tensor
    scale: Tensor
    numeric: int
    ids: tuple[Tensor, ...]

    @torch.no_grad()
    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h: (n, d). Returns numeric (n, k) in [0, 1] and categorical (n, c) int32 ids."""
        numeric, *logits = self.outputs(h)
        columns = [ids[scores.argmax(dim=1)] for ids, scores in zip(self.ids, logits, strict=True)]
        categorical = torch.stack(columns, dim=1) if columns else torch.empty(len(h), 0, device=h.device)
        return numeric, categorical.int()

    def outputs(self, h: Tensor) -> list[Tensor]:
        """Numeric columns (n, k), then the logits (n, s) of each categorical column."""
        outputs = self.network((h - self.mean) / self.scale)
        numeric, *logits = outputs.split([self.numeric, *map(len, self.ids)], dim=1)
        return [torch.sigmoid(numeric), *logits]


def fit_decoder(
    h: Tensor, numeric: Tensor, categorical: Tensor, rng: torch.Generator, *, width: int, steps: int, batch: int = 128
) -> Decoder:
    """Fit h -> one ReLU layer -> features with Adam.

    The loss is the squared error of numeric columns plus the cross-entropy of categorical ones.

    h: (n, d). numeric: (n, k) in [0, 1]. categorical: (n, c) ids; ids that do not occur here are never predicted.
    """
    mean, scale = h.mean(dim=0), h.std(dim=0).clamp_min(1e-6)
    scale = scale.clamp_min(0.01 * float(scale.mean()))
    distinct = [column.unique(return_inverse=True) for column in categorical.T]
    ids, classes = tuple(values for values, _ in distinct), [inverse for _, inverse in distinct]
    outputs = numeric.shape[1] + sum(map(len, ids))
    network = nn.Sequential(_dense(h.shape[1], width, rng), nn.ReLU(), _dense(width, outputs, rng))
    decoder = Decoder(network, mean, scale, numeric.shape[1], ids)
    optimizer = AdamSteps(network.parameters(), lr=2e-3)
    for step in range(steps):
        chosen = torch.randint(len(h), (min(batch, len(h)),), generator=rng, device=h.device)
        predicted, *logits = decoder.outputs(h[chosen])
        entropies = (F.cross_entropy(scores, true[chosen]) for scores, true in zip(logits, classes, strict=True))
        loss = sum(entropies, predicted.new_zeros(()))
        if numeric.shape[1]:
            loss = loss + (predicted - numeric[chosen]).square().sum(dim=1).mean()
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return decoder


def _dense(inputs: int, outputs: int, rng: torch.Generator) -> nn.Linear:
    layer = BareLinear(inputs, outputs, device=rng.device)
    with torch.no_grad():
        layer.weight.normal_(0.0, math.sqrt(2 / inputs), generator=rng)
        layer.bias.zero_()
    return layer
