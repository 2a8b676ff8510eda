"""A round of training as a value: what was sent, and what each party could compute from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from vflbench.messages.fact import Fact
from vflbench.messages.message import Kind

Facts = Mapping[type[Fact], Fact]


@dataclass(frozen=True)
class Training:
    """What the label side reports about the step itself; no attacker sees it.

    loss: mean classification loss of the batch. penalty: what defenses added to it. ids: (n,) all rows that were trained on.
    labels: (n,) the classes that were trained on. notes: lines for the log.
    """

    loss: float
    penalty: float
    ids: Tensor
    labels: Tensor
    notes: tuple[str, ...] = ()


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

    epoch, step: when. phase: `train`. ids: (n,) row ids that attackers know. facts: party -> kind of fact -> fact; empty
    where the round was not watched. training: of the step itself; None in a recording. private: only where a whole batch is
    to be rebuilt.
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
