"""View: the facts that an attack declared, of the party at which it sits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.threat import Threat

F = TypeVar("F", bound=Fact)


class Undeclared(UserError):  # noqa: N818 (the name says what happened)
    """An attack read a fact that its threat does not declare."""


class Unavailable(UserError):  # noqa: N818
    """An attack read a fact that this round does not have."""


class View:
    """What one attack sees of one round, or at the end of an epoch. `view[Gradients]` returns a declared fact.

    party: whose view. epoch, step: when; step is None at the end of an epoch. ids: (n,) names of the rows, the same in every
    epoch. A name says nothing about the place of a row in the file. rng: the attack's own generator, on the device of the
    values. threat: what the attack declared. visible: False for a view of the label party's own layers, which no attacker
    sees; it serves the cost-of-privacy figures.

    Facts are copies: an attack may change them.
    """

    def __init__(
        self,
        party: str,
        epoch: int,
        step: int | None,
        ids: Tensor,
        rng: torch.Generator,
        threat: Threat,
        facts: Mapping[type[Fact], Fact],
        *,
        visible: bool = True,
    ):
        self.party, self.epoch, self.step, self.ids, self.rng = party, epoch, step, ids, rng
        self.threat, self.visible = threat, visible
        self._facts = {kind: fact for kind, fact in facts.items() if kind in threat.knows}
        self._copies: dict[type[Fact], Fact] = {}

    def __getitem__(self, kind: type[F]) -> F:
        """The fact of that kind. Raises Undeclared, or Unavailable where a declared fact is not part of this view."""
        if kind not in self.threat.knows:
            raise Undeclared(f"the attack reads {kind.__name__}, but declares this threat: {self.threat}")
        if kind not in self._facts:
            raise Unavailable(f"the attack reads {kind.__name__}, which party {self.party} does not have here")
        if kind not in self._copies:
            self._copies[kind] = self._facts[kind].copy()
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
        known = {**self._facts, **given}
        return View(self.party, self.epoch, self.step, self.ids, self.rng, threat, known, visible=self.visible)
