"""What FLARE builds in its processes from a job's config: a relay at the server, an executor at each party.

They are FLARE's own for the Collab API, with less: calls to one party come one after the other in one thread, and what
FLARE's serialisation (FOBS) may build of a message is narrowed to plain values and bytes. FOBS is msgpack with a decomposer
for each class: it builds an object of the class that a message names; pickle has no part in it. As it comes, it makes a
decomposer for any class that is sent, loads classes that a list of its own allows by name, and has decomposers of arrays,
tensors and files that make the receiver fetch further data. A call of ours holds text and bytes alone.
"""

import json
import os
import threading
import time
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers.flare_decomposers import ContextDecomposer
from nvflare.collab import collab
from nvflare.collab.api.exceptions import CollabCallError, RunAborted
from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.executor import CollabExecutor
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs.builtin_decomposers import BUILTIN_TYPES
from nvflare.fuel.utils.fobs.datum import DatumRef
from nvflare.fuel.utils.fobs.decomposer import DictDecomposer
from nvflare.fuel.utils.fobs.fobs import auto_register_data_classes, auto_register_enum_types
from nvflare.private.admin_defs import Message
from nvflare.private.fed.server.run_info import RunInfo
from nvflare.private.fed.server.server_state import HotState

from vflbench.engines.nvflare import RUN_FILE
from vflbench.messages.serialize import encode

_PATIENCE = 5.0  # seconds after which a party says that it is still at work
MARK = "VFLBENCH_RUN"
"""An environment variable that all processes of a simulated run inherit, through whatever starts them."""


def take_plain_messages_alone() -> None:
    """Called in each process of a job, when FLARE has registered what it registers. What remains is what FLARE itself sends
    to set a job up and to end it, beside tuples, sets, dates and ordered dicts.
    """
    BUILTIN_TYPES.clear()  # the names that FOBS would load
    auto_register_data_classes(False)
    auto_register_enum_types(False)
    fobs.reset()
    fobs.register(DictDecomposer(Shareable))
    fobs.register(ContextDecomposer)
    fobs.register_data_classes(Client, DatumRef, Message, RunInfo, HotState)


class LabelPartyController(CollabController):
    """Sets all sites up, and then calls the `@collab.main` of the relay."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        super().start_controller(fl_ctx)
        take_plain_messages_alone()


class PartyExecutor(CollabExecutor):
    """Answers the label party: one call at a time, all in one thread."""

    def __init__(self, client_obj_id: str = "party"):
        super().__init__(client_obj_id, max_inbound_call_threads=1)
        self.register_event_handler(EventType.START_RUN, lambda *_: take_plain_messages_alone())


def asked(fl_ctx: FLContext) -> dict[str, Any]:
    """What the job asks of this site: {"run": ..., "site": ...}, as `write_job` wrote it."""
    folder = fl_ctx.get_engine().get_workspace().get_app_config_dir(fl_ctx.get_job_id())
    content: dict[str, Any] = json.loads(Path(folder, RUN_FILE).read_text(encoding="utf-8"))
    return content


class Relay:
    """FLARE's server: connects to the label party's process, and hands its calls on to the parties."""

    @collab.main
    def run(self) -> None:
        """Returns when the label party's process closes the connection, or has ended."""
        site = asked(collab.fl_ctx)["site"]
        with connection.Client(site["socket"], "AF_UNIX") as held:
            held.send_bytes(b"server")
            for proxy in collab.clients:
                threading.Thread(target=relay, args=(proxy, site["socket"], site["timeout"]), daemon=True).start()
            with suppress(EOFError, OSError):
                held.recv_bytes()
        if mark := os.environ.get(MARK):
            kill_marked(mark)
            os._exit(0)


def relay(proxy: Any, address: str, timeout: float) -> None:
    """Hand calls on to one party. timeout: seconds without a sign of life after which a call fails."""
    with suppress(EOFError, OSError), connection.Client(address, "AF_UNIX") as held:
        held.send_bytes(proxy.name.encode())
        while True:
            method, payload = held.recv_bytes().decode(), held.recv_bytes()
            held.send_bytes(answer(proxy, method, payload, timeout))


def answer(proxy: Any, method: str, payload: bytes, timeout: float) -> bytes:
    """What comes back of a call. A party that is at work says so before the timeout."""
    patience = round(1000 * min(_PATIENCE, timeout / 3))
    try:
        reply = proxy(timeout=timeout).call(method=method, payload=payload, patience_ms=patience)
    except RunAborted:
        problem = "FLARE ended the job"
    except CollabCallError as error:
        problem = _failure(method, error, timeout)
    else:
        if type(reply) is bytes:
            return reply
        problem = f"it answers {method!r} with {type(reply).__name__} and not with bytes"
    return encode({"refused": problem})


def _failure(method: str, error: CollabCallError, timeout: float) -> str:
    """What FLARE says of a call that didn't come back, and what to do."""
    cause = " ".join(str(error.cause).split())
    if error.cause_type == "TimeoutError" or "timeout" in cause.lower() or "timed out" in cause.lower():
        return (
            f"it has not answered {method!r} for {timeout:g} seconds; see whether its process runs and can be "
            f"reached, or give it more time with engine.timeout, and run the same command again"
        )
    if "exceeds configured limit" in cause:
        return f"a message of {method!r} is larger than engine.max_message_mib; a smaller batch_size makes smaller messages"
    return f"its {method!r} failed within FLARE ({cause[:200]}); its own log says more"


def marked(mark: str) -> list[psutil.Process]:
    """The processes of the run with this mark, other than this one."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # another user's, or it has ended
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                processes.append(process)
    return processes


def kill_marked(mark: str, seconds: float = 5.0) -> None:
    """Kill them, also those that are stopped, until none is left."""
    deadline = time.monotonic() + seconds
    while (processes := marked(mark)) and time.monotonic() < deadline:
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=1.0)
