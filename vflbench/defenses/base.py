"""Defense: what every entry of configs/defense builds. A defense acts in one role and changes only what its owner holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vflbench.messages.codec import Encoded
from vflbench.messages.facts import PartyFeatures
from vflbench.messages.threat import Role
from vflbench.metrics.privacy import Guarantee, Sent
from vflbench.options import attributes, options, restore_attributes


class WithheldError(Exception):
    """A defense can't protect this message, which is therefore not sent; the text says why."""


class Form(StrEnum):
    """What an embedding or a gradient is written as while defenses change it, before it crosses."""

    REAL = "real numbers"
    SPARSE = "some of its real numbers and their places"
    INTEGERS = "whole numbers on a grid"
    NOISY = "whole numbers with noise"
    WORDS = "words of a codebook"


@dataclass(frozen=True)
class Context:
    """What the owner of a defense holds beside the values in hand.

    Args:
        ids: (n,) ids of the rows, the same in every epoch.
        columns: the owner's own columns of these rows; None for an owner without features, and in `order` and `arrange`.
        epoch: counted from 0; 0 where rows are predicted.
        rng: the owner's generator, on the device of the values; in `order`, the one that batches are drawn from.
    """

    ids: Tensor
    columns: PartyFeatures | None
    epoch: int
    rng: torch.Generator


class Defense:
    """A transformation on its owner's side of the slot. A subclass derives from the base class of each role in which it
    stands: `NonLabelDefense`, `LabelDefense`, `ParticipantDefense`.

    Hooks are the identity unless overridden. They get values of one layer that crosses, h or g (n, d), and a `Context`. A
    defense may keep state: embedding and gradient hooks are called on an instance of their own for each party and layer that
    crosses, `labels`, `loss` and `penalty` on one of the label party. Attributes that are tensors, numbers, strings, lists
    and dicts are saved, and restored when a run is resumed; for anything else override `state` and `restore`.

    Attributes:
        max_classes: the most classes it can protect, None for any number.
        takes: of a defense with `embedding` or `gradient`, the forms that it accepts from the defense before it. Real
            numbers are a tensor, everything else is an `Encoded`.
        gives: of such a defense, the form that it leaves.
    """

    max_classes: ClassVar[int | None] = None
    takes: ClassVar[frozenset[Form]] = frozenset({Form.REAL})
    gives: ClassVar[Form] = Form.REAL

    @property
    def roles(self) -> frozenset[Role]:
        """The roles in which it acts: those of its base classes, or fewer, as options say. Only their hooks are called."""
        return frozenset(role for base, role in ROLES.items() if isinstance(self, base))

    def guarantee(self) -> Guarantee | None:
        """What one instance guarantees; None if nothing."""
        return None

    def tally(self, name: str, amount: float, of: int | None = None) -> None:
        """Add to a count that `figures` will report; of: to a mean, the sum of so many values."""
        tallies = vars(self).setdefault("_tallies", {})
        total, values = tallies.get(name, (0, of and 0))
        tallies[name] = [total + amount, of and values + of]

    def figures(self) -> dict[str, float]:
        """What this instance counted (int) and measured (float) since the last call: once at the end of each epoch."""
        tallies = vars(self).pop("_tallies", {})
        return {name: total / values if values else total for name, (total, values) in tallies.items()}

    def state(self) -> dict[str, Any]:
        """What it keeps between batches, in tensors, numbers, strings, lists and dicts."""
        return attributes(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; keep copies, not the tensors themselves."""
        restore_attributes(self, state)


class NonLabelDefense(Defense):
    """A defense of a non-label party: what it sends, and what it learns from. `arrange`, `learns`, `notes` and `stopped` are
    called once for all layers, on the instance of the party's cut layer.
    """

    def arrange(self, context: Context) -> Tensor | None:
        """Before the network, of a training batch: (n,) places, in which order it takes its rows, while the label party goes
        on with its own; None for the same. The `context` of other hooks then has the rows as they are taken.
        """
        return None

    def learns(self, gradient: Tensor, context: Context) -> bool:
        """After back-propagation: whether it takes the step. gradient: (p,) by the parameters of its first layer, of
        all rows of the batch; (0,) of a network without any.
        """
        return True

    def notes(self) -> list[str]:
        """Lines for the log since the last call; asked after each batch."""
        return []

    @property
    def stopped(self) -> str:
        """Why its owner takes no further part in training; empty if it does."""
        return ""

    def embedding(self, h: Any, context: Context) -> Tensor | Encoded:
        """Before the slot: what is sent in place of h, a tensor or an `Encoded`. Gradients pass straight through.

        An `Encoded` defines the bytes that cross and how its receiver decodes them; a tensor crosses as it is. The state
        that prediction leaves behind is discarded.
        """
        return h

    def received(self, g: Tensor, h: Tensor, context: Context) -> Tensor:
        """After the slot: the gradient that the bottom model learns from in place of g, the received one; h: activations.

        A local penalty P(h, x) of the party adds its gradient here: g + dP / dh.
        """
        return g

    def sent(self, name: str, before: Sent) -> Sent:
        """What is known about each message after `embedding`, from what was known before; called once, before the run.

        name: under which the defense was chosen. A defense whose noise hides an embedding adds its release, or the reason
        why there is none.
        """
        return before


class LabelDefense(Defense):
    """A defense of the label party: the labels that it trains on, its loss, and the gradients that it sends."""

    @property
    def hands_on_all(self) -> bool:
        """Whether nothing but what `labels` returns follows from the labels that it is given: no memory, no loss of its own.
        Of a class with a hook of its own for labels that is not known; it may say so.
        """
        return type(self).labels is LabelDefense.labels

    @property
    def hands_on_same(self) -> bool:
        """Whether `labels` returns the same label of a row at each visit, if it is given the same. Of a class with a hook of
        its own for labels that is not known; it may say so.
        """
        return type(self).labels is LabelDefense.labels

    @property
    def replaces_loss(self) -> bool:
        """Whether `loss` can take the place of cross-entropy, as that of one defense of a run can. A class with such a hook
        may say that its options leave it out.
        """
        return type(self).loss is not LabelDefense.loss

    def plan(self, epochs: int) -> None:
        """Before the run: how many epochs it will have, each of which meets a row once."""

    def outputs(self, classes: int) -> int:
        """Before the run: how many numbers the top model gives a row, 1 or K > 2, where it would give `classes` of them.

        `labels` and `loss` see these logits; whatever is measured or predicted sees what `prediction` makes of them.
        """
        return classes

    def entrance(self, widths: Sequence[int], rng: torch.Generator) -> nn.Module | None:
        """Before the run: a network between slot and top, called with a list of what each non-label party sent, (n, d) each,
        that returns such a list, of the same widths. It is the label party's and learns with the top; None is no network.

        widths: d of each. rng: what its weights are drawn from.
        """
        return None

    def labels(self, y: Tensor, logits: Tensor, context: Context) -> Tensor:
        """Before the loss: the labels to train on; `loss`, `penalty` and `gradient` see these as well.

        y: (n,) classes. logits: (n, 1) for two classes, (n, K) for K > 2, of these rows so far, without a graph.
        """
        return y

    def loss(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """Mean loss to train on in place of cross-entropy, differentiable in the logits; None keeps cross-entropy."""
        return None

    def evidence(self) -> Tensor | None:
        """What the noise of the batch that `labels` was given last tells of its classes, for the check by canaries: (n, 1)
        log-likelihood ratios of class 1 of two, or (n, K) log-likelihoods, divided by the eps of one visit where eps is
        promised. None: no more than the classes that it handed on.
        """
        return None

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """Added to the loss, differentiable in the embeddings: all that each non-label party sent, (n, d)."""
        return 0.0

    def prediction(self, logits: Tensor) -> Tensor:
        """After the top: the logits, (n, 1) for two classes and (n, K) for K > 2, that those of the top stand for."""
        return logits

    def gradient(self, g: Any, y: Tensor, context: Context) -> Tensor | Encoded:
        """Before the slot: what is sent in place of g, the gradients per example, a tensor or an `Encoded`.

        An `Encoded` defines the bytes that cross; the non-label party learns from what it decodes. Raises WithheldError
        where g can't be protected: nothing is sent to that party then, and it doesn't learn.
        """
        return g


@options
class Compressor(NonLabelDefense, LabelDefense):
    """What embeddings and gradients have in common for a defense that compresses either. A subclass defines `compressed`.

    message: `embeddings`, which a non-label party sends, or `gradients`, which the label party sends.
    """

    message: Literal["embeddings", "gradients"] = "embeddings"

    def compressed(self, values: Encoded, rng: torch.Generator) -> Encoded:
        """What is sent in place of these values, (n, d) or what `top_k` left of them."""
        raise NotImplementedError

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset({Role.NON_LABEL if self.message == "embeddings" else Role.LABEL})

    def embedding(self, h: Tensor | Encoded, context: Context) -> Encoded:
        """h: (n, d)."""
        return self.compressed(h if isinstance(h, Encoded) else Encoded(h.shape[1], h), context.rng)

    def gradient(self, g: Tensor | Encoded, y: Tensor, context: Context) -> Encoded:
        """g: (n, d)."""
        return self.embedding(g, context)


class ParticipantDefense(Defense):
    """A defense of a participant of federated training: the order of its rows, and the update that it sends.

    withholds: whether some coordinates of an update are not sent, as participants agree; None if it doesn't say.
    """

    withholds: bool | None = None

    def order(self, order: Tensor, context: Context) -> Tensor:
        """Before each epoch: the order, (n,) places, in which it cuts its rows into batches."""
        return order

    def update(self, u: Tensor, context: Context) -> Tensor:
        """Before the slot: what is sent in place of u, (d,), its step of this round."""
        return u


ROLES: Mapping[type[Defense], Role] = {
    NonLabelDefense: Role.NON_LABEL,
    LabelDefense: Role.LABEL,
    ParticipantDefense: Role.PARTICIPANT,
}


def changes(defense: Defense, hook: Callable[..., Any]) -> bool:
    """Whether it acts in the role of this hook, a method of that role's base class, and overrides it."""
    stands = any(vars(base).get(hook.__name__) is hook and role in defense.roles for base, role in ROLES.items())
    return stands and getattr(type(defense), hook.__name__) is not hook
