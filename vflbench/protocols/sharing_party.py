"""A party of shared embeddings: it gets the embeddings of the others and a top, and computes its gradient at home."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vflbench.data.table import LABEL_PARTY
from vflbench.messages.fact import Layers
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind, Message
from vflbench.models.base import WIDE, TopModel, frozen_copy
from vflbench.protocols.parties import NonLabelParty, classification_loss


class SharingParty(NonLabelParty):
    """Owns features, holds the labels of the rows, and learns from a gradient that nobody sends.

    top: its copy of the server model, which each round brings up to date. Of the last batch, before the first local step:
    received, party -> what it sent; embedded, layer -> (n, d); logits, (n, outputs).
    """

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self.top: TopModel | None = None
        self.received: dict[str, Message] = {}
        self.embedded: dict[str, Tensor] = {}
        self.logits: Tensor | None = None

    def place(self, top: TopModel, rng: torch.Generator) -> None:
        """Give it a top of the form of the server's. rng: what a top of a user's own draws from, such as for dropout."""
        draws = getattr(top, "rng", None)
        self.top = copy.deepcopy(top, {} if draws is None else {id(draws): rng}).requires_grad_(False)

    def take(self, model: Message) -> None:
        """Bring its top up to date. model: one flat tensor for each parameter and buffer."""
        if self.top is None:
            raise RuntimeError(f"party {self.name} got a model before it has a top")
        kept = self.top.state_dict()
        self.top.load_state_dict({**kept, **{name: v.view_as(kept[name]) for name, v in model.tensors.items()}})

    def work(self, received: Mapping[str, Message], order: Sequence[str], y: Tensor, steps: int) -> None:
        """So many local steps on the batch that it embedded last.

            theta_m <- theta_m - step(d loss(top(h_1, .., h_m(theta_m), .., h_M), y) / d theta_m)

        The others' embeddings and the top stay as they were sent; its own is the present one, not compressed. received:
        party -> its message. order: of all parties, in which the top takes them. y: (n,) classes.
        """
        self.received = dict(received)
        self.embedded = {layer: h.detach().float() for layer, h in self.activations.items()}
        sent = {name: message.corrected for name, message in received.items()}
        for step in range(steps):
            if step:
                self._embed_again()
            own = {layer: self.activations[layer].detach().float().requires_grad_() for layer in self.bottom.sends}
            logits = self._logits([own if name == self.name else sent[name] for name in order])
            if step == 0:
                self.logits = logits.detach()
            found = torch.autograd.grad(classification_loss(logits, y), list(own.values()), allow_unused=True)
            gradients = {
                layer: torch.zeros_like(h) if g is None else g for (layer, h), g in zip(own.items(), found, strict=True)
            }
            self.learn(Message(self.name, self.name, Kind.GRADIENT, self._ids, gradients))

    @property
    def _ids(self) -> Tensor:
        if self._context is None:
            raise RuntimeError(f"party {self.name} works on a batch before it has embedded one")
        return self._context.ids

    def _embed_again(self) -> None:
        """The same rows in its network as it is now."""
        columns = self.rows(self._ids)
        self.activations = self.bottom(columns.numeric, columns.categorical)

    def _logits(self, inputs: Sequence[Layers]) -> Tensor:
        if self.top is None:
            raise RuntimeError(f"party {self.name} has no top")
        return logits_of(self.top, inputs)


class SentTop(nn.Module):
    """A party's own network and the top that it was sent, as they stand. order: of all parties, as the top takes them."""

    def __init__(self, party: SharingParty, order: Sequence[str]):
        super().__init__()
        if party.top is None:
            raise RuntimeError(f"party {party.name} has no top")
        self._name, self._order = party.name, tuple(order)
        self._bottom, self._top = party.bottom.frozen().eval(), frozen_copy(party.top, "the top").eval()

    def forward(self, embeddings: Mapping[str, Layers], columns: OwnColumns) -> Tensor:
        """(n, outputs) logits. embeddings: of each other party. columns: the party's own."""
        layers = self._bottom(columns.numeric, columns.categorical)
        own = {layer: layers[layer] for layer in self._bottom.sends}
        return logits_of(self._top, [own if name == self._name else embeddings[name] for name in self._order])


def logits_of(top: TopModel, inputs: Sequence[Layers]) -> Tensor:
    """(n, outputs) float32. inputs: what each party sends, layer -> (n, d), in the order in which the top takes them."""
    wide = [tensors[WIDE] for tensors in inputs if WIDE in tensors]
    deep = [next(h for layer, h in tensors.items() if layer != WIDE) for tensors in inputs]
    logits: Tensor = top(deep, wide)[1]
    return logits.float()


def model_message(top: TopModel) -> Message:
    """The server model as it stands, one flat tensor for each parameter and buffer, to be addressed."""
    tensors = {name: v.detach().clone().flatten() for name, v in top.state_dict().items() if isinstance(v, Tensor)}
    return Message(LABEL_PARTY, LABEL_PARTY, Kind.MODEL, torch.empty(0, dtype=torch.int64), tensors)
