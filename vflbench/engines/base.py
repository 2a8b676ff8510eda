"""Engine: what every entry of configs/engine builds: where parties live."""

from vflbench.messages.message import Message
from vflbench.messages.wire import Wire
from vflbench.options import options


@options
class Engine:
    """Where parties live, and how messages travel between them. A subclass overrides `carry`."""

    def carry(self, message: Message) -> Message:
        """Bring the message to its receiver; returns it as it arrives."""
        raise NotImplementedError

    def wire(self) -> Wire:
        """A wire of this engine, the only door between parties."""
        return Wire(self.carry)
