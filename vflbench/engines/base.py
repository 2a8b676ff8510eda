"""Engine: what every entry of configs/engine builds: where parties live."""

from collections.abc import Mapping
from typing import ClassVar

from vflbench.messages.wire import Channel, Wire
from vflbench.options import options


@options
class Engine:
    """Where parties live. A subclass overrides `channels` where that is elsewhere."""

    starts_processes: ClassVar[bool] = False
    """Whether a run has to be started in processes of its own before there are any channels."""

    def channels(self) -> Mapping[str, Channel]:
        """Party -> the way to it, of every non-label party that lives in another process."""
        return {}

    def stop_asked(self) -> int:
        """The signal with which somebody outside this process asks the run to stop after the batch in hand; 0 for none."""
        return 0

    def wire(self) -> Wire:
        """A wire of this engine, the only door between parties."""
        return Wire()
