"""Pilot, decoder and critic: what a label party that hijacks trains for one other party."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.messages.fact import Layers
from vflbench.messages.peer_facts import Auxiliary, PeerDecoder
from vflbench.models.base import Bottom
from vflbench.models.layers import linear
from vflbench.models.optimizers.base import load_state
from vflbench.numerics.optim import AdamSteps

_BETAS = (0.5, 0.9)  # of the critic's Adam, as in Gulrajani et al., "Improved training of Wasserstein GANs", 2017
_SLOPE = 0.2  # of the critic below 0


@dataclass(frozen=True)
class Sizes:
    """width: of hidden layers. batch: auxiliary rows of a step. penalty: weight of the critic's gradient penalty."""

    width: int
    batch: int
    lr: float
    critic_lr: float
    penalty: float


class Space:
    """The space into which one party's embeddings are driven, and the way back from it.

        u = z / s,   s the spread of the pilot's embeddings, one number a layer
        pilot f~, decoder q:   min |q(u(x')) - x'|^2 + cross-entropy of categories
        critic D:              min mean D(u(x'), y') - mean D(u, y) + penalty (|dD / du| - 1)^2 between the two

    x', y': auxiliary rows and their classes. The classes are left out of D unless `classes` is given. weights: what the
    first weights are drawn from; rng: all else.
    """

    def __init__(
        self,
        pilot: Bottom,
        layers: Sequence[str],
        rows: Auxiliary,
        party: str,
        classes: int | None,
        sizes: Sizes,
        weights: torch.Generator,
        rng: torch.Generator,
    ):
        columns = rows.columns[party]
        self.pilot, self.layers, self._columns, self._labels = pilot, tuple(layers), columns, rows.labels
        self._classes, self._sizes, self._rng = classes, sizes, rng
        with torch.no_grad():
            sent = pilot(columns.numeric[:1], columns.categorical[:1])
        self._widths = [sent[layer].shape[1] for layer in self.layers]
        distinct = [column.unique(return_inverse=True) for column in columns.categorical.T]
        self._ids, self._places = tuple(values for values, _ in distinct), [places for _, places in distinct]
        d, outputs = sum(self._widths), columns.numeric.shape[1] + sum(map(len, self._ids))
        device, width = columns.numeric.device, sizes.width
        self.decoder = _dense([d, width, outputs], nn.ReLU(), weights).to(device)
        self.critic = _dense([d + (classes or 0), width, width, 1], nn.LeakyReLU(_SLOPE), weights).to(device)
        self.scale = torch.ones(d, device=device)
        self._learner = AdamSteps([*pilot.parameters(), *self.decoder.parameters()], lr=sizes.lr)
        self._judge = AdamSteps(self.critic.parameters(), lr=sizes.critic_lr, betas=_BETAS)

    def train_pilot(self, steps: int) -> None:
        """Steps of pilot and decoder together."""
        for _ in range(steps):
            rows = self._draw()
            numeric, *logits = self._decoded(self._embed(rows))
            columns = self._columns.rows(rows)
            loss = (numeric - columns.numeric).square().sum(dim=1).mean()
            for scores, places in zip(logits, self._places, strict=True):
                loss = loss + F.cross_entropy(scores, places[rows])
            self._learner.zero_grad(set_to_none=True)
            (loss / max(1, columns.numeric.shape[1] + len(logits))).backward()
            self._learner.step()

    @torch.no_grad()
    def settle(self) -> None:
        """Measure the spread of the pilot's embeddings over all auxiliary rows."""
        z = self._embed(torch.arange(len(self._labels), device=self._labels.device)) * self.scale
        spreads = [
            part.std(dim=0, correction=int(len(part) > 1)).mean().clamp_min(1e-6).expand(part.shape[1])
            for part in z.split(self._widths, dim=1)
        ]
        self.scale = torch.cat(spreads)

    def train_critic(self, received: Layers, labels: Tensor, steps: int) -> None:
        """Steps of the critic between the received embeddings (n, d) of rows of these classes (n,) and the pilot's."""
        fake = self._joined(received)
        for _ in range(steps):
            rows = self._draw(len(fake))
            with torch.no_grad():
                real = self._embed(rows)
            share = torch.rand(len(fake), 1, generator=self._rng, device=fake.device)
            between = (share * real + (1 - share) * fake).requires_grad_()
            nearer = torch.where(share[:, 0] > 0.5, self._labels[rows], labels)
            (slope,) = torch.autograd.grad(self._judged(between, nearer).sum(), between, create_graph=True)
            steepness = (slope.square().sum(dim=1) + 1e-12).sqrt()
            loss = self._judged(real, self._labels[rows]).mean() - self._judged(fake, labels).mean()
            loss = loss + self._sizes.penalty * (steepness - 1).square().mean()
            self._judge.zero_grad(set_to_none=True)
            loss.backward()
            self._judge.step()

    def pull(self, received: Layers, labels: Tensor) -> dict[str, Tensor]:
        """The gradient of the critic's mean by the embeddings, layer -> (n, d): against it lies the pilot's space."""
        u = self._joined(received).requires_grad_()
        (g,) = torch.autograd.grad(self._judged(u, labels).mean(), u)
        return dict(zip(self.layers, (g / self.scale).split(self._widths, dim=1), strict=True))

    def way_back(self) -> PeerDecoder:
        """The decoder as it stands now, in networks of its own."""
        network = copy.deepcopy(self.decoder).requires_grad_(False)
        return PeerDecoder(network, self.layers, self.scale.clone(), self._columns.numeric.shape[1], self._ids)

    def state(self) -> dict[str, Any]:
        networks = {"pilot": self.pilot, "decoder": self.decoder, "critic": self.critic}
        saved = {**networks, "learner": self._learner, "judge": self._judge}
        return {name: one.state_dict() for name, one in saved.items()} | {"scale": self.scale}

    def restore(self, state: dict[str, Any]) -> None:
        """state: copies, which this keeps."""
        for name, network in {"pilot": self.pilot, "decoder": self.decoder, "critic": self.critic}.items():
            network.load_state_dict(state[name])
        load_state(self._learner, state["learner"])
        load_state(self._judge, state["judge"])
        self.scale = state["scale"].clone()

    def _draw(self, most: int | None = None) -> Tensor:
        """Places of auxiliary rows."""
        count = self._sizes.batch if most is None else most
        return torch.randint(len(self._labels), (count,), generator=self._rng, device=self._labels.device)

    def _embed(self, rows: Tensor) -> Tensor:
        """u (m, d) of auxiliary rows."""
        columns = self._columns.rows(rows)
        return self._joined(self.pilot(columns.numeric, columns.categorical))

    def _joined(self, layers: Layers) -> Tensor:
        return torch.cat([layers[layer].float() for layer in self.layers], dim=1) / self.scale

    def _decoded(self, u: Tensor) -> list[Tensor]:
        numeric, *logits = self.decoder(u).split([self._columns.numeric.shape[1], *map(len, self._ids)], dim=1)
        return [torch.sigmoid(numeric), *logits]

    def _judged(self, u: Tensor, labels: Tensor) -> Tensor:
        """(n,)"""
        if self._classes is not None:
            u = torch.cat([u, F.one_hot(labels.long(), self._classes).to(u)], dim=1)
        return self.critic(u)[:, 0]


def _dense(widths: Sequence[int], between: nn.Module, rng: torch.Generator) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        parts += [linear(inputs, outputs, rng, gain=math.sqrt(2)), between]
    return nn.Sequential(*parts, linear(widths[-2], widths[-1], rng))
