"""Each party in a process of its own, as a site of NVIDIA FLARE."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from vflbench.engines.base import Engine
from vflbench.errors import UserError
from vflbench.messages.wire import Channel
from vflbench.options import Mebibytes, Patience, options
from vflbench.places import pip_install


@options
class NvFlare(Engine):
    """Non-label parties are clients of NVIDIA FLARE, the label party is its server; messages are bytes in calls of its
    Collab API.

    A run is started in processes of its own (`vflbench.hosts.one_machine`). In these, `Connected` replaces this class.

    timeout, start_timeout: seconds. workspace: a folder that doesn't exist.
    """

    starts_processes: ClassVar[bool] = True

    mode: Literal["simulator", "provisioned"] = "simulator"
    timeout: Patience = 60.0
    start_timeout: Patience = 120.0
    max_message_mib: Mebibytes = 1024
    workspace: str | None = None

    def require_installed(self) -> None:
        """Raises UserError where FLARE is not installed."""
        if importlib.util.find_spec("nvflare") is None:
            raise UserError(f"it needs NVIDIA FLARE: {pip_install('nvflare')}", key="engine", value="nvflare")


class Connected(Engine):
    """The engine of a run in the label party's process: the other parties are at the ends of channels.

    stop: a file which, when it is there, asks the run to stop, with the number of a signal in it.
    """

    def __init__(self, channels: Mapping[str, Channel], stop: Path | None = None):
        self._channels, self._stop = dict(channels), stop

    def channels(self) -> Mapping[str, Channel]:
        return self._channels

    def stop_asked(self) -> int:
        if self._stop is None or not self._stop.exists():
            return 0
        text = self._stop.read_text(encoding="ascii").strip()
        return int(text) if text in ("2", "15") else 0
