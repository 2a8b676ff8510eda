"""Feature-space hijacking: gradients that drive a party's embeddings into a space that the label party can read."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.fact import Fact, Layers
from vflbench.messages.peer_facts import Auxiliary, OwnDecoder
from vflbench.options import NonNegativeInt, Rate, Ratio, Rows, ShareOrZero, Steps, Weight, Width, options
from vflbench.protocols.adversaries.earlier_embeddings import EarlierEmbeddings
from vflbench.protocols.adversaries.hijack_networks import Sizes, Space
from vflbench.protocols.adversary import LabelAdversary, Surroundings

_KEPT = 0.9  # share of the moving mean that a round leaves


@options
class Hijack(LabelAdversary):
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

    facts_made: ClassVar[frozenset[type[Fact]]] = frozenset({OwnDecoder})

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
            raise UserError("it needs rows of its own, and there are no test rows", key="adversary", value="hijack")
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
        sizes = Sizes(self.width, 64, self.lr, self.critic_lr, self.penalty)
        classes = there.classes if self.knows_labels else None
        return {
            party: Space(bottom(weights), there.layers[party], rows, party, classes, sizes, weights, there.rng)
            for party, bottom in there.bottoms.items()
        }

    def facts(self) -> Mapping[type[Fact], Fact]:
        """No decoder before the first gradient of its own."""
        return {OwnDecoder: OwnDecoder({party: space.way_back() for party, space in self._spaces.items()})}

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
