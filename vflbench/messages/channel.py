"""Channel: how the process of the label party calls that of another party."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

import torch

from vflbench.errors import UserError
from vflbench.messages.envelope import Content
from vflbench.numerics.system import flushes_denormals

P = TypeVar("P")
T = TypeVar("T")


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


def threads_like_this(count: int) -> ThreadPoolExecutor:
    """Threads that take denormal numbers as this one does: what they decode is then the same."""
    return ThreadPoolExecutor(count, initializer=partial(torch.set_flush_denormal, flushes_denormals()))


def one_by_one(ask: Callable[[P], T], parties: Sequence[P]) -> list[T]:
    """What each of them answers."""
    return [ask(party) for party in parties]


def at_once(ask: Callable[[P], T], parties: Sequence[P]) -> list[T]:
    """The same, of parties that live elsewhere: all of them are asked before the first has answered."""
    if len(parties) < 2:
        return one_by_one(ask, parties)
    with threads_like_this(len(parties)) as threads:
        return list(threads.map(ask, parties))
