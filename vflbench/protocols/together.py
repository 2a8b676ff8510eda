"""Parties of one process whose networks are alike, computed in one pass."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor

from vflbench.messages.message import Message
from vflbench.models.stacked import StackedPass, gives_same_bits, shape_of, stack_of
from vflbench.numerics.optim import backward
from vflbench.protocols.parties import NonLabelParty

Mode = Literal["auto", "always", "never"]

_MOST_PRODUCTS = 1 << 23
"""Multiplications of a layer of one party, up to which one pass is quicker: 512 rows of 128."""


class Together:
    """Has each party embed and learn, as the parties would one after the other; only the products of ReLU stacks of the same
    widths are computed in one pass. All else is done by each party for itself: looking up, its defenses, its optimiser.

    mode: `auto`, where that is quicker and gives the same numbers to the bit; `always`, of any size and even where the last
    bits differ; `never`. A party that cheats and a network that isn't one of vflbench's own are computed alone.
    """

    def __init__(self, parties: Sequence[NonLabelParty], mode: Mode):
        self.parties, self.mode = parties, mode
        self.groups = [] if mode == "never" else [_Group(members) for members in _alike(parties)]
        self._passing: list[_Group] = []

    def embed(self, ids: Tensor, epoch: int, *, watched: bool) -> list[Message]:
        """The embeddings of a training batch, one a party."""
        self._passing = [group for group in self.groups if self.mode == "always" or group.gains(len(ids))]
        for group in self._passing:
            group.forward(ids, epoch, watched=watched)
        computed = self._computed()
        return [
            party.message(ids) if party.name in computed else party.embed(ids, epoch, watched=watched)
            for party in self.parties
        ]

    def learn(self, gradients: Mapping[str, Message]) -> tuple[str, ...]:
        """One step of each party that gets a gradient. Returns lines for the log."""
        for group in self._passing:
            group.backward(gradients)
        computed, notes = self._computed(), list[str]()
        for party in self.parties:
            if party.name in gradients:
                notes += party.step() if party.name in computed else party.learn(gradients[party.name])
        return tuple(notes)

    def _computed(self) -> set[str]:
        return {party.name for group in self._passing for party in group.parties}


class _Group:
    """Parties with stacks of the same widths."""

    def __init__(self, parties: Sequence[NonLabelParty]):
        self.parties = parties
        self._stacks = [stack for party in parties if (stack := stack_of(party.bottom)) is not None]
        self._widest = max(width for _, width in shape_of(self._stacks[0]))
        self._tried: dict[int, bool] = {}

    def gains(self, rows: int) -> bool:
        """Whether one pass over so many rows is quicker, and changes no bit; the latter is tried once."""
        if not 0 < rows * self._widest**2 <= _MOST_PRODUCTS:
            return False
        if rows not in self._tried:
            self._tried[rows] = gives_same_bits(self._stacks, rows)
        return self._tried[rows]

    def forward(self, ids: Tensor, epoch: int, *, watched: bool) -> None:
        """Look up the rows of each party and compute its layers. watched: keep what each layer learns from."""
        self._watched = watched
        columns = [party.look_up(ids, epoch) for party in self.parties]
        read = [party.bottom.before_stack(c.numeric, c.categorical) for party, c in zip(self.parties, columns, strict=True)]
        self._inputs = [x for x, _ in read]
        self._pass = StackedPass(self._stacks, self._inputs, keep=watched)
        for k, (party, (_, beside)) in enumerate(zip(self.parties, read, strict=True)):
            layers = {name: h[k].clone() if watched else h[k].detach() for name, h in self._pass.activations.items()}
            party.activations = {**{name: h.requires_grad_() for name, h in layers.items()}, **beside}
            for values in beside.values() if watched else ():
                values.retain_grad()

    def backward(self, gradients: Mapping[str, Message]) -> None:
        """Leave each party's gradients by its weights in them. gradients: of the parties that get one."""
        taken = [party.receive(gradients[party.name]) if party.name in gradients else {} for party in self.parties]
        at_cut = [layers.pop(party.bottom.cut, None) for party, layers in zip(self.parties, taken, strict=True)]
        by_inputs = self._pass.backward(at_cut)
        roots = [(x, g) for x, g in zip(self._inputs, by_inputs, strict=True) if g is not None]
        roots += [
            (p.activations[layer], g) for p, layers in zip(self.parties, taken, strict=True) for layer, g in layers.items()
        ]
        if roots:
            backward([values for values, _ in roots], [g for _, g in roots])
        for k, party in enumerate(self.parties):
            if self._watched and at_cut[k] is not None:
                for name, g in self._pass.gradients.items():
                    party.activations[name].grad = g[k].clone()


def _alike(parties: Sequence[NonLabelParty]) -> list[list[NonLabelParty]]:
    """Groups of two or more parties that can be computed in one pass."""
    alike: dict[tuple[object, ...], list[NonLabelParty]] = defaultdict(list)
    weights = [id(p) for party in parties for p in party.bottom.parameters()]
    shared = {one for one in weights if weights.count(one) > 1} if len(set(weights)) < len(weights) else set()
    for party in parties:
        usual = type(party) is NonLabelParty and party.adversary is None and _is_own(party.optimizer)
        stack = stack_of(party.bottom) if usual else None
        if stack is not None and not any(id(p) in shared for p in party.bottom.parameters()):
            alike[shape_of(stack)].append(party)
    return [members for members in alike.values() if len(members) > 1]


def _is_own(optimizer: object) -> bool:
    return type(optimizer).__module__.partition(".")[0] == __package__.partition(".")[0]
