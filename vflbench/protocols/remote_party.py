"""A non-label party that lives in another process, as the session of the label party sees it."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY, Columns
from vflbench.defenses.chain import Chain, Figures
from vflbench.messages.channel import Channel, PartyError, threads_like_this
from vflbench.messages.envelope import Content
from vflbench.messages.message import Kind, Message
from vflbench.messages.message_content import Receiving, Sending
from vflbench.metrics.embedding_privacy import Sent
from vflbench.options import options

_MOST_NAMES, _MOST_LETTERS = 100_000, 200


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_LETTERS and text.isprintable() and text[0] not in "=+-@"


@options
class Announced:
    """What a party says of itself before the run: names and sizes, and nothing of a row.

    layers, sends: of its network. widths: of each layer that it sends. guarded: whether a defense decides if it learns from
    an answer, so that it is told the answer at once. rows: how many it holds.
    """

    numeric: list[str]
    categorical: list[str]
    cardinalities: list[int]
    layers: list[str]
    sends: list[str]
    widths: list[int]
    guarded: bool
    rows: int

    def __post_init__(self) -> None:
        names = [*self.numeric, *self.categorical, *self.layers, *self.sends]
        if len(names) > _MOST_NAMES or any(not _is_name(name) for name in names):
            raise ValueError("it announces names that are none")
        if any(len(set(some)) < len(some) for some in ([*self.numeric, *self.categorical], self.layers)):
            raise ValueError("it announces a name twice")
        if (
            not len(self.sends) == len(self.widths) == len(set(self.sends))
            or not self.layers
            or self.layers[-1] not in self.sends
        ):
            raise ValueError("it announces layers that don't fit together")
        if any(not 1 <= n < 2**31 for n in (*self.widths, *self.cardinalities, self.rows)):
            raise ValueError("it announces sizes that are none")
        if len(self.cardinalities) != len(self.categorical):
            raise ValueError("it announces columns that don't fit together")

    @property
    def columns(self) -> Columns:
        return Columns(tuple(self.numeric), tuple(self.categorical), tuple(self.cardinalities))


class RemoteParty:
    """Has what a session needs of a `NonLabelParty`; rows, network, optimiser and defenses are elsewhere.

    What it is to learn from a batch travels with the request for its next embedding, in one call, unless somebody watches
    the batch or a defense of the party decides whether it learns.
    """

    stopped = ""
    _is_behind = False

    def __init__(self, channel: Channel, announced: Announced, defense: Callable[[], Chain], device: torch.device):
        self.name, self.channel, self.announced, self._device = channel.party, channel, announced, device
        self.layers, self.sends = tuple(announced.layers), tuple(announced.sends)
        self._defense = defense
        self._sending, self._receiving = Sending(), Receiving()
        self._unlearned: dict[str, Any] | None = None
        self._notes: tuple[str, ...] = ()
        self._watched = False
        self._thread = threads_like_this(1)
        self._coming: Future[Content] | None = None

    @property
    def cut_width(self) -> int:
        return self.announced.widths[self.sends.index(self.layers[-1])]

    def embed(self, ids: Tensor, epoch: int = 0, *, watched: bool = False) -> Message:
        self._watched = watched
        request = {"learn": self._taken(), "embed": ids.cpu(), "epoch": epoch, "watched": watched}
        reply = self._step(request)
        return self._message(reply.get("message"), ids)

    def embed_ahead(self, ids: Tensor, epoch: int = 0) -> Future[Message]:
        """The embedding of a batch that follows one of which it has not learned yet; see `learn_behind`. It travels while
        this process goes on.
        """
        request = {"behind": self._taken(), "ahead": ids.cpu(), "epoch": epoch}
        self._wait()
        self._coming = self._thread.submit(self._step, request)
        return self._thread.submit(self._arrived, self._coming, ids)

    def _arrived(self, coming: Future[Content], ids: Tensor) -> Message:
        return self._message(coming.result().get("message"), ids)

    def _wait(self) -> None:
        """Until it has answered what it was asked last."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.result()

    def learn_behind(self, gradient: Message | None, *, watched: bool) -> None:
        """What belongs to the oldest batch that it was asked for by `embed_ahead`; None for no gradient."""
        content = None if gradient is None else self._sending.content(gradient)
        if self._unlearned is not None:  # no further embedding was asked for, with which it would have travelled
            self.settle()
        self._unlearned, self._is_behind = {"gradient": content, "watched": watched}, True

    def learn(self, gradient: Message) -> tuple[str, ...]:
        """At once where it is watched or guarded; else with the next call. Returns lines for the log, of earlier batches
        too.
        """
        self._unlearned = self._sending.content(gradient)
        if self._watched or self.announced.guarded:
            self.settle()
        notes, self._notes = self._notes, ()
        return notes

    def settle(self) -> None:
        """Let it learn what it was not told yet."""
        self._wait()
        if self._unlearned is not None and self._is_behind:
            self._step({"behind": self._taken(), "ahead": None, "epoch": 0})
        elif self._unlearned is not None:
            self._step({"learn": self._taken(), "embed": None, "epoch": 0, "watched": False})

    def call(self, method: str, content: Content) -> Content:
        """After it has learned what it was not told yet."""
        self.settle()
        return self.channel.call(method, content)

    def predict(self, ids: Tensor) -> Message:
        return self._message(self.call("predict", {"ids": ids.cpu()}).get("message"), ids)

    def _taken(self) -> dict[str, Any] | None:
        taken, self._unlearned = self._unlearned, None
        return taken

    def _step(self, request: Content) -> Content:
        reply = self.channel.call("pipelined step" if "behind" in request else "step", request)
        notes, stopped = reply.get("notes"), reply.get("stopped")
        if type(notes) is not list or not all(type(note) is str for note in notes) or type(stopped) is not str:
            raise PartyError(self.name, "it answers what is no answer to a batch")
        self._notes = (*self._notes, *notes)
        self.stopped = stopped
        return reply

    def _message(self, content: Any, ids: Tensor) -> Message:
        """Raises PartyError for anything but the layers, rows and widths that were agreed."""
        agreed = {layer: (len(ids), width) for layer, width in zip(self.sends, self.announced.widths, strict=True)}
        try:
            return self._receiving.message(content, self.name, LABEL_PARTY, Kind.EMBEDDING, ids, agreed)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, IndexError) as error:
            raise PartyError(self.name, f"it sends no embedding as agreed: {type(error).__name__}: {error}") from error

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What the defenses that it was asked to use claim of each layer that crosses."""
        return {layer: self._defense().claims(width) for layer, width in zip(self.sends, self.announced.widths, strict=True)}

    def figures(self) -> list[Figures]:
        """What it says that its defenses counted and measured since the last call."""
        said = self.call("figures", {}).get("figures")
        if type(said) is not dict or not set(said) <= set(self.sends):
            raise PartyError(self.name, "it says figures of no layer that it sends")
        for values in said.values():
            if type(values) is not dict or not all(
                type(name) is str and _is_name(name) and type(value) in (int, float) and abs(value) < 1e300
                for name, value in values.items()
            ):
                raise PartyError(self.name, "it says figures that are no numbers")
        return [Figures(self.name, layer, str(Kind.EMBEDDING), values) for layer, values in said.items()]

    def state(self) -> dict[str, Any]:
        """It keeps its state itself; this is the name under which it does."""
        mark = self.call("save", {}).get("mark")
        if type(mark) is not str or len(mark) > _MOST_LETTERS:
            raise PartyError(self.name, "it doesn't say under which name it keeps its state")
        return {"kept_as": mark}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises PartyError where it has not kept what this session was saved with."""
        self._unlearned, self._notes = None, ()
        self.channel.call("resume", {"mark": str(state["kept_as"])})
        self._sending, self._receiving = Sending(), Receiving()
