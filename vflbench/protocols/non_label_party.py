"""The non-label party: it owns features, sends embeddings and learns from the gradients that come back."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY, Features
from vflbench.defenses.base import Context
from vflbench.defenses.chain import Chain, Figures, Guards
from vflbench.messages.codec import Encoded
from vflbench.messages.fact import copied
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind, Message
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import Bottom, evaluating
from vflbench.models.optimizers.base import Optimizer
from vflbench.numerics.optim import backward
from vflbench.protocols.adversary import Adversary, own_stepper, usable_embedding, usable_tensor
from vflbench.protocols.parties import Lookup, Noise, Unlearned, attach, context_of, first_gradient, learned, relearn


class NonLabelParty:
    """Owns features, never sees a label.

    rows: looks its own columns up. adversary: how it cheats, if it does. activations, layer_gradients: name -> (n, d) of the
    last batch that it learned from while `watched` was set; they are what an attacker at this seat can compute by itself.
    """

    def __init__(
        self,
        name: str,
        rows: Lookup,
        bottom: Bottom,
        optimizer: Optimizer,
        defense: Callable[[], Chain],
        noise: Noise,
        adversary: Adversary | None = None,
    ):
        self.name, self.rows, self.bottom, self.noise = name, rows, bottom, noise
        self.layers, self.sends, self.cut_width = bottom.layers, bottom.sends, bottom.cut_width
        self.defenses = {layer: defense() for layer in bottom.sends}
        self.guards = Guards(self.defenses[bottom.cut].named)
        self.adversary = adversary
        self.optimizer = attach(optimizer, bottom) if adversary is None else own_stepper(adversary, bottom, optimizer)
        self.activations: dict[str, Tensor] = {}
        self._context: Context | None = None
        self._ahead: list[Unlearned] = []

    def embed(self, ids: Tensor, epoch: int = 0, *, watched: bool = False) -> Message:
        """The embedding of a training batch, after which `learn` is called. watched: keep gradients of every layer."""
        self._forward(self.look_up(ids, epoch), watched=watched)
        return self.message(ids)

    def look_up(self, ids: Tensor, epoch: int) -> Features:
        """Its columns of a training batch, of which it sends the embedding next; in another order where a defense arranges
        them."""
        order = self.guards.arrange(context_of(ids, None, epoch, self.noise.training))
        taken = ids if order is None else ids[order.to(ids.device)]
        columns = self.rows(taken)
        self._context = context_of(taken, columns, epoch, self.noise.training)
        return columns

    def _forward(self, columns: Features, *, watched: bool) -> None:
        self.activations = self.bottom(columns.numeric, columns.categorical)
        if watched:
            for values in self.activations.values():
                if values.requires_grad:
                    values.retain_grad()

    def message(self, ids: Tensor) -> Message:
        """What it sends of `activations`, which are those of the batch that it looked up last."""
        if self._context is None:
            raise RuntimeError("no batch was embedded")
        message = self._message(self.activations, self.defenses, self._context, ids)
        return message if self.adversary is None else self._cheat(self.adversary, message, self._context)

    def embed_ahead(self, ids: Tensor, epoch: int = 0) -> Message:
        """The embedding of a training batch before `learn` is called for those before it: `catch_up` and
        `learn` belong to each, in order. Its gradient goes back through the network as it is then.
        """
        draws = self._draws
        drawn = None if draws is None else draws.get_state()
        columns = self.rows(ids)
        with torch.no_grad():
            activations = self.bottom(columns.numeric, columns.categorical)
        self._ahead.append(Unlearned(ids, epoch, drawn))
        context = context_of(ids, columns, epoch, self.noise.training)
        return self._message(activations, self.defenses, context, ids)

    def oldest_ahead(self) -> tuple[Tensor, int] | None:
        """The rows, (n,) ids, and the epoch of the oldest batch that was embedded ahead; None if there is none."""
        return (self._ahead[0].ids, self._ahead[0].epoch) if self._ahead else None

    def catch_up(self, *, watched: bool = False) -> None:
        """Compute the oldest batch that was embedded ahead again, so that it can be learned from."""
        ahead, draws = self._ahead.pop(0), self._draws
        if draws is None or ahead.drawn is None:
            self._forward(self.look_up(ahead.ids, ahead.epoch), watched=watched)
            return
        now = draws.get_state()
        draws.set_state(ahead.drawn)  # the same dropout
        self._forward(self.look_up(ahead.ids, ahead.epoch), watched=watched)
        draws.set_state(now)

    @property
    def _draws(self) -> torch.Generator | None:
        """What a user's own module draws from while it trains."""
        return getattr(self.bottom, "rng", None)

    def learn(self, gradient: Message) -> tuple[str, ...]:
        """One optimiser step from the gradients of what was sent last. They pass straight through compression. Returns lines
        for the log.
        """
        taken = self.receive(gradient)
        if taken:
            backward([self.activations[layer] for layer in taken], list(taken.values()))
        return self.step()

    def receive(self, gradient: Message) -> dict[str, Tensor]:
        """Layer -> (n, d): what goes back through its network, of those layers that learn."""
        if self._context is None:
            raise RuntimeError(f"party {self.name} got a gradient before it sent an embedding")
        self.optimizer.zero_grad(set_to_none=True)
        layers = [layer for layer in self.bottom.sends if self.activations[layer].requires_grad]
        return {layer: self._learned_from(layer, gradient.tensors[layer], self._context) for layer in layers}

    def step(self) -> tuple[str, ...]:
        """Move the weights by their gradients, if its defenses let it. Returns lines for the log."""
        if self._context is None:
            raise RuntimeError(f"party {self.name} learns from a batch that it has not embedded")
        if not self.guards.named or self.guards.learns(first_gradient(self.bottom), self._context):
            self.optimizer.step()
        return tuple(f"party {self.name}: {note}" for note in self.guards.notes())

    @property
    def stopped(self) -> str:
        """Why it takes no further part in training; empty if it does."""
        return self.guards.stopped

    def _learned_from(self, layer: str, g: Tensor, context: Context) -> Tensor:
        h = self.activations[layer]
        if self.defenses[layer].named:
            g = self.defenses[layer].received(g.clone(), h.detach().clone(), context)
        if self.adversary is not None:
            cheated = self.adversary.gradient(layer, g.clone(), h.detach().clone(), context)
            g = usable_tensor(self.adversary, "gradient", cheated, g)
        return g.to(h.dtype)

    @property
    def layer_gradients(self) -> dict[str, Tensor]:
        return {layer: values.grad for layer, values in self.activations.items() if values.grad is not None}

    @torch.no_grad()
    def predict(self, ids: Tensor) -> Message:
        """The embedding of rows that are only predicted. Neither the network nor the defenses learn from it."""
        columns = self.rows(ids)
        context = context_of(ids, columns, 0, self.noise.predicting)
        with evaluating(self.bottom):
            activations = self.bottom(columns.numeric, columns.categorical)
        return self._message(activations, copy.deepcopy(self.defenses), context, ids)

    def _message(
        self, activations: Mapping[str, Tensor], defenses: Mapping[str, Chain], context: Context, ids: Tensor
    ) -> Message:
        plain = {layer: activations[layer].detach().float() for layer in defenses}
        sent = {layer: defenses[layer].embedding(h, context) for layer, h in plain.items()}
        return Message.of(self.name, LABEL_PARTY, Kind.EMBEDDING, ids, sent)

    def _cheat(self, adversary: Adversary, message: Message, context: Context) -> Message:
        honest: dict[str, Tensor | Encoded] = {**message.tensors, **message.encoded}
        sent = {layer: adversary.embedding(layer, copied(h), context) for layer, h in honest.items()}
        usable = {layer: usable_embedding(adversary, h, message.tensors[layer]) for layer, h in sent.items()}
        return Message.of(self.name, LABEL_PARTY, Kind.EMBEDDING, message.ids, usable)

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What its defenses claim of each layer that crosses. outputs: width of the linear part's."""
        widths = {layer: self.bottom.cut_width if layer == self.bottom.cut else outputs for layer in self.bottom.sends}
        return {layer: defense.claims(widths[layer]) for layer, defense in self.defenses.items()}

    def answerer(self) -> Callable[[Tensor, Tensor, torch.Generator], dict[str, Tensor]]:
        """A function: what this party, as it is now, would send for numeric (n, k) and categorical (n, c) features of any
        rows, with noise from the given generator. Calling it changes nothing.
        """
        bottom, defenses = self.bottom.frozen(), copy.deepcopy(self.defenses)

        def answer(numeric: Tensor, categorical: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
            with torch.no_grad():
                activations = bottom(numeric, categorical)
                ids = -1 - torch.arange(len(numeric))  # of no row, so that no row's own noise is told
                context = Context(ids, OwnColumns(numeric, categorical), 0, rng)
                return dict(self._message(activations, copy.deepcopy(defenses), context, context.ids).tensors)

        return answer

    @torch.no_grad()
    def own_layers(self, ids: Tensor) -> dict[str, Tensor]:
        """Layer -> activations (n, d) of its own rows, in its network as it is now. Calling it changes nothing."""
        columns = self.rows(ids)
        with evaluating(self.bottom):
            activations = self.bottom(columns.numeric, columns.categorical)
        return {layer: values.float() for layer, values in activations.items()}

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since the last call."""
        return [
            Figures(self.name, layer, str(Kind.EMBEDDING), defense.figures()) for layer, defense in self.defenses.items()
        ]

    def state(self) -> dict[str, Any]:
        """Its weights, its optimiser and its defenses. Generators are saved with all others."""
        defenses = {layer: defense.state() for layer, defense in self.defenses.items()}
        cheating = {} if self.adversary is None else {"adversary": self.adversary.state()}
        ahead = [[one.ids, one.epoch, one.drawn] for one in self._ahead]
        return {**learned(self.bottom, self.optimizer), "defenses": defenses, "ahead": ahead, **cheating}

    def restore(self, state: Mapping[str, Any]) -> None:
        relearn(self.bottom, self.optimizer, state)
        self._ahead = [
            Unlearned(ids.clone(), epoch, None if drawn is None else drawn.clone()) for ids, epoch, drawn in state["ahead"]
        ]
        for layer, defense in self.defenses.items():
            defense.restore(state["defenses"][layer])
        if self.adversary is not None:
            self.adversary.restore(state["adversary"])
