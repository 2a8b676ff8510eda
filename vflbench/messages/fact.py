"""Fact: one kind of knowledge, the base of all others; and a round, as the facts that came of it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vflbench.messages.message import Kind

Layers = Mapping[str, Tensor]
"""Layer name -> (n, d), one row for each row of the batch."""


@dataclass(frozen=True)
class Fact:
    """One kind of knowledge about a round, or about the run.

    Attributes:
        title: how the fact is named in threat models.
        message: the kind of message that carries it, if one does; the answer of an attack that knows the fact counts as a
            leak through that kind of message.
        per_row: whether all that it holds has one row for each row of the batch.
    """

    title: ClassVar[str] = ""
    message: ClassVar[Kind | None] = None
    per_row: ClassVar[bool] = False

    def rows(self, index: Tensor) -> Self:
        """The fact about these rows of the batch alone. index: (m,) places. A fact that is not about rows stays whole."""
        return type(self)(**{name: _rows(value, index) for name, value in vars(self).items()}) if self.per_row else self

    def copy(self) -> Self:
        """The same fact in tensors of its own, which an attack may change."""
        return copied(self)

    def named(self, ids_of: Callable[[Tensor], Tensor]) -> Self:
        """The same fact for an attack, which knows rows by names. ids_of: names (m,) -> row ids (m,)."""
        return self


class Network:
    """What a fact holds that is copied with its networks."""


def _rows(value: Any, index: Tensor) -> Any:
    """These rows of a tensor, an `Encoded`, or of each one in a mapping."""
    if isinstance(value, Mapping):
        return {key: _rows(part, index) for key, part in value.items()}
    return value[index] if isinstance(value, Tensor) else value.rows(index)


def copied(value: Any) -> Any:
    """Tensors cloned, and those in mappings, lists and data classes; networks deeply; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, Network):
        return copy.deepcopy(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: copied(getattr(value, part.name)) for part in fields(value)})
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([copied(part) for part in value])
    return value


Facts = Mapping[type[Fact], Fact]


@dataclass(frozen=True)
class Training:
    """What the label side reports about the step itself; no attacker sees it.

    loss: mean classification loss of the batch. penalty: what defenses added to it. ids: (n,) all rows that were trained on.
    labels: (n,) the classes that were trained on. notes: lines for the log. evidence: what noise on labels tells of them
    (`LabelDefense.evidence`).
    """

    loss: float
    penalty: float
    ids: Tensor
    labels: Tensor
    notes: tuple[str, ...] = ()
    evidence: Tensor | None = None


@dataclass(frozen=True)
class PrivateBatch:
    """The rows that an attack on a whole batch tries to rebuild: the truth that its answer is graded against.

    owner: names of the parties that own the rows. x: (m, d). y: (m,) in {-1, +1}. steps: (m,) the local step of each row.
    """

    owner: str
    x: Tensor
    y: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Round:
    """One round of training. It reads the same from memory and from disk.

    Args:
        epoch: counted from 0.
        step: counted from 0 in its epoch.
        ids: (n,) row ids that attackers know.
        phase: `train`.
        facts: party -> kind of fact -> fact; empty where the round was not watched.
        training: of the step itself; None in a recording.
        private: the rows and labels of the batch, only where a whole batch is to be rebuilt.
    """

    epoch: int
    step: int
    ids: Tensor
    phase: str = "train"
    facts: Mapping[str, Facts] = field(default_factory=dict)
    training: Training | None = None
    private: PrivateBatch | None = None

    def layers(self, party: str, kind: Kind | None) -> tuple[str, ...]:
        """The layers of a party for which it has values of that kind of message; `features` where no message is read."""
        if kind is None:
            return ("features",)
        facts = (fact for fact in self.facts.get(party, {}).values() if fact.message is kind)
        return next((tuple(fact.layers) for fact in facts if hasattr(fact, "layers")), ())
