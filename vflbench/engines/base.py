"""Engine: what every entry of configs/engine builds: where parties live."""

from collections.abc import Mapping
from typing import ClassVar

from vflbench.messages.serialize import Channel
from vflbench.messages.wire import Wire
from vflbench.options import options


@options
class Engine:
    """Where parties live. A subclass says `channels` where that is elsewhere."""

    starts_processes: ClassVar[bool] = False
    """Whether a run has to start processes before there are any channels."""

    def channels(self) -> Mapping[str, Channel]:
        """Party -> the way to it, of every non-label party that lives in another process."""
        return {}

    def wire(self) -> Wire:
        """A wire of this engine, the only door between parties."""
        return Wire()


@options
class Local(Engine):
    """Parties are objects in one process: a message arrives as it was sent."""
