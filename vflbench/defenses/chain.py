"""Several defenses one after the other, those of a party as a whole, and the combinations that make no sense."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vflbench.defenses.base import (
    SEATS,
    Context,
    Defense,
    Form,
    LabelDefense,
    NonLabelDefense,
    ParticipantDefense,
    changes,
    seats_of,
)
from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.messages.threat import Seat
from vflbench.metrics.embedding_privacy import Sent
from vflbench.metrics.privacy import Guarantee
from vflbench.numerics.system import in_full_precision

D = TypeVar("D", bound=Defense)

_BASES = " or ".join(base.__name__ for base in SEATS)


@dataclass(frozen=True)
class Figures:
    """What the defenses at one layer of one party counted and measured; `layer` and `message` may be empty.

    message: the kind of message that they change. values: NAME.FIGURE -> value.
    """

    party: str
    layer: str
    message: str
    values: Mapping[str, int | float]


class Chain(NonLabelDefense, LabelDefense, ParticipantDefense):
    """Named defenses one after the other: each gets what the one before it left. Penalties add up; empty is no defense.

    They compute in full precision, also where products of the networks' layers are rounded.
    """

    def __init__(self, defenses: Mapping[str, Defense]):
        self.named = dict(defenses)
        refuse_disorder(self.named)

    def at(self, seat: type[D]) -> dict[str, D]:
        """Those that stand at a seat, by name."""
        named = {name: defense for name, defense in self.named.items() if isinstance(defense, seat)}
        return {name: defense for name, defense in named.items() if SEATS[seat] in defense.seats}

    def _through(self, seat: type[Defense], hook: str, value: Any, *context: Any) -> Any:
        """What the hook of one defense after the other makes of a value, in full precision."""
        with in_full_precision():
            for defense in self.at(seat).values():
                value = getattr(defense, hook)(value, *context)
            return value

    def embedding(self, h: Tensor | Encoded, context: Context) -> Any:
        return self._through(NonLabelDefense, "embedding", h, context)

    def received(self, g: Tensor, h: Tensor, context: Context) -> Any:
        return self._through(NonLabelDefense, "received", g, h, context)

    @property
    def guards(self) -> dict[str, NonLabelDefense]:
        """Those that arrange batches or say what the party learns from."""
        hooks = (NonLabelDefense.arrange, NonLabelDefense.learns)
        return {name: one for name, one in self.at(NonLabelDefense).items() if any(changes(one, hook) for hook in hooks)}

    @in_full_precision()
    def arrange(self, context: Context) -> Tensor | None:
        """One order after the other."""
        places: Tensor | None = None
        for defense in self.guards.values():
            order = defense.arrange(context)
            if order is not None:
                places = order if places is None else places[order]
        return places

    @in_full_precision()
    def learns(self, gradient: Tensor, context: Context) -> bool:
        """Whether all of them let it learn; each is asked."""
        answers = [defense.learns(gradient, context) for defense in self.guards.values()]
        return all(answers)

    def notes(self) -> list[str]:
        return [note for defense in self.guards.values() for note in defense.notes()]

    @property
    def stopped(self) -> str:
        return next((why for defense in self.guards.values() if (why := defense.stopped)), "")

    def plan(self, epochs: int) -> None:
        for defense in self.at(LabelDefense).values():
            defense.plan(epochs)

    def outputs(self, classes: int) -> Any:
        return self._through(LabelDefense, "outputs", classes)

    def entrance(self, widths: Sequence[int], rng: torch.Generator) -> nn.Module | None:
        made = (defense.entrance(widths, rng) for defense in self.at(LabelDefense).values())
        networks = [network for network in made if network is not None]
        return nn.Sequential(*networks) if networks else None

    @in_full_precision()
    def prediction(self, logits: Tensor) -> Tensor:
        """Back from the last to the first."""
        for defense in reversed(self.at(LabelDefense).values()):
            logits = defense.prediction(logits)
        return logits

    def labels(self, y: Tensor, logits: Tensor, context: Context) -> Any:
        return self._through(LabelDefense, "labels", y, logits, context)

    @in_full_precision()
    def loss(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """Of the one that has a loss of its own."""
        losses = (defense.loss(logits, y) for defense in self.at(LabelDefense).values())
        return next((loss for loss in losses if loss is not None), None)

    @in_full_precision()
    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        return sum((defense.penalty(embeddings, y) for defense in self.at(LabelDefense).values()), 0.0)

    def gradient(self, g: Tensor | Encoded, y: Tensor, context: Context) -> Any:
        return self._through(LabelDefense, "gradient", g, y, context)

    def order(self, order: Tensor, context: Context) -> Any:
        return self._through(ParticipantDefense, "order", order, context)

    def update(self, u: Tensor, context: Context) -> Any:
        return self._through(ParticipantDefense, "update", u, context)

    @property
    def withholds(self) -> bool | None:
        said = [defense.withholds for defense in self.at(ParticipantDefense).values()]
        return True if True in said else None if None in said else False

    def claims(self, width: int) -> Sent:
        """What is known about a message after all of them."""
        sent = Sent(width)
        for name, defense in self.at(NonLabelDefense).items():
            sent = defense.sent(name, sent)
        return sent

    def figures(self) -> dict[str, float]:
        """NAME.FIGURE -> value."""
        return {f"{name}.{figure}": v for name, defense in self.named.items() for figure, v in defense.figures().items()}

    def state(self) -> dict[str, Any]:
        return {"defenses": [defense.state() for defense in self.named.values()]}

    def restore(self, state: dict[str, Any]) -> None:
        for defense, saved in zip(self.named.values(), state["defenses"], strict=True):
            defense.restore(saved)


@dataclass(frozen=True)
class Claims:
    """What several defenses in a row guarantee. of: name -> guarantee. refused: name -> why its claim doesn't stand."""

    of: Mapping[str, Guarantee | None]
    refused: Mapping[str, str]

    @property
    def label_privacy(self) -> bool:
        """Whether any of them guarantees what the messages tell about a label."""
        return any(guarantee is not None and guarantee.release is not None for guarantee in self.of.values())


def claims_of(defenses: Mapping[str, Defense]) -> Claims:
    """A promise of label privacy covers all that is computed from the labels that its defense hands on. It doesn't stand
    behind a defense from which more follows of the labels before them (`LabelDefense.hands_on_all`). Nor does a promise of
    noise drawn once stand behind a defense that hands on a new label of a row at each visit: labels of which each has the
    same noise differ as they do without it.
    """
    made: dict[str, Guarantee | None] = {}
    refused: dict[str, str] = {}
    seeing: list[str] = []
    changing: list[str] = []
    for name, defense in defenses.items():
        guarantee = defense.guarantee()
        release = None if guarantee is None else guarantee.release
        if release is not None and seeing:
            refused[name] = f"{' and '.join(seeing)} before it sees labels that {name} has not hidden; put {name} first"
        elif release is not None and release.once and changing:
            refused[name] = (
                f"{' and '.join(changing)} before it changes a row's label in each epoch, and the noise of {name}, the same "
                f"in all of them, does not hide that; put {name} first"
            )
        made[name] = None if name in refused else guarantee
        if isinstance(defense, LabelDefense):
            seeing += [] if defense.hands_on_all else [name]
            changing += [] if defense.hands_on_same else [name]
    return Claims(made, refused)


def refuse_disorder(defenses: Mapping[str, Defense]) -> None:
    """Raises UserError for the first that can't take an embedding or a gradient as the one before it leaves it, and for two
    that each train on a loss of their own.
    """
    embeddings = (
        "[embedding_noise,top_k,quantize,binomial], any of them left out but quantize before binomial, and "
        "[embedding_noise,vector_quantize]"
    )
    gradients = "those with noise first, then top_k, then one of quantize, sign and batch_average"
    _refuse_form(NonLabelDefense.embedding, "an embedding", embeddings, defenses)
    _refuse_form(LabelDefense.gradient, "a gradient", gradients, defenses)
    losses = [name for name, one in defenses.items() if isinstance(one, LabelDefense) and one.own_loss]
    if len(losses) > 1:
        problem = f"{' and '.join(losses)} put losses of their own in place of cross-entropy, and a network trains on one"
        raise UserError(problem, key="defense", value=f"[{','.join(defenses)}]")


def _refuse_form(hook: Callable[..., Any], message: str, orders: str, defenses: Mapping[str, Defense]) -> None:
    """hook: that changes this kind of message. orders: that make sense. defenses: all, in their order."""
    form, before = Form.REAL, "the network"
    for name, defense in defenses.items():
        if not changes(defense, hook):
            continue
        if form not in defense.takes:
            allowed = " or ".join(sorted(str(form) for form in defense.takes))
            problem = f"{name} takes {message} as {allowed}, and {before} leaves {form}; orders that make sense are {orders}"
            raise UserError(problem, key="defense", value=f"[{','.join(defenses)}]")
        form, before = defense.gives, name


def refuse_unfit(defenses: Mapping[str, Defense], seats: frozenset[Seat], protocol: str, classes: int) -> None:
    """Raises UserError for the first that stands at no seat of this protocol, or can't protect so many classes.

    seats: of the protocol. protocol: its name.
    """
    for name, defense in defenses.items():
        stands_at = seats_of(defense)
        if not stands_at & seats:
            where = " and ".join(sorted(f"the {seat}" for seat in stands_at))
            problem = (
                f"it stands at {where}, which the protocol {protocol} does not have, so it would protect nothing"
                if stands_at
                else f"it stands at no seat, so it would protect nothing; derive it from {_BASES}"
            )
            raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
    for name, defense in defenses.items():
        if defense.max_classes is not None and classes > defense.max_classes:
            problem = f"it protects {defense.max_classes} classes, and the labels have {classes}"
            raise UserError(problem, key="defense", value=name)
