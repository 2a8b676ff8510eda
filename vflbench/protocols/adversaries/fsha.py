"""Feature-space hijacking (FSHA): gradients that drive a party's embeddings into a space that the label party can read."""

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, Fact, Layers, PeerDecoder, PeerDecoders
from vflbench.models.base import linear
from vflbench.models.optimizers import load_state
from vflbench.numerics.optim import AdamSteps
from vflbench.options import NonNegativeInt, Rate, Ratio, Rows, ShareOrZero, Steps, Weight, Width, options
from vflbench.protocols.adversaries import LabelAdversary, Surroundings

_LEAST = 8  # rows met before


class EarlierEmbeddings:
    """The last embedding that came for each row, from batches in their own order. tables: party -> (rows, d) float32, the
    row of an id at its place; NaN where none has come.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Tensor] = {}

    def out_of_place(self, ids: Tensor, received: Mapping[str, Layers]) -> bool:
        """Whether a batch is of its rows in another order: of most rows met before, the nearest of the earlier embeddings of
        this batch is another row's. A batch in its own order is remembered. ids: (n,). received: party -> layer -> (n, d).
        """
        ids, vectors = ids.cpu(), {party: _joined(layers) for party, layers in received.items()}
        strange = any(self._strange(party, ids, h) for party, h in vectors.items())
        if not strange:
            for party, h in vectors.items():
                self._with_room(party, int(ids.max()) + 1, h.shape[1])[ids] = h
        return strange

    def _with_room(self, party: str, rows: int, width: int) -> Tensor:
        """The party's table of at least so many rows."""
        table = self.tables.get(party, torch.empty(0, width))
        if len(table) < rows:
            table = torch.cat([table, torch.full((rows - len(table), width), torch.nan)])
        self.tables[party] = table
        return table

    def _strange(self, party: str, ids: Tensor, h: Tensor) -> bool:
        earlier = self._with_room(party, int(ids.max()) + 1, h.shape[1])[ids]
        known = ~earlier.isnan().any(dim=1)
        if int(known.sum()) < _LEAST:
            return False
        nearest = torch.cdist(h[known].double(), earlier[known].double()).argmin(dim=1)
        agrees = nearest == torch.arange(len(nearest))
        return bool(agrees.double().mean() < 0.5)


def _joined(layers: Layers) -> Tensor:
    return torch.cat([h.detach().float().cpu() for h in layers.values()], dim=1)


_BETAS = (0.5, 0.9)  # of the critic's Adam, as in Gulrajani et al., "Improved training of Wasserstein GANs", 2017
_SLOPE = 0.2  # of the critic below 0
_BATCH = 64  # auxiliary rows of a step


class Space:
    """The space into which one party's embeddings are driven, and the way back from it.

        u = z / s,   s the spread of the pilot's embeddings, one number a layer
        pilot f~, decoder q:   min |q(u(x')) - x'|^2 + cross-entropy of categories
        critic D:              min mean D(u(x'), y') - mean D(u, y) + penalty (|dD / du| - 1)^2 between the two

    x', y': auxiliary rows and their classes. The classes are left out of D unless `how.knows_labels`. how: options. weights:
    what the first weights are drawn from; all else comes from the generator of the surroundings.
    """

    def __init__(self, party: str, there: Surroundings, rows: Auxiliary, how: "Fsha", weights: torch.Generator):
        self.pilot, self.layers = there.bottoms[party](weights), there.layers[party]
        self._columns = columns = rows.columns[party]
        self._classes = classes = there.classes if how.knows_labels else None
        self._labels, self._how, self._rng = rows.labels, how, there.rng
        with torch.no_grad():
            sent = self.pilot(columns.numeric[:1], columns.categorical[:1])
        self._widths = [sent[layer].shape[1] for layer in self.layers]
        distinct = [column.unique(return_inverse=True) for column in columns.categorical.T]
        self._ids, self._places = tuple(values for values, _ in distinct), [places for _, places in distinct]
        d, outputs = sum(self._widths), columns.numeric.shape[1] + sum(map(len, self._ids))
        device, width = columns.numeric.device, how.width
        self.decoder = _dense([d, width, outputs], nn.ReLU(), weights).to(device)
        self.critic = _dense([d + (classes or 0), width, width, 1], nn.LeakyReLU(_SLOPE), weights).to(device)
        self.scale = torch.ones(d, device=device)
        self._learner = AdamSteps([*self.pilot.parameters(), *self.decoder.parameters()], lr=how.lr)
        self._judge = AdamSteps(self.critic.parameters(), lr=how.critic_lr, betas=_BETAS)

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
            loss = loss + self._how.penalty * (steepness - 1).square().mean()
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
        return {name: one.state_dict() for name, one in self._learning.items()} | {"scale": self.scale}

    def restore(self, state: dict[str, Any]) -> None:
        """state: copies, which this keeps."""
        for name, one in self._learning.items():
            load = one.load_state_dict if isinstance(one, nn.Module) else partial(load_state, one)
            load(state[name])
        self.scale = state["scale"].clone()

    @property
    def _learning(self) -> dict[str, Any]:
        networks = {"pilot": self.pilot, "decoder": self.decoder, "critic": self.critic}
        return {**networks, "learner": self._learner, "judge": self._judge}

    def _draw(self, count: int = _BATCH) -> Tensor:
        """Places of auxiliary rows."""
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


_KEPT = 0.9  # share of the moving mean that a round leaves


@options
class Fsha(LabelAdversary):
    """Send, in place of gradients of the loss, those of a critic that drive each other party's embeddings into a space that
    its decoder reads (FSHA).

        g_i = (1 / n) dD(z_i) / dz_i,   D: high for received embeddings, low for those of its own pilot network f~
        f~, q:  q(f~(x')) = x' on auxiliary rows,   attack:  x_i = q(z_i)

    D is a Wasserstein critic with a gradient penalty. Each other party has a pilot, a decoder and a critic of its own, for
    all layers that it sends, side by side. f~ has the architecture that the parties agreed on, and weights of its own; the
    published one has linear convolutions. It is trained before the first such gradient, and is then not changed, unless
    `pilot_steps` is above 0. The published attack takes one step in each round and learns everything from the first round
    on, at rates of 1e-5 (f~, q and the party) and 1e-4 (D), for 10,000 rounds of 64 rows. This one is made for hundreds of
    rounds. The other party learns with the optimizer that was agreed on, whatever gradient it gets.

    The label party's own networks go on learning from what arrives, unless `trains` is false. So the test AUC shows what the
    attack costs. Its defenses don't apply to these gradients, which cross as plain numbers. They do apply to the honest part
    that `honest_share` mixes in, and to its labels and loss.

    auxiliary: rows that it has of its own. start: rounds of the run that are honest first. honest_share: w of the honest
    gradient h in w h + (1 - w) g |h| / |g|, lengths over the batch; 0 is g alone. knows_labels: D is also given the classes
    of the rows that it compares, which is ours: the gradient then follows from labels, as an honest one does.
    evades: a batch is answered honestly if its honest gradients are more than this many times as long as their moving mean,
    as those of `split_guard`'s fake batches are; null: never. This is ours. looks_back: a batch is also answered honestly if
    its embeddings do not belong to its rows: for most rows that occurred before, the nearest of the batch's earlier
    embeddings belongs to another row. This is ours as well. It needs no gradient and no trained top, but a second epoch, and
    4 bytes for each number of an embedding of each row of the data.
    warm_up: steps of f~ and q before the first gradient. pilot_steps, critic_steps: steps in each round. penalty: weight of
    the penalty on D's slopes, published as 500 with unnormalised embeddings; here embeddings are divided by their spread.
    lr, critic_lr: learning rates of Adam, for f~ and q, and for D.

    Source: Pasquini, Ateniese and Bernaschi, "Unleashing the tiger: inference attacks on split learning", CCS 2021, arXiv
    2012.02670; losses and rates also after the authors' public code.
    """

    facts_made: ClassVar[frozenset[type[Fact]]] = frozenset({PeerDecoders})

    auxiliary: Rows = 1000
    start: NonNegativeInt = 0
    honest_share: ShareOrZero = 0.0
    knows_labels: bool = False
    evades: Ratio | None = None
    looks_back: bool = False
    trains: bool = True
    warm_up: Steps = 500
    pilot_steps: NonNegativeInt = 0
    critic_steps: Steps = 2
    width: Width = 256
    lr: Rate = 1e-3
    critic_lr: Rate = 1e-3
    penalty: Weight = 10.0

    def __post_init__(self) -> None:
        self._begun: tuple[Surroundings, Auxiliary] | None = None
        self._spaces: dict[str, Space] = {}
        self._rounds = 0
        self._usual: float | None = None  # length of honest gradients
        self._earlier = EarlierEmbeddings()
        self._out_of_place = False

    @property
    def trains_top(self) -> bool:
        return self.trains

    @property
    def reads_labels(self) -> bool:
        return self.knows_labels

    def begin(self, surroundings: Surroundings) -> None:
        rows = surroundings.auxiliary(self.auxiliary)  # here: a run that goes on then gets the same
        if not len(rows.labels):
            raise UserError("it needs rows of its own, and there are no test rows", key="adversary", value="fsha")
        self._begun = surroundings, rows

    def meets(self, ids: Tensor, received: Mapping[str, Layers]) -> None:
        self._out_of_place = self.looks_back and self._earlier.out_of_place(ids, received)

    def answer(self, received: Mapping[str, Layers], honest: Mapping[str, Layers], labels: Tensor) -> Mapping[str, Layers]:
        self._rounds += 1
        if self._rounds <= self.start:
            return honest
        if not self._spaces:
            self._spaces = self._new_spaces()
            for space in self._spaces.values():
                space.train_pilot(self.warm_up)
                space.settle()
        if self._out_of_place or self._is_suspicious(honest):
            return honest
        answers: dict[str, Layers] = {}
        for party, space in self._spaces.items():
            space.train_pilot(self.pilot_steps)
            space.train_critic(received[party], labels, self.critic_steps)
            answers[party] = self._mixed(space.pull(received[party], labels), honest[party])
        return answers

    def _is_suspicious(self, honest: Mapping[str, Layers]) -> bool:
        """Whether this batch's honest gradients are unusually long; such a batch doesn't count for what is usual."""
        if self.evades is None:
            return False
        length = float(torch.cat([g.flatten() for layers in honest.values() for g in layers.values()]).norm())
        is_long = self._usual is not None and length > self.evades * self._usual
        if not is_long:
            self._usual = length if self._usual is None else _KEPT * self._usual + (1 - _KEPT) * length
        return is_long

    def _mixed(self, pull: Layers, honest: Layers) -> Layers:
        if not self.honest_share:
            return pull
        lengths = [torch.cat([g.flatten() for g in part.values()]).norm() for part in (honest, pull)]
        weight = (1 - self.honest_share) * lengths[0] / lengths[1].clamp_min(1e-30)
        return {layer: self.honest_share * honest[layer] + weight * g for layer, g in pull.items()}

    def _new_spaces(self, *, draws: bool = True) -> dict[str, Space]:
        """draws: first weights; otherwise they are to be restored, and no generator moves."""
        if self._begun is None:
            raise RuntimeError("the adversary was not begun")
        there, rows = self._begun
        seed = int(torch.randint(2**62, (), generator=there.rng, device=there.rng.device)) if draws else 0
        weights = torch.Generator().manual_seed(seed)
        return {party: Space(party, there, rows, self, weights) for party in there.bottoms}

    def facts(self) -> Mapping[type[Fact], Fact]:
        """No decoder before the first gradient of its own."""
        return {PeerDecoders: PeerDecoders({party: space.way_back() for party, space in self._spaces.items()})}

    def state(self) -> dict[str, Any]:
        return {
            "rounds": self._rounds,
            "usual": self._usual,
            "earlier": dict(self._earlier.tables),
            "spaces": {party: space.state() for party, space in self._spaces.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        state = copy.deepcopy(state)
        self._rounds, self._usual = state["rounds"], state["usual"]
        self._earlier.tables = state["earlier"]
        if state["spaces"] and not self._spaces:
            self._spaces = self._new_spaces(draws=False)
        for party, space in self._spaces.items():
            space.restore(state["spaces"][party])
