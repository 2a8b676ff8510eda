"""The only door between parties: it carries messages and counts them."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vflbench.messages.message import Kind, Message

Route = tuple[str, str, Kind]
"""Sender, receiver and kind of message."""


@dataclass
class Traffic:
    """Messages and bytes in one direction."""

    messages: int = 0
    bytes: int = 0


class Wire:
    """Carries messages and counts them for each (sender, receiver, kind).

    carry: brings a message to its receiver, and returns it as it arrives. In one process it arrives as it was sent.
    """

    def __init__(self, carry: Callable[[Message], Message] = lambda message: message):
        self.carry = carry
        self.traffic: dict[Route, Traffic] = defaultdict(Traffic)

    def send(self, message: Message) -> Message:
        """The message as its receiver gets it."""
        count = self.traffic[message.sender, message.receiver, message.kind]
        count.messages += 1
        count.bytes += message.nbytes
        return self.carry(message)

    def take_traffic(self) -> dict[Route, Traffic]:
        """Traffic since the last call."""
        taken = dict(self.traffic)
        self.traffic.clear()
        return taken

    def state(self) -> list[list[Any]]:
        """Traffic since it was last taken, as plain values."""
        return traffic_state(self.traffic)

    def restore(self, state: list[list[Any]]) -> None:
        self.traffic.clear()
        self.traffic.update(traffic_from(state))


def traffic_state(traffic: Mapping[Route, Traffic]) -> list[list[Any]]:
    """Rows of sender, receiver, kind, messages, bytes."""
    return [[sender, receiver, str(kind), t.messages, t.bytes] for (sender, receiver, kind), t in traffic.items()]


def traffic_from(state: list[list[Any]]) -> dict[Route, Traffic]:
    """The inverse of `traffic_state`. Raises ValueError for counts that are none."""
    if any(type(part) is not str for row in state for part in row[:3]) or any(
        type(n) is not int for row in state for n in row[3:]
    ):
        raise ValueError("its traffic is no names and whole numbers")
    return {(sender, receiver, Kind(kind)): Traffic(*counts) for sender, receiver, kind, *counts in state}
