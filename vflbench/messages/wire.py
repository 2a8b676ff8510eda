"""The only door between parties: messages, and the wires that carry them."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import Tensor

from vflbench.messages.codec import Encoded
from vflbench.options import options


class Kind(StrEnum):
    """What a message holds: embeddings go up to the label party, gradients come down; in federated learning updates go up to
    the server, and the model comes down.
    """

    EMBEDDING = "embedding"
    GRADIENT = "gradient"
    UPDATE = "update"
    MODEL = "model"


@dataclass(frozen=True)
class Message:
    """What one party tells another about one batch.

    sender, receiver: party names.
    ids: (n,) row ids; both sides know them from aligning their rows beforehand, so they are not sent again. None: (0,).
    tensors: layer name -> (n, d), values without any autograd history; of an update or a model, (d,).
    encoded: of layers that cross compressed, the bytes that cross in place of these values, and how they are read.
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

    @property
    def nbytes(self) -> int:
        plain = {layer: values for layer, values in self.tensors.items() if layer not in self.encoded}
        compressed = sum(encoded.nbytes for encoded in self.encoded.values())
        return compressed + sum(values.numel() * values.element_size() for values in plain.values())

    @property
    def corrected(self) -> dict[str, Tensor]:
        """layer name -> (n, d): what the receiver's network gets, without the mean of noise that `tensors` still have."""
        return {**self.tensors, **{layer: encoded.corrected for layer, encoded in self.encoded.items()}}


@dataclass
class Traffic:
    """Messages and bytes in one direction."""

    messages: int = 0
    bytes: int = 0


@options
class Wire:
    """Carries messages, counts them per (sender, receiver, kind), and shows them to `tap` while one is set.

    A subclass overrides `carry`.
    """

    def __post_init__(self) -> None:
        self.traffic: dict[tuple[str, str, Kind], Traffic] = defaultdict(Traffic)
        self.tap: Callable[[Message], None] | None = None

    def carry(self, message: Message) -> Message:
        """Bring the message to its receiver."""
        raise NotImplementedError

    def send(self, message: Message) -> Message:
        """The message as its receiver gets it."""
        count = self.traffic[message.sender, message.receiver, message.kind]
        count.messages += 1
        count.bytes += message.nbytes
        arrived = self.carry(message)
        if self.tap is not None:
            self.tap(arrived)
        return arrived

    def take_traffic(self) -> dict[tuple[str, str, Kind], Traffic]:
        """What was carried since the last call."""
        taken = dict(self.traffic)
        self.traffic.clear()
        return taken

    def state(self) -> list[list[Any]]:
        """What was carried since it was last taken."""
        return traffic_state(self.traffic)

    def restore(self, state: list[list[Any]]) -> None:
        self.traffic.clear()
        self.traffic.update(traffic_from(state))


def traffic_state(traffic: Mapping[tuple[str, str, Kind], Traffic]) -> list[list[Any]]:
    """Rows of sender, receiver, kind, messages, bytes."""
    return [[sender, receiver, str(kind), t.messages, t.bytes] for (sender, receiver, kind), t in traffic.items()]


def traffic_from(state: list[list[Any]]) -> dict[tuple[str, str, Kind], Traffic]:
    return {(sender, receiver, Kind(kind)): Traffic(*counts) for sender, receiver, kind, *counts in state}


@options
class LocalWire(Wire):
    """Both parties in one process: the message arrives as it was sent."""

    def carry(self, message: Message) -> Message:
        return message
