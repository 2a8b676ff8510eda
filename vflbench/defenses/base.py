"""Defense: what every entry of configs/defense builds; and Chain, several of them in a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.metrics.embedding_privacy import Sent
from vflbench.metrics.privacy import Guarantee
from vflbench.options import attributes, restore_attributes


class WithheldError(Exception):
    """A defense can't protect this message, which is therefore not sent; the text says why."""


class Form(StrEnum):
    """What an embedding is written as while defenses are at work on it, before it crosses."""

    REAL = "real numbers"
    SPARSE = "some of its real numbers and their places"
    INTEGERS = "whole numbers on a grid"
    NOISY = "whole numbers with noise"
    WORDS = "words of a codebook"


class Defense:
    """One transformation on its owner's side of the slot. Every hook is the identity; override the one you stand at.

    h, g: (n, d) values of one layer that crosses; y: (n,) classes; ids: (n,) row ids; rng: the owner's generator, on the
    device of the values. A defense may keep state: `embedding` and `gradient` are called on an instance of their own for
    each party and layer that crosses, `labels`, `loss` and `penalty` on one of the label party. What prediction does to the
    state of `embedding` is forgotten. Attributes that are tensors, numbers, strings, lists and dicts are saved and put back
    when a run goes on; for anything else override `state` and `restore`.

    max_classes: the most classes it can protect, None for any number.
    takes, gives: of a defense that has `embedding`, the forms in which it can take what the one before it left, and the form
    that it leaves. Real numbers are a tensor, everything else is an `Encoded`.
    """

    max_classes: ClassVar[int | None] = None
    takes: ClassVar[frozenset[Form]] = frozenset({Form.REAL})
    gives: ClassVar[Form] = Form.REAL

    def embedding(self, h: Tensor | Encoded, rng: torch.Generator) -> Tensor | Encoded:
        """Non-label party, before the slot: what is sent in place of h. Gradients pass straight through.

        An `Encoded` says in which bytes it crosses, and what its receiver reads from them; a tensor crosses as it is.
        """
        return h

    def sent(self, name: str, before: Sent) -> Sent:
        """What `embedding` leaves of what is known about each message before it; asked once, before the run.

        name: under which it was chosen. A defense whose noise hides an embedding adds its release, or why there is none.
        """
        return before

    def claims(self, width: int) -> Sent:
        """What is known of a message of a layer of so many coordinates."""
        return self.sent(type(self).__name__, Sent(width))

    def labels(self, y: Tensor, ids: Tensor, logits: Tensor, rng: torch.Generator) -> Tensor:
        """Label party, before the loss: the labels it trains on; `loss`, `penalty` and `gradient` see these as well.

        logits: (n, 1) for two classes, (n, K) for K > 2, what the model says of these rows so far; nothing flows back.
        """
        return y

    def loss(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """Label party: mean loss to train on in place of cross-entropy, differentiable in the logits; None keeps that."""
        return None

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """Label party: added to the loss, differentiable in the embeddings: all that each non-label party sent, (n, d)."""
        return 0.0

    def gradient(self, g: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        """Label party, before the slot: what is sent in place of g, the gradients per example.

        Raises WithheldError where g can't be protected: nothing is sent to that party then, and it doesn't learn.
        """
        return g

    def order(self, order: Tensor, rng: torch.Generator) -> Tensor:
        """Participant of federated training, before each epoch: the order, (n,) places, in which it batches rows."""
        return order

    def update(self, u: Tensor, rng: torch.Generator) -> Tensor:
        """Participant of federated training, before the slot: what is sent in place of u, (d,), its step of this round."""
        return u

    def guarantee(self) -> Guarantee | None:
        """What may be claimed of one instance; None claims nothing."""
        return None

    def figures(self) -> dict[str, float]:
        """What this instance counted (int) and measured (float) since it was last asked: at the end of each epoch."""
        return {}

    def state(self) -> dict[str, Any]:
        """What it keeps between batches, in tensors, numbers, strings, lists and dicts."""
        return attributes(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what `state` told; keep copies, not the tensors themselves."""
        restore_attributes(self, state)


@dataclass(frozen=True)
class Figures:
    """What the defenses that stand at one layer of one party counted and measured; `layer` and `message` may be empty.

    message: the kind of message they change. values: NAME.FIGURE -> value.
    """

    party: str
    layer: str
    message: str
    values: Mapping[str, float]


class Chain(Defense):
    """Named defenses one after the other: each sees what the one before it left. Penalties add up; empty is no defense."""

    def __init__(self, defenses: Mapping[str, Defense]):
        self.named = dict(defenses)
        refuse_disorder(self.named)

    @property
    def defenses(self) -> tuple[Defense, ...]:
        return tuple(self.named.values())

    def embedding(self, h: Tensor | Encoded, rng: torch.Generator) -> Tensor | Encoded:
        for defense in self.defenses:
            h = defense.embedding(h, rng)
        return h

    def labels(self, y: Tensor, ids: Tensor, logits: Tensor, rng: torch.Generator) -> Tensor:
        for defense in self.defenses:
            y = defense.labels(y, ids, logits, rng)
        return y

    def loss(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """The first that any of them gives."""
        given = (defense.loss(logits, y) for defense in self.defenses)
        return next((loss for loss in given if loss is not None), None)

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        return sum(defense.penalty(embeddings, y) for defense in self.defenses)

    def gradient(self, g: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        for defense in self.defenses:
            g = defense.gradient(g, y, rng)
        return g

    def order(self, order: Tensor, rng: torch.Generator) -> Tensor:
        for defense in self.defenses:
            order = defense.order(order, rng)
        return order

    def update(self, u: Tensor, rng: torch.Generator) -> Tensor:
        for defense in self.defenses:
            u = defense.update(u, rng)
        return u

    def claims(self, width: int) -> Sent:
        """What is known of it when all of them have been at work on it."""
        sent = Sent(width)
        for name, defense in self.named.items():
            sent = defense.sent(name, sent)
        return sent

    def figures(self) -> dict[str, float]:
        """NAME.FIGURE -> value."""
        return {f"{name}.{figure}": v for name, defense in self.named.items() for figure, v in defense.figures().items()}

    def state(self) -> dict[str, Any]:
        return {"defenses": [defense.state() for defense in self.defenses]}

    def restore(self, state: dict[str, Any]) -> None:
        for defense, own in zip(self.defenses, state["defenses"], strict=True):
            defense.restore(own)


def refuse_disorder(defenses: Mapping[str, Defense]) -> None:
    """Raises UserError for the first that can't take an embedding as the one before it leaves it."""
    form, before = Form.REAL, "the network"
    for name, defense in defenses.items():
        if type(defense).embedding is Defense.embedding:
            continue
        if form not in defense.takes:
            allowed = " or ".join(sorted(str(form) for form in defense.takes))
            problem = (
                f"{name} takes an embedding as {allowed}, and {before} leaves {form}; orders that make sense are "
                "[embedding_noise,top_k,quantize,binomial], any of them left out but quantize before binomial, and "
                "[embedding_noise,vector_quantize]"
            )
            raise UserError(problem, key="defense", value=f"[{','.join(defenses)}]")
        form, before = defense.gives, name


def refuse_too_many_classes(defenses: Mapping[str, Defense], classes: int) -> None:
    """Raises UserError for the first that can't protect so many."""
    for name, defense in defenses.items():
        if defense.max_classes is not None and classes > defense.max_classes:
            problem = f"it protects {defense.max_classes} classes, and the labels have {classes}"
            raise UserError(problem, key="defense", value=name)


HOOKS = ("embedding", "labels", "loss", "penalty", "gradient", "order", "update")
"""Where a defense can stand."""


class Asks(Protocol):
    """A protocol. hooks: where it asks the defenses."""

    hooks: ClassVar[tuple[str, ...]]


def refuse_idle(defenses: Mapping[str, Defense], protocol: Asks) -> None:
    """Raises UserError for the first that stands nowhere where this protocol asks."""
    for name, defense in defenses.items():
        own = [hook for hook in HOOKS if getattr(type(defense), hook) is not getattr(Defense, hook)]
        if own and not set(own) & set(protocol.hooks):
            where, name_of = " and ".join(own), type(protocol).__name__
            problem = f"it changes the {where}, which the protocol {name_of} does not have, so it would protect nothing"
            raise UserError(problem, key="defense", value=name, see="vflbench list defenses")


def refuse_unfit(defenses: Mapping[str, Defense], protocol: Asks, classes: int) -> None:
    """Raises UserError for the first that would do nothing here, or can't protect so many classes."""
    refuse_idle(defenses, protocol)
    refuse_too_many_classes(defenses, classes)


def promises_epsilon(defenses: Mapping[str, Defense]) -> bool:
    """Whether any of them claims label differential privacy."""
    guarantees = [defense.guarantee() for defense in defenses.values()]
    return any(guarantee is not None and guarantee.release is not None for guarantee in guarantees)
