"""Channel: how the process of the label party calls that of another party."""

from typing import Protocol

from vflbench.errors import UserError
from vflbench.messages.envelope import Content


class PartyError(UserError):
    """A party that doesn't answer, or answers what it may not. party: its name."""

    def __init__(self, party: str, problem: str):
        super().__init__(f"party {party}: {problem}", key="engine")
        self.party = party


class Channel(Protocol):
    """The way to one party that lives elsewhere. Calls to one party come one after the other.

    party: its name.
    """

    @property
    def party(self) -> str: ...

    def call(self, method: str, content: Content) -> Content:
        """What its `PartyService` makes of the content. Raises PartyError, within the timeout of the engine."""
        ...
