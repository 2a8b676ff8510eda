"""A non-label party that lives in another process, as the session of the label party sees it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter
from torch import Tensor

from vflbench.data.table import LABEL_PARTY, Columns
from vflbench.defenses.chain import Chain, Figures
from vflbench.messages.message import Kind, Message
from vflbench.messages.serialize import Content, content_of, message_of
from vflbench.messages.wire import Channel, PartyError, threads_like_this
from vflbench.metrics.privacy import Sent
from vflbench.options import options

_Name = Annotated[str, Field(max_length=200, pattern=r"^[^\p{C}\p{Zl}\p{Zp}=+\-@][^\p{C}\p{Zl}\p{Zp}]*$")]
"""Without control characters, and no formula where a table is opened."""
_Names = Annotated[list[_Name], Field(max_length=100_000)]
_Size = Annotated[int, Field(ge=1, lt=2**31)]
_FIGURES = TypeAdapter(dict[str, dict[_Name, int | Annotated[float, Field(gt=-1e300, lt=1e300)]]])

_T = TypeVar("_T")


def arrived(answers: Sequence[_T | Future[_T]]) -> list[_T]:
    """What all of them answer, those in other processes at the same time."""
    return [answer.result() if isinstance(answer, Future) else answer for answer in answers]


@options
class Announced:
    """What a party says of itself before the run: names and sizes, and nothing of a row.

    layers, sends: of its network. widths: of each layer that it sends. guarded: whether a defense decides if it learns from
    an answer. rows: how many it holds.
    """

    numeric: _Names
    categorical: _Names
    cardinalities: list[_Size]
    layers: Annotated[_Names, Field(min_length=1)]
    sends: _Names
    widths: list[_Size]
    guarded: bool
    rows: _Size

    def __post_init__(self) -> None:
        if any(len({*names}) < len(names) for names in ([*self.numeric, *self.categorical], self.layers, self.sends)):
            raise ValueError("it announces a name twice")
        counts = (len(self.sends), len(self.categorical)), (len(self.widths), len(self.cardinalities))
        if counts[0] != counts[1] or self.layers[-1] not in self.sends:
            raise ValueError("it announces columns or layers that don't fit together")

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
        try:
            said = _FIGURES.validate_python(self.call("figures", {}).get("figures"), strict=True)
        except ValueError as error:
            raise PartyError(self.name, f"it says figures that are none: {error}") from error
        if not set(said) <= set(self.sends):
            raise PartyError(self.name, "it says figures of no layer that it sends")
        return [Figures(self.name, layer, str(Kind.EMBEDDING), values) for layer, values in said.items()]

    def state(self) -> dict[str, Any]:
        """It keeps its state itself; this is the name under which it does."""
        mark = self.call("save", {}).get("mark")
        if type(mark) is not str or len(mark) > 200:
            raise PartyError(self.name, "it doesn't say under which name it keeps its state")
        return {"kept_as": mark}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises PartyError where it has not kept what this session was saved with."""
        self.call("resume", {"mark": str(state["kept_as"])})
