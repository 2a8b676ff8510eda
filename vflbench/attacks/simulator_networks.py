"""The networks of the simulator attack, and their steps of training."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.messages.fact import Layers
from vflbench.messages.facts import OwnColumns
from vflbench.models.layers import convolution, linear
from vflbench.models.optimizers.base import load_state
from vflbench.numerics.optim import AdamSteps
from vflbench.numerics.unpaired import Grid

_LEAK = 0.2


@dataclass(frozen=True)
class Coding:
    """Columns as vectors: numeric ones, then one coordinate for each id of each categorical column.

    numeric: how many. cardinalities: of the categorical columns.
    """

    numeric: int
    cardinalities: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.numeric + sum(self.cardinalities)

    def vectors(self, columns: OwnColumns) -> Tensor:
        """(n, width)."""
        one_hot = [
            F.one_hot(ids.long(), size).to(columns.numeric.dtype)
            for ids, size in zip(columns.categorical.T, self.cardinalities, strict=True)
        ]
        return torch.cat([columns.numeric, *one_hot], dim=1)

    def columns(self, vectors: Tensor) -> OwnColumns:
        """The nearest columns: numbers are clipped to [0, 1], of each categorical column the largest coordinate counts."""
        numeric, *scores = vectors.split([self.numeric, *self.cardinalities], dim=1)
        ids = [part.argmax(dim=1) for part in scores]
        empty = torch.empty(len(vectors), 0, device=vectors.device)
        return OwnColumns(numeric.clamp(0, 1), (torch.stack(ids, dim=1) if ids else empty).int())

    def decoded(self, outputs: Tensor) -> Tensor:
        """Vectors from a network's outputs: sigmoids of numeric columns, softmax of categorical ones."""
        numeric, *logits = outputs.split([self.numeric, *self.cardinalities], dim=1)
        return torch.cat([torch.sigmoid(numeric), *(part.softmax(dim=1) for part in logits)], dim=1)

    def loss(self, outputs: Tensor, columns: OwnColumns) -> Tensor:
        """Mean squared error of numeric columns plus the mean cross-entropy of each categorical one."""
        numeric, *logits = outputs.split([self.numeric, *self.cardinalities], dim=1)
        entropies = [F.cross_entropy(part, ids.long()) for part, ids in zip(logits, columns.categorical.T, strict=True)]
        squares = [(torch.sigmoid(numeric) - columns.numeric).square().mean()] if self.numeric else []
        return torch.stack([*squares, *entropies]).sum()


class PlainBottom(nn.Module):
    """Two dense ReLU layers over the columns as vectors, then one dense layer for each layer that is sent."""

    def __init__(self, coding: Coding, sent: Layers, width: int, rng: torch.Generator):
        super().__init__()
        self.coding = coding
        self.inner = nn.ModuleList([linear(coding.width, width, rng, math.sqrt(2)), linear(width, width, rng, math.sqrt(2))])
        self.outputs = nn.ModuleDict({layer: linear(width, h.shape[1], rng, math.sqrt(2)) for layer, h in sent.items()})
        self.positive = {layer: bool((h >= 0).all()) for layer, h in sent.items()}

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        x = self.coding.vectors(OwnColumns(numeric, categorical))
        for layer in self.inner:
            x = F.relu(layer(x))
        values = {name: layer(x) for name, layer in self.outputs.items()}
        return {name: F.relu(h) if self.positive[name] else h for name, h in values.items()}


class Dense(nn.Module):
    """(inputs, class) -> two leaky ReLU layers -> outputs. classes: 0 to leave the class out."""

    def __init__(self, inputs: int, outputs: int, classes: int, width: int, rng: torch.Generator):
        super().__init__()
        self.classes = classes
        sizes = [inputs + classes, width, width]
        self.inner = nn.ModuleList([linear(a, b, rng, math.sqrt(2)) for a, b in pairwise(sizes)])
        self.last = linear(width, outputs, rng)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        if self.classes:
            x = torch.cat([x, F.one_hot(classes, self.classes).to(x.dtype)], dim=1)
        for layer in self.inner:
            x = F.leaky_relu(layer(x), _LEAK)
        outputs: Tensor = self.last(x)
        return outputs


class Convolutional(nn.Module):
    """(cells of an embedding, a plane of each class) -> 3 x 3 convolutions with ReLU, enlarged to pixels -> pixels."""

    def __init__(self, grid: Grid, classes: int, width: int, rng: torch.Generator):
        super().__init__()
        self.grid, self.classes = grid, classes
        self.first = convolution(grid.channels + classes, width, 1, rng, math.sqrt(2))
        self.inner = convolution(width, width, 1, rng, math.sqrt(2))
        self.last = convolution(width, grid.pixel_channels * math.prod(grid.steps), 1, rng)

    def forward(self, h: Tensor, classes: Tensor) -> Tensor:
        grid = self.grid
        x = h.reshape(-1, grid.channels, grid.height, grid.width)
        if self.classes:
            planes = F.one_hot(classes, self.classes).to(x.dtype)[:, :, None, None]
            x = torch.cat([x, planes.expand(-1, -1, grid.height, grid.width)], dim=1)
        x = F.relu(self.inner(F.relu(self.first(x))))
        return grid.columns(self.last(x).flatten(2).transpose(1, 2))


class Learner:
    """A network and its Adam. Nothing in it draws while it learns: it is in evaluation mode."""

    def __init__(self, network: Any, rate: float):
        self.network = network.requires_grad_(True).eval()
        self.optimizer = AdamSteps(network.parameters(), lr=rate)

    def step(self, loss: Tensor) -> None:
        """Only its own weights move."""
        self.move(self.gradients(loss))

    def gradients(self, loss: Tensor) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(loss, list(self.network.parameters()), retain_graph=True, allow_unused=True)

    def move(self, gradients: Sequence[Tensor | None]) -> None:
        for parameter, g in zip(self.network.parameters(), gradients, strict=True):
            parameter.grad = g
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        load_state(self.optimizer, state["optimizer"])


@dataclass
class Mimic:
    """What the attacker trains about one party. The judges are None where nothing is judged.

    bottom: the simulator of its network. decoder: embeddings -> columns. judge: tells received embeddings from simulated
    ones. judge_of_rows: tells auxiliary rows from decoded ones.
    """

    coding: Coding
    bottom: Learner
    decoder: Learner
    judge: Learner | None
    judge_of_rows: Learner | None

    @property
    def learners(self) -> dict[str, Learner]:
        named = {"bottom": self.bottom, "decoder": self.decoder, "judge": self.judge, "judge_of_rows": self.judge_of_rows}
        return {name: learner for name, learner in named.items() if learner is not None}

    @torch.no_grad()
    def decode(self, h: Tensor, classes: Tensor) -> Tensor:
        """(n, width) vectors of columns from embeddings (n, d)."""
        return self.coding.decoded(self.decoder.network(h, classes))


def joined(layers: Layers, order: Layers) -> Tensor:
    """(n, d) all layers that a party sends, in the order of another message."""
    return torch.cat([layers[layer] for layer in order], dim=1)


def train(
    mimics: Mapping[str, Mimic],
    received: Mapping[str, Layers],
    classes: Tensor,
    rows: Mapping[str, OwnColumns],
    classes_of_rows: Tensor,
    logits: Callable[[Mapping[str, Layers]], Tensor],
    weights: tuple[float, float],
) -> None:
    """One step of every network: the simulators and their judges together, then the decoders and theirs.

    received: of the batch. rows: auxiliary ones. logits: of the true top for embeddings. weights: of both deceptions.
    """
    simulated: dict[str, Layers] = {}
    for party, mimic in mimics.items():
        layers = mimic.bottom.network(rows[party].numeric, rows[party].categorical)
        simulated[party] = {layer: layers[layer] for layer in received[party]}
    entropy = classification(logits(simulated), classes_of_rows)
    steps: list[tuple[Learner, Tensor]] = []
    for party, mimic in mimics.items():
        if mimic.judge is None:
            steps.append((mimic.bottom, entropy))
            continue
        verdict = mimic.judge.network(joined(simulated[party], received[party]), classes_of_rows)
        real = mimic.judge.network(joined(received[party], received[party]), classes)
        steps.append((mimic.bottom, entropy + weights[0] * _taken_for(verdict, 1.0)))
        steps.append((mimic.judge, _taken_for(real, 1.0) + _taken_for(verdict, 0.0)))
    _together(steps)
    for party, mimic in mimics.items():
        with torch.no_grad():
            fake = joined(mimic.bottom.network(rows[party].numeric, rows[party].categorical), received[party])
        loss = mimic.coding.loss(mimic.decoder.network(fake, classes_of_rows), rows[party])
        if mimic.judge_of_rows is None:
            mimic.decoder.step(loss)
            continue
        h = joined(received[party], received[party])
        decoded = mimic.coding.decoded(mimic.decoder.network(h, classes))
        verdict = mimic.judge_of_rows.network(decoded, classes)
        real = mimic.judge_of_rows.network(mimic.coding.vectors(rows[party]), classes_of_rows)
        steps = [(mimic.decoder, loss + weights[1] * _taken_for(verdict, 1.0))]
        steps.append((mimic.judge_of_rows, _taken_for(real, 1.0) + _taken_for(verdict, 0.0)))
        _together(steps)


def classification(logits: Tensor, classes: Tensor) -> Tensor:
    """Mean cross-entropy. logits: (n, 1) for two classes, (n, K) for more."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], classes.to(logits.dtype))
    return F.cross_entropy(logits, classes)


def _taken_for(verdict: Tensor, real: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(verdict, torch.full_like(verdict, real))


def _together(steps: list[tuple[Learner, Tensor]]) -> None:
    """Steps whose gradients are all taken before any network moves."""
    gradients = [learner.gradients(loss) for learner, loss in steps]
    for (learner, _), own in zip(steps, gradients, strict=True):
        learner.move(own)
