"""Messages, what one party sends to another about a batch; and the wire, the only door between them, which counts bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor

from vflbench.messages.codec import Encoded


class Kind(StrEnum):
    """What a message holds. Embeddings go up to the label party and gradients come down; predictions are what the joint
    model answers about rows; in federated learning, updates go up to the server and the model comes down.
    """

    EMBEDDING = "embedding"
    GRADIENT = "gradient"
    PREDICTION = "prediction"
    UPDATE = "update"
    MODEL = "model"


@dataclass(frozen=True)
class Message:
    """What one party sends to another about one batch.

    Args:
        sender: name of a party.
        receiver: name of a party.
        kind: what the message holds.
        ids: (n,) row ids. Both sides know them from aligning their rows beforehand, so they aren't sent again. None: (0,).
        tensors: layer name -> (n, d), values without any autograd history; of an update or a model, (d,).
        encoded: for each layer that crosses compressed, the bytes that cross instead of these values, and how they are
            decoded.
    """

    sender: str
    receiver: str
    kind: Kind
    ids: Tensor
    tensors: Mapping[str, Tensor]
    encoded: Mapping[str, Encoded] = field(default_factory=dict)

    def __post_init__(self) -> None:
        attached = [layer for layer, values in self.tensors.items() if values.requires_grad]
        if attached:
            raise ValueError(f"{self.sender} -> {self.receiver}: {attached[0]} still hangs on the sender's graph; detach it")

    @classmethod
    def of(cls, sender: str, receiver: str, kind: Kind, ids: Tensor, sent: Mapping[str, Tensor | Encoded]) -> Message:
        """sent: layer name -> values, or what crosses in their place."""
        encoded = {layer: values for layer, values in sent.items() if isinstance(values, Encoded)}
        read = {layer: values.values if isinstance(values, Encoded) else values for layer, values in sent.items()}
        return cls(sender, receiver, kind, ids, read, encoded)

    @property
    def nbytes(self) -> int:
        """Bytes that cross."""
        plain = {layer: values for layer, values in self.tensors.items() if layer not in self.encoded}
        compressed = sum(encoded.nbytes for encoded in self.encoded.values())
        return compressed + sum(values.numel() * values.element_size() for values in plain.values())

    @property
    def corrected(self) -> dict[str, Tensor]:
        """layer name -> (n, d): the receiver's network input, without the mean of noise that `tensors` still have."""
        return {**self.tensors, **{layer: encoded.corrected for layer, encoded in self.encoded.items()}}


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
