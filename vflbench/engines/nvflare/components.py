"""What FLARE builds at a site from a job's config: a controller at the label party, an executor at each other party.

They are FLARE's own for the Collab API, with less: calls to one party come one after the other in one thread, no site
answers another party than the label party, and what FLARE's serialisation (FOBS) may build of a message is narrowed to plain
values and bytes. FOBS is msgpack with a decomposer for each class: it builds an object of the class that a message names;
pickle has no part in it. As it comes, it makes a decomposer for any class that is sent, loads classes that a list of its own
allows by name, and has decomposers of arrays, tensors and files that make the receiver fetch further data. A call of ours
holds text and bytes alone, so all of that is switched off.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.executor import CollabExecutor
from nvflare.fuel.utils.fobs import fobs

from vflbench.engines.nvflare.job import RUN_FILE

NEEDED = frozenset(
    {
        "tuple",
        "set",
        "collections.OrderedDict",
        "datetime.datetime",
        "nvflare.apis.client.Client",
        "nvflare.apis.fl_context.FLContext",
        "nvflare.apis.shareable.Shareable",
        "nvflare.fuel.utils.fobs.datum.DatumRef",
        "nvflare.private.admin_defs.Message",
        "nvflare.private.fed.server.run_info.RunInfo",
        "nvflare.private.fed.server.server_state.HotState",
    }
)
"""What FLARE itself sends between the processes of a job, to set it up and to end it."""


def take_plain_messages_alone() -> None:
    """Called in each process of a job, when FLARE has registered what it registers."""
    fobs._register_decomposers()  # now, or it would be done at the first message
    fobs.auto_register_data_classes(False)
    fobs.auto_register_enum_types(False)
    fobs._type_name_whitelist.clear()
    for name in [name for name in fobs._decomposers if name not in NEEDED]:
        del fobs._decomposers[name]
    fobs._dot_handlers.clear()


MOST_PARTIES = 64
"""Calls that are under way at once: one a party."""


class LabelPartyController(CollabController):
    """Sets all sites up, and then calls the `@collab.main` of the label party's component."""

    def __init__(self, server_obj_id: str = "label_party", sync_task_timeout: float = 120.0, call_timeout: float = 60.0):
        super().__init__(
            server_obj_id=server_obj_id,
            sync_task_timeout=sync_task_timeout,
            max_inbound_call_threads=1,
            max_outbound_call_threads=MOST_PARTIES,
            props={"call_timeout": call_timeout},
        )
        self._problem = ""

    finished = threading.Event()
    """Set when the label party's `@collab.main` has returned, or could not begin: there is one job a process."""
    on_loss: ClassVar[list[Callable[[str], object]]] = []
    """Called with the name of a site whose process has ended."""
    too_early = ""
    """The site whose process ended before all were ready."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        super().start_controller(fl_ctx)
        take_plain_messages_alone()

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        try:
            super().control_flow(abort_signal, fl_ctx)
        finally:
            path = asked(fl_ctx)["site"].get("problem")
            if self._problem and path:
                Path(path).write_text(self._problem, encoding="utf-8")
            type(self).finished.set()

    def system_panic(self, reason: str, fl_ctx: FLContext) -> None:
        self._problem = self._problem or reason
        super().system_panic(reason, fl_ctx)

    @classmethod
    def lost(cls, site: str) -> None:
        """Somebody saw that the process of this site has ended."""
        if not cls.on_loss:
            cls.too_early = cls.too_early or site
            cls.finished.set()
        for call in cls.on_loss:
            call(site)


class PartyExecutor(CollabExecutor):
    """Answers the label party: one call at a time, all in one thread."""

    def __init__(self, client_obj_id: str = "party"):
        super().__init__(client_obj_id=client_obj_id, max_inbound_call_threads=1, max_outbound_call_threads=1)

    def _handle_start_run(self, event_type: str, fl_ctx: FLContext) -> None:
        super()._handle_start_run(event_type, fl_ctx)
        take_plain_messages_alone()


def asked(fl_ctx: FLContext) -> dict[str, Any]:
    """What the job asks of this site: {"run": ..., "site": ...}, as `write_job` wrote it."""
    workspace = fl_ctx.get_engine().get_workspace()
    folder = Path(workspace.get_app_config_dir(fl_ctx.get_job_id()))
    content = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not all(isinstance(content.get(part), dict) for part in ("run", "site")):
        raise ValueError(f"{RUN_FILE} of the job asks for nothing")
    return content


def workspace_of(fl_ctx: FLContext) -> Path:
    """The folder of this site, in which FLARE keeps its configuration (local/), credentials (startup/) and jobs."""
    return Path(fl_ctx.get_engine().get_workspace().get_root_dir())


__all__ = ["LabelPartyController", "PartyExecutor", "asked", "workspace_of"]
