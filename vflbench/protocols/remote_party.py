"""A non-label party that lives in another process, as the session of the label party sees it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from torch import Tensor

from vflbench.data.table import LABEL_PARTY, Columns
from vflbench.defenses.chain import Chain, Figures
from vflbench.messages.message import Kind, Message
from vflbench.messages.serialize import Content, content_of, message_of
from vflbench.messages.wire import Channel, PartyError, threads_like_this
from vflbench.metrics.embedding_privacy import Sent
from vflbench.options import options

_MOST_NAMES, _MOST_LETTERS = 100_000, 200

_T = TypeVar("_T")


def arrived(answers: Sequence[_T | Future[_T]]) -> list[_T]:
    """What all of them answer, those in other processes at the same time."""
    return [answer.result() if isinstance(answer, Future) else answer for answer in answers]


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_LETTERS and text.isprintable() and text[0] not in "=+-@"


@options
class Announced:
    """What a party says of itself before the run: names and sizes, and nothing of a row.

    layers, sends: of its network. widths: of each layer that it sends. guarded: whether a defense decides if it learns from
    an answer. rows: how many it holds.
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
        columns = [*self.numeric, *self.categorical]
        names, sizes = [*columns, *self.layers, *self.sends], [*self.widths, *self.cardinalities, self.rows]
        fits = bool(self.layers) and self.layers[-1] in self.sends and len(self.sends) == len(self.widths)
        for wrong, problem in (
            (len(names) > _MOST_NAMES or not all(map(_is_name, names)), "names that are none"),
            (any(len(set(some)) < len(some) for some in (columns, self.layers, self.sends)), "a name twice"),
            (not fits, "layers that don't fit together"),
            (len(self.cardinalities) != len(self.categorical), "columns that don't fit together"),
            (not all(1 <= size < 2**31 for size in sizes), "sizes that are none"),
        ):
            if wrong:
                raise ValueError(f"it announces {problem}")

    @property
    def columns(self) -> Columns:
        return Columns(tuple(self.numeric), tuple(self.categorical), tuple(self.cardinalities))


class RemoteParty:
    """Has what a session needs of a `NonLabelParty`; rows, network, optimiser and defenses are elsewhere.

    Its calls wait in a line, one after the other, while this process goes on: `embed`, `learn` and `predict` return what
    will bring the answer. stopped: why it takes no further part.
    """

    stopped = ""

    def __init__(self, channel: Channel, announced: Announced, defense: Callable[[], Chain]):
        self.name, self.channel, self.announced, self._defense = channel.party, channel, announced, defense
        self.layers, self.sends = tuple(announced.layers), tuple(announced.sends)
        self._widths = dict(zip(announced.sends, announced.widths, strict=True))
        self._line = threads_like_this(1)

    @property
    def cut_width(self) -> int:
        return self._widths[self.layers[-1]]

    def widths(self, outputs: int) -> dict[str, int]:
        return self._widths

    def embed(self, ids: Tensor, epoch: int = 0, *, watched: bool = False) -> Future[Message]:
        return self._message("embed", ids, {"epoch": epoch, "watched": watched})

    embed_ahead = embed  # the party knows whether it has learned from the batch before

    def learn(self, gradient: Message | None, *, watched: bool = False) -> Future[tuple[str, ...]]:
        """Brings lines for the log."""
        content = {"gradient": None if gradient is None else content_of(gradient), "watched": watched}
        return self._line.submit(self._learned, content)

    learn_behind = learn

    def predict(self, ids: Tensor) -> Future[Message]:
        return self._message("predict", ids, {})

    def call(self, method: str, content: Content) -> Content:
        """Once all earlier calls are answered."""
        return self._line.submit(self.channel.call, method, content).result()

    def _learned(self, content: Content) -> tuple[str, ...]:
        reply = self.channel.call("learn", content)
        notes, stopped = reply.get("notes"), reply.get("stopped")
        if type(notes) is not list or not all(type(note) is str for note in notes) or type(stopped) is not str:
            raise PartyError(self.name, "it answers what is no answer to a batch")
        self.stopped = stopped
        return tuple(notes)

    def _message(self, method: str, ids: Tensor, request: Content) -> Future[Message]:
        """Raises PartyError for anything but the layers, rows and widths that were agreed."""

        def ask(content: Content) -> Message:
            reply = self.channel.call(method, content)
            try:
                return message_of(reply.get("message"), self.name, LABEL_PARTY, Kind.EMBEDDING, ids, self._widths)
            except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, IndexError) as error:
                raise PartyError(self.name, f"it sends no embedding as agreed: {type(error).__name__}: {error}") from error

        return self._line.submit(ask, {"ids": ids.cpu(), **request})

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What the defenses that it was asked to use claim of each layer that crosses."""
        return {layer: self._defense().claims(width) for layer, width in self._widths.items()}

    def figures(self) -> list[Figures]:
        """What it says that its defenses counted and measured since the last call."""
        said = self.call("figures", {}).get("figures")
        if type(said) is not dict or not set(said) <= set(self.sends):
            raise PartyError(self.name, "it says figures of no layer that it sends")
        for values in said.values():
            if type(values) is not dict or not all(
                _is_name(name) and type(value) in (int, float) and abs(value) < 1e300 for name, value in values.items()
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
        self.call("resume", {"mark": str(state["kept_as"])})
