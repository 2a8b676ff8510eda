"""The two sides of the slot. Each owns a network, an optimiser and a chain of defenses, and shares none of them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.data.table import LABEL_PARTY, Features
from vflbench.defenses.base import Defense
from vflbench.models.base import WIDE, Bottom, Top
from vflbench.optimizers.base import Optimizer
from vflbench.wire import Kind, Message


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
        torch.autograd.backward(sent, [gradient.tensors[layer] for layer in self.bottom.sends])
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
        sent = {layer: defense.embedding(activations[layer].detach(), rng) for layer, defense in defenses.items()}
        return Message(self.name, LABEL_PARTY, Kind.EMBEDDING, ids, sent)


@dataclass(frozen=True)
class Response:
    """What the label party makes of one batch.

    messages: a gradient a party. loss: the classification loss, without `penalty`. activations: name -> (n, d) of its own.
    """

    messages: tuple[Message, ...]
    loss: float
    penalty: float
    activations: Mapping[str, Tensor]


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
        self.optimizer = optimizer.attach(torch.nn.ModuleList([top] if bottom is None else [top, bottom]))

    def respond(self, embeddings: Sequence[Message], own: Features | None, labels: Tensor) -> Response:
        """One optimiser step, and the gradients to send back.

            L = loss(logits, y) + penalty(embeddings, y);   g = dL / d embedding, defended

        embeddings: one message a non-label party, in the same order at each call. labels: (n,) classes.
        """
        ids = embeddings[0].ids
        received = [{layer: h.detach().requires_grad_() for layer, h in m.tensors.items()} for m in embeddings]
        y = self.defense.labels(labels, ids, self.noise.training)
        activations, logits = self._forward(received, own)
        loss = classification_loss(logits, y)
        penalty = torch.as_tensor(self.defense.penalty([_deep(tensors) for tensors in received], y))
        self.optimizer.zero_grad(set_to_none=True)
        (loss + penalty).backward()
        self.optimizer.step()
        messages = tuple(
            Message(
                LABEL_PARTY,
                message.sender,
                Kind.GRADIENT,
                ids,
                {layer: self._defended(h.grad, y, message.sender, layer) for layer, h in tensors.items()},
            )
            for message, tensors in zip(embeddings, received, strict=True)
        )
        return Response(messages, loss.item(), penalty.item(), {k: v.detach() for k, v in activations.items()})

    def _defended(self, gradient: Tensor, y: Tensor, party: str, layer: str) -> Tensor:
        slot = (party, layer)
        if slot not in self._gradient_defenses:
            self._gradient_defenses[slot] = self._new_defense()
        return self._gradient_defenses[slot].gradient(gradient, y, self.noise.training)

    @torch.no_grad()
    def predict(self, embeddings: Sequence[Message], own: Features | None) -> Tensor:
        """Logits (n, 1) for two classes, (n, K) for K > 2."""
        return self._forward([message.tensors for message in embeddings], own)[1]

    def _forward(self, received: Sequence[Mapping[str, Tensor]], own: Features | None) -> tuple[dict[str, Tensor], Tensor]:
        own_layers = {} if self.bottom is None else self.bottom(own.numeric, own.categorical)
        inputs = [*received, {layer: own_layers[layer] for layer in self.bottom.sends}] if own_layers else received
        wide = [tensors[WIDE] for tensors in inputs if WIDE in tensors]
        activations, logits = self.top([_deep(tensors) for tensors in inputs], wide)
        return {**own_layers, **activations}, logits


def _deep(tensors: Mapping[str, Tensor]) -> Tensor:
    """The embedding among what a party sends: everything but the linear part's logits."""
    return next(values for layer, values in tensors.items() if layer != WIDE)


def classification_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy in nats. logits (n, 1): logistic loss of class 1; (n, K): softmax. y: (n,) classes."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype))
    return F.cross_entropy(logits, y)
