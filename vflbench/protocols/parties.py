"""The two sides of the slot. Each owns a network, an optimiser and a chain of defenses, and shares none of them."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F

from vflbench.data.table import LABEL_PARTY, Features
from vflbench.defenses.base import Defense, Figures, WithheldError
from vflbench.messages.codec import Encoded
from vflbench.messages.wire import Kind, Message
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import WIDE, Bottom, Top
from vflbench.models.optimizers.base import Optimizer


@dataclass(frozen=True)
class Noise:
    """A party's generators: what its defense draws from while training, and while predicting.

    They are two so that predicting more or less often never changes what training draws.
    """

    training: torch.Generator
    predicting: torch.Generator


class NonLabelParty:
    """Owns features, never sees a label.

    activations, layer_gradients: name -> (n, d) of the last batch it learned from while `watched` was set; they are what an
    attacker at this seat can work out without help.
    """

    def __init__(self, name: str, bottom: Bottom, optimizer: Optimizer, defense: Callable[[], Defense], noise: Noise):
        self.name = name
        self.bottom = bottom
        self.defenses = {layer: defense() for layer in bottom.sends}
        self.noise = noise
        self.optimizer = optimizer.attach(bottom)
        self.activations: dict[str, Tensor] = {}

    def embed(self, features: Features, ids: Tensor, *, watched: bool = False) -> Message:
        """The embedding of a training batch, which `learn` expects an answer to. watched: keep gradients of every layer."""
        self.activations = self.bottom(features.numeric, features.categorical)
        if watched:
            for values in self.activations.values():
                values.retain_grad()
        return self._message(self.activations, ids, self.defenses, self.noise.training)

    def learn(self, gradient: Message) -> None:
        """One optimiser step from the gradients of what was sent last; a compressed embedding counts as the identity."""
        self.optimizer.zero_grad(set_to_none=True)
        sent = [self.activations[layer] for layer in self.bottom.sends]
        torch.autograd.backward(sent, [gradient.tensors[h].to(self.activations[h].dtype) for h in self.bottom.sends])
        self.optimizer.step()

    @property
    def layer_gradients(self) -> dict[str, Tensor]:
        return {layer: values.grad for layer, values in self.activations.items() if values.grad is not None}

    @torch.no_grad()
    def predict(self, features: Features, ids: Tensor) -> Message:
        """The embedding of rows to be scored; nothing is learned from it, by the defense neither."""
        activations = self.bottom(features.numeric, features.categorical)
        return self._message(activations, ids, copy.deepcopy(self.defenses), self.noise.predicting)

    def _message(
        self, activations: Mapping[str, Tensor], ids: Tensor, defenses: Mapping[str, Defense], rng: torch.Generator
    ) -> Message:
        sent = {layer: defense.embedding(activations[layer].detach().float(), rng) for layer, defense in defenses.items()}
        encoded = {layer: values for layer, values in sent.items() if isinstance(values, Encoded)}
        read = {layer: encoded[layer].values if layer in encoded else values for layer, values in sent.items()}
        return Message(self.name, LABEL_PARTY, Kind.EMBEDDING, ids, read, encoded)

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What its defenses claim of each layer that crosses. outputs: width of the linear part's."""
        widths = {layer: self.bottom.cut_width if layer == self.bottom.cut else outputs for layer in self.bottom.sends}
        return {layer: defense.claims(widths[layer]) for layer, defense in self.defenses.items()}

    def answerer(self) -> Callable[[Tensor, Tensor, torch.Generator], dict[str, Tensor]]:
        """What tells, of numeric (n, k) and categorical (n, c) features of any rows, what this party would send as it stands
        now, with noise from that generator; asking changes nothing.
        """
        bottom, defenses = self.bottom.frozen(), copy.deepcopy(self.defenses)

        def answer(numeric: Tensor, categorical: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
            with torch.no_grad():
                activations = bottom(numeric, categorical)
                message = self._message(activations, torch.arange(len(numeric)), copy.deepcopy(defenses), rng)
                return dict(message.tensors)

        return answer

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since they were last asked."""
        return [
            Figures(self.name, layer, str(Kind.EMBEDDING), defense.figures()) for layer, defense in self.defenses.items()
        ]

    def state(self) -> dict[str, Any]:
        """What training has made of it. Its generators are saved with all others."""
        defenses = {layer: defense.state() for layer, defense in self.defenses.items()}
        return {**_learned(self.bottom, self.optimizer), "defenses": defenses}

    def restore(self, state: Mapping[str, Any]) -> None:
        _relearn(self.bottom, self.optimizer, state)
        for layer, defense in self.defenses.items():
            defense.restore(state["defenses"][layer])


@dataclass(frozen=True)
class Response:
    """What the label party makes of one batch.

    messages: a gradient a party, None where a defense withheld it. loss: the classification loss, without `penalty`.
    labels: (n,) it trained on. activations: name -> (n, d) of its own. notes: why something was withheld.
    """

    messages: tuple[Message | None, ...]
    loss: float
    penalty: float
    labels: Tensor
    activations: Mapping[str, Tensor]
    notes: tuple[str, ...]


class LabelParty:
    """Owns the labels, the top model and, where the dataset says so, features with a bottom of its own."""

    def __init__(
        self,
        top: Top,
        bottom: Bottom | None,
        optimizer: Optimizer,
        defense: Callable[[], Defense],
        noise: Noise,
    ):
        self.top = top
        self.bottom = bottom
        self.defense = defense()
        self._new_defense = defense
        self._gradient_defenses: dict[tuple[str, str], Defense] = {}
        self.noise = noise
        self.network = torch.nn.ModuleList([top] if bottom is None else [top, bottom])
        self.optimizer = optimizer.attach(self.network)

    def respond(self, embeddings: Sequence[Message], own: Features | None, labels: Tensor) -> Response:
        """One optimiser step, and the gradients to send back.

            L = loss(logits, y) + penalty(embeddings, y);   g = dL / d embedding, defended

        embeddings: one message a non-label party, in the same order at each call. labels: (n,) classes.
        """
        ids = embeddings[0].ids
        received = [{layer: h.detach().requires_grad_() for layer, h in m.corrected.items()} for m in embeddings]
        activations, logits = self._forward(received, own)
        y = self.defense.labels(labels, ids, logits.detach(), self.noise.training)
        loss = self.defense.loss(logits, y)
        if loss is None:
            loss = classification_loss(logits, y)
        penalty = torch.as_tensor(
            self.defense.penalty([torch.cat(list(tensors.values()), dim=1) for tensors in received], y)
        )
        self.optimizer.zero_grad(set_to_none=True)
        (loss + penalty).backward()
        self.optimizer.step()
        messages, notes = [], []
        for message, tensors in zip(embeddings, received, strict=True):
            gradients = {layer: h.grad for layer, h in tensors.items()}
            try:
                defended = self._defended(gradients, y, message.sender)
                messages.append(Message(LABEL_PARTY, message.sender, Kind.GRADIENT, ids, defended))
            except WithheldError as reason:
                messages.append(None)
                notes.append(f"no gradient is sent to party {message.sender}: {reason}")
        own_layers = {name: values.detach() for name, values in activations.items()}
        return Response(tuple(messages), loss.item(), penalty.item(), y, own_layers, tuple(notes))

    def _defended(self, gradients: Mapping[str, Tensor], y: Tensor, party: str) -> dict[str, Tensor]:
        rng = self.noise.training
        return {layer: self._gradient_defense(party, layer).gradient(g, y, rng) for layer, g in gradients.items()}

    def _gradient_defense(self, party: str, layer: str) -> Defense:
        slot = (party, layer)
        if slot not in self._gradient_defenses:
            self._gradient_defenses[slot] = self._new_defense()
        return self._gradient_defenses[slot]

    @torch.no_grad()
    def predict(self, embeddings: Sequence[Message], own: Features | None) -> Tensor:
        """Logits (n, 1) for two classes, (n, K) for K > 2."""
        return self._forward([message.corrected for message in embeddings], own)[1]

    def _forward(self, received: Sequence[Mapping[str, Tensor]], own: Features | None) -> tuple[dict[str, Tensor], Tensor]:
        own_layers = {} if self.bottom is None else self.bottom(own.numeric, own.categorical)
        inputs = [*received, {layer: own_layers[layer] for layer in self.bottom.sends}] if own_layers else received
        wide = [tensors[WIDE] for tensors in inputs if WIDE in tensors]
        activations, logits = self.top([_deep(tensors) for tensors in inputs], wide)
        return {**own_layers, **activations}, logits.float()

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since they were last asked."""
        at_slots = [Figures(*slot, str(Kind.GRADIENT), own.figures()) for slot, own in self._gradient_defenses.items()]
        return [Figures(LABEL_PARTY, "", "", self.defense.figures()), *at_slots]

    def state(self) -> dict[str, Any]:
        """What training has made of it. Its generators are saved with all others."""
        slots = [[party, layer, defense.state()] for (party, layer), defense in self._gradient_defenses.items()]
        return {**_learned(self.network, self.optimizer), "defense": self.defense.state(), "gradient_defenses": slots}

    def restore(self, state: Mapping[str, Any]) -> None:
        _relearn(self.network, self.optimizer, state)
        self.defense.restore(state["defense"])
        for party, layer, own in state["gradient_defenses"]:
            self._gradient_defense(party, layer).restore(own)


def _learned(network: nn.Module, optimizer: optim.Optimizer) -> dict[str, Any]:
    return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}


def _relearn(network: nn.Module, optimizer: optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Weights are copied in place; of the optimiser's tensors, which torch takes over as they come, copies are kept."""
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    given = set(_memories(state["optimizer"]))
    for own in optimizer.state.values():
        for name, value in own.items():
            if isinstance(value, Tensor) and given.intersection(_memories(value)):
                own[name] = value.clone()


def _memories(value: Any) -> Iterator[int]:
    """Where the tensors in nested dicts and lists have their numbers."""
    if isinstance(value, Tensor):
        yield value.untyped_storage().data_ptr()
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _memories(part)


def _deep(tensors: Mapping[str, Tensor]) -> Tensor:
    """The embedding among what a party sends: everything but the linear part's logits."""
    return next(values for layer, values in tensors.items() if layer != WIDE)


def classification_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy in nats. logits (n, 1): logistic loss of class 1; (n, K): softmax. y: (n,) classes."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype))
    return F.cross_entropy(logits, y)
