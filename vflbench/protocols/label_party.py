"""The label party: it owns the labels and the top model, and answers embeddings with gradients."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.data.table import LABEL_PARTY, Features
from vflbench.defenses.base import WithheldError
from vflbench.defenses.chain import Chain, Figures
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind, Message
from vflbench.models.base import WIDE, Bottom, TopModel, evaluating
from vflbench.models.optimizers.base import Optimizer
from vflbench.numerics.system import in_full_precision
from vflbench.protocols.label_adversary import LabelAdversary, usable_gradients
from vflbench.protocols.parties import Lookup, Noise, attach, context_of, learned, relearn, single


@dataclass(frozen=True)
class Response:
    """The label party's answer to one batch.

    messages: a gradient a party, None where a defense withheld it. loss: the classification loss, without `penalty`.
    labels: (n,) classes that it trained on. logits: of the batch, before the step. activations: layer -> (n, d), of its own
    networks. notes: why something was withheld.
    """

    messages: tuple[Message | None, ...]
    loss: float
    penalty: float
    labels: Tensor
    logits: Tensor
    activations: Mapping[str, Tensor]
    notes: tuple[str, ...]


class LabelNetworks(nn.Module):
    """The networks of the label party: its top, a bottom where it has features, and what stands before the top.

    forward(received, columns): what each non-label party sent, layer -> (n, d) each, and its own columns. Returns its
    activations, layer -> (n, width), and the logits.
    """

    def __init__(self, top: TopModel, bottom: Bottom | None, entrance: nn.Module | None):
        super().__init__()
        self.top, self.bottom, self.entrance = top, bottom, entrance

    def forward(
        self, received: Sequence[Mapping[str, Tensor]], columns: Features | OwnColumns | None
    ) -> tuple[dict[str, Tensor], Tensor]:
        own_layers, inputs = {}, list(received)
        if self.bottom is not None and columns is not None:
            own_layers = {layer: single(h) for layer, h in self.bottom(columns.numeric, columns.categorical).items()}
            inputs.append({layer: own_layers[layer] for layer in self.bottom.sends})
        wide = [tensors[WIDE] for tensors in inputs if WIDE in tensors]
        deep = [next(h for layer, h in tensors.items() if layer != WIDE) for tensors in inputs]
        if self.entrance is not None:
            deep[: len(received)] = self.entrance(deep[: len(received)])
        activations, logits = self.top(deep, wide)
        return {**own_layers, **activations}, logits.float()


class LabelParty:
    """Owns the labels, the top model and, where the dataset says so, features with a bottom of its own.

    labels: row ids (n,) -> (n,) classes. rows: looks its own columns up; None where it has none. own_defense: of
    labels, loss and penalty; a new one if left out. entrance: the network that this one puts before the top. adversary: how
    it cheats, if it does.
    """

    def __init__(
        self,
        labels: Callable[[Tensor], Tensor],
        rows: Lookup | None,
        top: TopModel,
        bottom: Bottom | None,
        optimizer: Optimizer,
        defense: Callable[[], Chain],
        noise: Noise,
        own_defense: Chain | None = None,
        entrance: nn.Module | None = None,
        adversary: LabelAdversary | None = None,
    ):
        self.labels, self.rows, self.top, self.bottom = labels, rows, top, bottom
        self.entrance = entrance
        self.layers: tuple[str, ...] = (*(() if bottom is None else bottom.layers), *getattr(top, "layers", ()))
        self.defense = defense() if own_defense is None else own_defense
        self._gradient_defenses: dict[tuple[str, str], Chain] = defaultdict(defense)  # by party and layer
        self.noise, self.adversary = noise, adversary
        self.network = LabelNetworks(top, bottom, entrance)
        self.optimizer = attach(optimizer, self.network)

    def respond(self, embeddings: Sequence[Message], epoch: int = 0) -> Response:
        """One optimiser step, and the gradients to send back.

            L = loss(logits, y) + penalty(embeddings, y);   g = dL / d embedding, defended

        embeddings: one message a non-label party, in the same order at each call.
        """
        ids = embeddings[0].ids
        columns = None if self.rows is None else self.rows(ids)
        context = context_of(ids, columns, epoch, self.noise.training)
        received = [{layer: h.detach().requires_grad_() for layer, h in m.corrected.items()} for m in embeddings]
        activations, logits = self.network(received, columns)
        y = self.defense.labels(self.labels(ids), logits.detach(), context)
        loss = self.defense.loss(logits, y)
        if loss is None:
            loss = classification_loss(logits, y)
        whole = [torch.cat(list(tensors.values()), dim=1) for tensors in received] if self.defense.named else []
        penalty = torch.as_tensor(self.defense.penalty(whole, y))
        self.optimizer.zero_grad(set_to_none=True)
        with in_full_precision():  # a penalty of a defense has products of its own
            (loss + penalty).backward()
        if self.adversary is None or self.adversary.trains_top:
            self.optimizer.step()
        messages: list[Message | None] = []
        notes: list[str] = []
        for message, tensors in zip(embeddings, received, strict=True):
            gradients = {layer: torch.zeros_like(h) if h.grad is None else h.grad for layer, h in tensors.items()}
            try:
                defenses = {layer: self._gradient_defenses[message.sender, layer] for layer in gradients}
                defended = {layer: defenses[layer].gradient(g, y, context) for layer, g in gradients.items()}
                messages.append(Message.of(LABEL_PARTY, message.sender, Kind.GRADIENT, ids, defended))
            except WithheldError as reason:
                messages.append(None)
                notes.append(f"no gradient is sent to party {message.sender}: {reason}")
        if self.adversary is not None:
            messages = self._cheat(self.adversary, received, embeddings, messages, y)
        own_layers = {name: values.detach() for name, values in activations.items()}
        predicted = self.defense.prediction(logits.detach())
        return Response(tuple(messages), loss.item(), penalty.item(), y, predicted, own_layers, tuple(notes))

    def _cheat(
        self,
        adversary: LabelAdversary,
        received: Sequence[Mapping[str, Tensor]],
        embeddings: Sequence[Message],
        messages: Sequence[Message | None],
        y: Tensor,
    ) -> list[Message | None]:
        """What the adversary sends in place of these gradients, as plain numbers, to every party."""
        held, honest = {}, {}
        for tensors, embedding, message in zip(received, embeddings, messages, strict=True):
            held[embedding.sender] = {layer: h.detach().clone() for layer, h in tensors.items()}
            sent = {} if message is None else message.tensors
            honest[embedding.sender] = {layer: sent.get(layer, torch.zeros_like(h)).clone() for layer, h in tensors.items()}
        adversary.meets(embeddings[0].ids.clone(), held)
        answers = usable_gradients(adversary, adversary.answer(held, honest, y.clone()), honest)
        return [Message(LABEL_PARTY, m.sender, Kind.GRADIENT, m.ids, answers[m.sender], {}) for m in embeddings]

    @torch.no_grad()
    def predict(self, embeddings: Sequence[Message]) -> Tensor:
        """Logits (n, 1) for two classes, (n, K) for K > 2."""
        columns = None if self.rows is None else self.rows(embeddings[0].ids)
        with evaluating(self.network):
            return self.defense.prediction(self.network([message.corrected for message in embeddings], columns)[1])

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since the last call."""
        at_slots = [Figures(*slot, str(Kind.GRADIENT), d.figures()) for slot, d in self._gradient_defenses.items()]
        return [Figures(LABEL_PARTY, "", "", self.defense.figures()), *at_slots]

    def state(self) -> dict[str, Any]:
        """Its weights, its optimiser and its defenses. Generators are saved with all others."""
        slots = [[party, layer, defense.state()] for (party, layer), defense in self._gradient_defenses.items()]
        cheating = {} if self.adversary is None else {"adversary": self.adversary.state()}
        defenses = {"defense": self.defense.state(), "gradient_defenses": slots}
        return {**learned(self.network, self.optimizer), **defenses, **cheating}

    def restore(self, state: Mapping[str, Any]) -> None:
        relearn(self.network, self.optimizer, state)
        self.defense.restore(state["defense"])
        for party, layer, saved in state["gradient_defenses"]:
            self._gradient_defenses[party, layer].restore(saved)
        if self.adversary is not None:
            self.adversary.restore(state["adversary"])


def classification_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy in nats. logits (n, 1): logistic loss of class 1; (n, K): softmax. y: (n,) classes."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype))
    return F.cross_entropy(logits, y)
