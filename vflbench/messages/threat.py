"""A round, as the facts that came of it; the threat model of an attack, where it sits and what it knows; and its view."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.facts import BatchHints, ClassHints, Fact, Known, KnownColumn, copied
from vflbench.messages.wire import Kind


class Role(StrEnum):
    """The party whose view the attacker has."""

    NON_LABEL = "non-label party"
    LABEL = "label party"
    PARTICIPANT = "participant"

    @property
    def place(self) -> str:
        """With an article."""
        return {Role.LABEL: "the label party", Role.PARTICIPANT: "one of the participants"}.get(self, f"a {self}")


class Level(StrEnum):
    """How much an attacker knows about labels, and whether it keeps to the protocol. Readings of different levels are never
    compared.

    MESSAGES: messages, its own columns and the shares of the classes, and no label of any row. LABELS: also the labels of
    some rows. ACTIVE: it sends and learns as it likes in its own role. REFERENCE: it reads no message, or is given labels as
    no attacker is (the probe); a line to compare attacks with, and no attack.
    """

    MESSAGES = "messages only"
    LABELS = "known labels"
    ACTIVE = "active"
    REFERENCE = "reference"


@dataclass(frozen=True)
class Threat:
    """Who attacks. An attack states it once, as an instance: its options may decide.

    Args:
        role: whose view the attacker has.
        knows: the facts that it may read. `Known` and `BatchHints` are added where their numbers are given.
        known_rows: number of rows whose labels it knows during the whole run (`Known`), or of which it knows a column
            (`KnownColumn`); 0 if it knows none.
        hints: number of known positives of each batch (`BatchHints`); 0 if it has none.
        active: whether it deviates from the protocol; an honest-but-curious attacker, who doesn't, is passive.
    """

    role: Role = Role.NON_LABEL
    knows: Set[type[Fact]] = frozenset()
    known_rows: int = 0
    hints: int = 0
    active: bool = False

    def __post_init__(self) -> None:
        hints, labels = bool(self.hints), bool(self.known_rows) and KnownColumn not in self.knows
        object.__setattr__(self, "knows", frozenset({*self.knows, *[BatchHints] * hints, *[Known] * labels}))
        counts = {Known: self.known_rows, KnownColumn: self.known_rows, BatchHints: self.hints}
        for kind, count in counts.items():
            if kind in self.knows and count < 1:
                raise ValueError(f"a threat with {kind.__name__} must say how many: known_rows or hints")

    @property
    def message(self) -> Kind | None:
        """The kind of message through which it learns; None if it reads no message. Gradients come before embeddings,
        and these before predictions.
        """
        kinds = {fact.message for fact in self.knows}
        order = (Kind.GRADIENT, Kind.EMBEDDING, Kind.PREDICTION, Kind.UPDATE, Kind.MODEL)
        return next((kind for kind in order if kind in kinds), None)

    @property
    def mixes_messages(self) -> bool:
        """Whether it reads more than one kind of message."""
        return len({fact.message for fact in self.knows} - {None}) > 1

    @property
    def knows_labels(self) -> bool:
        """Whether it is given the label of any row."""
        return not self.knows.isdisjoint({Known, BatchHints, ClassHints})

    @property
    def level(self) -> Level:
        """The level of knowledge at which its readings are compared."""
        if self.message is None:
            return Level.REFERENCE
        if self.active:
            return Level.ACTIVE
        return Level.LABELS if self.knows_labels else Level.MESSAGES

    @property
    def titles(self) -> list[str]:
        """What it knows, in words, in alphabetical order."""
        positives = "1 known positive" if self.hints == 1 else f"{self.hints} known positives"
        counted: dict[type[Fact], str] = {
            Known: f"the labels of {self.known_rows} rows",
            KnownColumn: f"a column of {self.known_rows} rows",
            BatchHints: f"{positives} of each batch",
        }
        return sorted(counted.get(fact, fact.title or fact.__name__) for fact in self.knows)

    def __str__(self) -> str:
        level = "; active" if self.active else ""
        return f"{self.role}; knows {', '.join(self.titles) or 'nothing'}{level}"

    def sentence(self) -> str:
        """The threat in a sentence, for reports."""
        level = "An active attacker" if self.active else "An honest-but-curious attacker"
        words = self.titles
        known = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
        return f"{level} at {self.role.place}" + (f", who knows: {known}." if known else ".")

    def record(self) -> dict[str, Any]:
        """Plain values for manifest.json."""
        return {
            "role": str(self.role),
            "knows": sorted(fact.title or fact.__name__ for fact in self.knows),
            "known_rows": self.known_rows,
            "hints": self.hints,
            "active": self.active,
            "level": str(self.level),
            "message": str(self.message) if self.message else "none",
            "text": self.sentence(),
        }


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


F = TypeVar("F", bound=Fact)


class Undeclared(UserError):  # noqa: N818 (the name says what happened)
    """An attack read a fact that its threat does not declare."""


class Unavailable(UserError):  # noqa: N818
    """An attack read a fact that this round does not have."""


@dataclass(eq=False, repr=False)
class View:
    """What one attack sees of one round, or at the end of an epoch. `view[Gradients]` returns a declared fact.

    Facts are copies: an attack may change them.

    Args:
        party: whose view.
        epoch: counted from 0.
        step: of the round, counted from 0 in its epoch; None at the end of an epoch.
        ids: (n,) names of the rows, the same in every epoch. A name says nothing about the place of a row in the file.
        rng: the attack's own generator, on the device of the values.
        threat: what the attack declared.
        facts: kind of fact -> fact; only the declared ones are kept.
        visible: False for a view of the label party's own layers, which no attacker sees; it serves the cost-of-privacy
            figures.
    """

    party: str
    epoch: int
    step: int | None
    ids: Tensor
    rng: torch.Generator
    threat: Threat
    facts: InitVar[Mapping[type[Fact], Fact]]
    _: KW_ONLY
    visible: bool = True

    def __post_init__(self, facts: Mapping[type[Fact], Fact]) -> None:
        self._facts = {kind: fact for kind, fact in facts.items() if kind in self.threat.knows}
        self._copies: dict[type[Fact], Fact] = {}

    def __getitem__(self, kind: type[F]) -> F:
        """The fact of that kind. Raises Undeclared, or Unavailable where a declared fact is not part of this view."""
        if kind not in self.threat.knows:
            raise Undeclared(f"the attack reads {kind.__name__}, but declares this threat: {self.threat}")
        if kind not in self._facts:
            raise Unavailable(f"the attack reads {kind.__name__}, which party {self.party} does not have here")
        if kind not in self._copies:
            self._copies[kind] = copied(self._facts[kind])
        return self._copies[kind]  # type: ignore[return-value]

    def __contains__(self, kind: type[Fact]) -> bool:
        return kind in self._facts

    def passed_on(self, threat: Threat, *facts: Fact) -> View:
        """A view of the same rows for another attack, with the facts that it declares.

        facts: given in place of those of this view. Raises Undeclared if the other attack declares a fact that is neither
        given nor declared here.
        """
        given: dict[type[Fact], Fact] = {type(fact): fact for fact in facts}
        more = threat.knows - self.threat.knows - set(given)
        if more:
            raise Undeclared(f"an attack passes its view on to one that also knows {sorted(f.__name__ for f in more)}")
        return replace(self, threat=threat, facts={**self._facts, **given})
