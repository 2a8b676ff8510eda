"""The only door between parties, which carries messages and counts them, and the way to a party in another process."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from pydantic import TypeAdapter

from vflbench.errors import UserError
from vflbench.messages.message import Kind, Message
from vflbench.messages.serialize import Content
from vflbench.numerics.system import flushes_denormals

Route = tuple[str, str, Kind]
"""Sender, receiver and kind of message."""


@dataclass
class Traffic:
    """Messages and bytes in one direction."""

    messages: int = 0
    bytes: int = 0


@dataclass
class Wire:
    """Counts the messages that cross, for each (sender, receiver, kind)."""

    traffic: dict[Route, Traffic] = field(default_factory=lambda: defaultdict(Traffic))

    def send(self, message: Message) -> Message:
        """The message as its receiver gets it."""
        count = self.traffic[message.sender, message.receiver, message.kind]
        count.messages += 1
        count.bytes += message.nbytes
        return message

    def take_traffic(self) -> dict[Route, Traffic]:
        """Traffic since the last call."""
        taken = dict(self.traffic)
        self.traffic.clear()
        return taken

    def state(self) -> list[list[Any]]:
        """Traffic since it was last taken, as plain values."""
        return [[sender, receiver, str(kind), t.messages, t.bytes] for (sender, receiver, kind), t in self.traffic.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Raises ValueError for what is no such state."""
        rows = _ROWS.validate_python(state)
        self.traffic.clear()
        self.traffic.update({(sender, receiver, kind): Traffic(*counts) for sender, receiver, kind, *counts in rows})


_ROWS = TypeAdapter(list[tuple[str, str, Kind, int, int]])


P = TypeVar("P")
_T = TypeVar("_T")


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


def at_once(ask: Callable[[P], _T], parties: Sequence[P]) -> list[_T]:
    """What each of them answers; all of them are asked before the first has answered."""
    with threads_like_this(len(parties) or 1) as threads:
        return list(threads.map(ask, parties))
