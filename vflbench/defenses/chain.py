"""Several defenses one after the other, those of a party as a whole, and the combinations that make no sense."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

from torch import Tensor, nn

from vflbench.defenses.base import ROLES, Defense, Form, LabelDefense, NonLabelDefense, ParticipantDefense, changes
from vflbench.errors import UserError
from vflbench.messages.threat import Role
from vflbench.metrics.privacy import Guarantee, Sent
from vflbench.numerics.system import in_full_precision

D = TypeVar("D", bound=Defense)

_ORDERS: Sequence[tuple[Callable[..., Any], str, str]] = (
    (
        NonLabelDefense.embedding,
        "an embedding",
        "[embedding_noise,top_k,quantize,binomial], any of them left out but quantize before binomial, and "
        "[embedding_noise,vector_quantize]",
    ),
    (
        LabelDefense.gradient,
        "a gradient",
        "those with noise first, then top_k, then one of quantize, sign and batch_average",
    ),
)
"""Hooks that change a kind of message, and the orders of defenses that make sense."""

_NO_ROLE = f"no role, so it would protect nothing; derive it from {' or '.join(base.__name__ for base in ROLES)}"


@dataclass(frozen=True)
class Figures:
    """What the defenses at one layer of one party counted and measured; `layer` and `message` may be empty.

    message: the kind of message that they change. values: NAME.FIGURE -> value.
    """

    party: str
    layer: str
    message: str
    values: Mapping[str, int | float]


def _hook(base: type[Defense], name: str, join: Callable[[list[Any]], Any] | None = None) -> Any:
    """A hook of several defenses, as a method of `Chain`: each gets what the one before it left, and the same context.

    join: each answers by itself, and this makes one answer of those that aren't None.
    """

    def hook(chain: "Chain", *given: Any) -> Any:
        answers = []
        for defense in chain.at(base).values():
            answers.append(in_full_precision()(getattr(defense, name))(*given))
            given = given if join else (answers[-1], *given[1:])
        return join([answer for answer in answers if answer is not None]) if join else given[0]

    return hook


class Chain(NonLabelDefense, LabelDefense, ParticipantDefense):
    """Named defenses one after the other: each gets what the one before it left. Penalties add up; empty is no defense.

    They compute in full precision, also where products of the networks' layers are rounded.
    """

    def __init__(self, defenses: Mapping[str, Defense]):
        self.named = dict(defenses)
        refuse_disorder(self.named)

    def at(self, base: type[D]) -> dict[str, D]:
        """Those of that base class which act in its role, by name."""
        return {name: one for name, one in self.named.items() if isinstance(one, base) and ROLES[base] in one.roles}

    embedding = _hook(NonLabelDefense, "embedding")
    received = _hook(NonLabelDefense, "received")
    outputs = _hook(LabelDefense, "outputs")
    labels = _hook(LabelDefense, "labels")
    gradient = _hook(LabelDefense, "gradient")
    order = _hook(ParticipantDefense, "order")
    update = _hook(ParticipantDefense, "update")
    arrange = _hook(NonLabelDefense, "arrange", lambda orders: reduce(Tensor.__getitem__, orders) if orders else None)
    learns = _hook(NonLabelDefense, "learns", all)
    notes = _hook(NonLabelDefense, "notes", lambda notes: [*itertools.chain(*notes)])
    plan = _hook(LabelDefense, "plan", list)
    entrance = _hook(LabelDefense, "entrance", lambda networks: nn.Sequential(*networks) if networks else None)
    loss = _hook(LabelDefense, "loss", lambda losses: next(iter(losses), None))  # one has a loss of its own at most
    penalty = _hook(LabelDefense, "penalty", lambda penalties: sum(penalties, 0.0))

    @property
    def guards(self) -> dict[str, NonLabelDefense]:
        """Those that arrange batches or say what the party learns from."""
        hooks = (NonLabelDefense.arrange, NonLabelDefense.learns)
        return {name: one for name, one in self.at(NonLabelDefense).items() if any(changes(one, hook) for hook in hooks)}

    @property
    def stopped(self) -> str:
        return next((one.stopped for one in self.at(NonLabelDefense).values() if one.stopped), "")

    def prediction(self, logits: Tensor) -> Tensor:
        """Back from the last to the first."""
        for defense in reversed(self.at(LabelDefense).values()):
            logits = in_full_precision()(defense.prediction)(logits)
        return logits

    def evidence(self) -> Tensor | None:
        """Of the last one that changes labels, from which training goes on."""
        those = [one for one in self.at(LabelDefense).values() if changes(one, LabelDefense.labels)]
        return next((one.evidence() for one in those[::-1]), None)

    def withheld(self) -> bool | None:
        """`withholds` of those that change updates."""
        those = [one for one in self.at(ParticipantDefense).values() if changes(one, ParticipantDefense.update)]
        said = [defense.withholds for defense in those]
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
class PrivacyClaims:
    """What several defenses in a row guarantee. of: name -> guarantee. refused: name -> why its claim doesn't stand."""

    of: Mapping[str, Guarantee | None]
    refused: Mapping[str, str]

    @property
    def label_privacy(self) -> bool:
        """Whether any of them guarantees what the messages tell about a label."""
        return any(guarantee is not None and guarantee.release is not None for guarantee in self.of.values())


def claims_of(defenses: Mapping[str, Defense]) -> PrivacyClaims:
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
    return PrivacyClaims(made, refused)


def refuse_disorder(defenses: Mapping[str, Defense]) -> None:
    """Raises UserError for the first that can't take an embedding or a gradient as the one before it leaves it, and for two
    that each train on a loss of their own.
    """
    for hook, message, orders in _ORDERS:
        form, before = Form.REAL, "the network"
        for name, defense in defenses.items():
            if not changes(defense, hook):
                continue
            if form not in defense.takes:
                problem = f"{name} takes {message} as {' or '.join(sorted(defense.takes))}, and {before} leaves {form}"
                raise _wrong_together(f"{problem}; orders that make sense are {orders}", defenses)
            form, before = defense.gives, name
    losses = [name for name, one in defenses.items() if isinstance(one, LabelDefense) and one.replaces_loss]
    if len(losses) > 1:
        problem = f"{' and '.join(losses)} put losses of their own in place of cross-entropy, and a network trains on one"
        raise _wrong_together(problem, defenses)


def _wrong_together(problem: str, defenses: Mapping[str, Defense]) -> UserError:
    return UserError(problem, key="defense", value=f"[{','.join(defenses)}]")


def refuse_unfit(defenses: Mapping[str, Defense], roles: frozenset[Role], protocol: str, classes: int) -> None:
    """Raises UserError for the first that has no role in this protocol, or can't protect so many classes.

    roles: of the protocol. protocol: its name.
    """
    for name, defense in defenses.items():
        if not defense.roles & roles:
            where = " and ".join(sorted(f"the {role}" for role in defense.roles))
            why = f", which the protocol {protocol} does not have, so it would protect nothing" if where else _NO_ROLE
            problem = f"it stands at {where}{why}"
            raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        if defense.max_classes is not None and classes > defense.max_classes:
            problem = f"it protects {defense.max_classes} classes, and the labels have {classes}"
            raise UserError(problem, key="defense", value=name)
