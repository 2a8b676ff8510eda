"""Each party in a process of its own, as a client of NVIDIA FLARE. This module needs no nvflare.

The label party is the process that runs the experiment. FLARE's server, another process of the same machine, connects to it
and hands its calls on (`components.Relay`):

    label party  -- a socket for each party -->  FLARE's server  -- Collab API -->  the party's process

Both ways carry a method's name and bytes.
"""

import importlib.util
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from vflbench.engines.base import Engine
from vflbench.errors import UserError, pip_install
from vflbench.files import open_to_write
from vflbench.messages.serialize import Channel, Content, PartyError, decode, encode
from vflbench.options import Range, options

MIB = 1 << 20
RUN_FILE = "run.json"
SERVER = "server"
MORE = "more"
"""The method that asks for the answer to the last call, which takes its time."""
AGAIN = "the same command goes on from what was saved last"

CONTROLLER, RELAY, EXECUTOR = (
    f"vflbench.engines.components.{name}" for name in ("LabelPartyController", "Relay", "PartyExecutor")
)
PARTY, PARTY_AT_HOST = "vflbench.hosts.sites.PartySite", "vflbench.hosts.sites.PartyAtHost"
"""What FLARE builds in its processes."""
Lost = Callable[[str], str]
"""Why the party at a site will not answer any more; empty as long as it may."""

_LOOK_SECONDS = 0.25
_GRACE = 10.0  # seconds after the timeout of a call in which FLARE's server says so


@options
class NvFlare(Engine):
    """Non-label parties are clients of NVIDIA FLARE; messages are bytes in calls of its Collab API.

    The processes are started by `vflbench.hosts.run`; then `Connected` replaces this class.

    timeout, start_timeout: seconds. workspace: a folder that doesn't exist.
    """

    starts_processes: ClassVar[bool] = True

    mode: Literal["simulator", "provisioned"] = "simulator"
    timeout: Annotated[float, Range(1.0, 1e6)] = 60.0
    start_timeout: Annotated[float, Range(1.0, 1e6)] = 120.0
    max_message_mib: Annotated[int, Range(1, 1 << 14)] = 1024
    workspace: str | None = None

    def require_installed(self) -> None:
        """Raises UserError where FLARE is not installed."""
        if importlib.util.find_spec("nvflare") is None:
            raise UserError(f"it needs NVIDIA FLARE: {pip_install('nvflare')}", key="engine", value="nvflare")


class Connected(Engine):
    """The engine of a run whose other parties are at the ends of channels."""

    def __init__(self, channels: Mapping[str, Channel]):
        self._channels = channels

    def channels(self) -> Mapping[str, Channel]:
        return self._channels


def write_job(
    folder: Path,
    run: Mapping[str, Any],
    parties: Mapping[str, Mapping[str, Any]],
    server: Mapping[str, Any],
    party_site: str,
    start_timeout: float = 120.0,
) -> Path:
    """Write a job of FLARE as a new folder of JSON files, which bring no code: each site has vflbench installed.

    run: what all sites are asked. parties: site -> settings of that site alone; server: those of the server. Both go to
    the site's run.json, for whoever wants to read it. party_site: the class of a party. start_timeout: seconds that all
    sites may take to be ready. Raises TypeError or ValueError for what JSON doesn't have.
    """
    controller = {"server_obj_id": "relay", "sync_task_timeout": start_timeout, "max_inbound_call_threads": 1}
    executor = {"path": EXECUTOR, "args": {"client_obj_id": "party"}}
    of_server = {
        "server": {"task_request_interval": 0.1},  # seconds between two looks of a client for the tasks that set it up
        "components": [{"id": "relay", "path": RELAY, "args": {}}],
        "workflows": [{"id": "controller", "path": CONTROLLER, "args": controller}],
    }
    of_client = {
        "components": [{"id": "party", "path": party_site, "args": {}}],
        "executors": [{"tasks": ["*"], "executor": executor}],
    }
    meta = {
        "name": "vflbench",
        "resource_spec": {},
        "min_clients": len(parties),
        "mandatory_clients": list(parties),
        "deploy_map": {f"app_{site}": [site] for site in (SERVER, *parties)},
    }
    files: dict[str, Any] = {"meta.json": meta}
    for site, settings in {SERVER: server, **parties}.items():
        name, config = ("config_fed_server.json", of_server) if site == SERVER else ("config_fed_client.json", of_client)
        filters: dict[str, Any] = {"format_version": 2, "task_data_filters": [], "task_result_filters": []}
        files[f"app_{site}/config/{name}"] = filters | config
        files[f"app_{site}/config/{RUN_FILE}"] = {"run": run, "site": settings}
    for name, content in files.items():
        (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_to_write(folder / name, "x", private=True, encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
    return folder


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """A socket for FLARE's server to connect to, which only this user can reach, and its address."""
    with tempfile.TemporaryDirectory(prefix="vflbench-") as folder, socket.socket(socket.AF_UNIX) as made:
        address = f"{folder}/socket"
        made.bind(address)
        made.listen()
        made.settimeout(_LOOK_SECONDS)
        yield made, address


@contextmanager
def connected(
    listener: socket.socket,
    sites: Mapping[str, str],
    engine: NvFlare,
    problem: Callable[[], str],
    lost: Lost,
) -> Iterator[dict[str, "SocketChannel"]]:
    """Party -> the way to it, once FLARE's server has connected. When the block ends, the server ends too.

    sites: site -> party. problem: why the server will not connect; empty as long as it may.
    """
    deadline = time.monotonic() + engine.start_timeout + _GRACE
    made: dict[str, Connection] = {}
    with ExitStack() as stack:
        while len(made) <= len(sites):  # the server itself is one more
            try:
                accepted = listener.accept()[0]
            except TimeoutError:
                if why := problem():
                    raise UserError(why, key="engine") from None
                if time.monotonic() > deadline:
                    text = f"not all parties were ready after engine.start_timeout={engine.start_timeout:g} seconds"
                    raise UserError(text, key="engine") from None
                continue
            accepted.setblocking(True)
            connection = stack.enter_context(Connection(accepted.detach()))
            made[connection.recv_bytes(1000).decode()] = connection
        yield {party: SocketChannel(party, site, made[site], engine, lost) for site, party in sites.items()}


class SocketChannel:
    """The way to a party, through FLARE's server. Calls to one party come one after the other."""

    def __init__(self, party: str, site: str, connection: Connection, engine: NvFlare, lost: Lost):
        self.party, self._site, self._connection, self._lost = party, site, connection, lost
        self._timeout, self._most = engine.timeout, engine.max_message_mib * MIB
        self._limit = f"engine.max_message_mib={engine.max_message_mib} is the most; a smaller batch_size makes smaller ones"
        self._turn = threading.Lock()

    def call(self, method: str, content: Content) -> Content:
        """Raises PartyError, at the latest when the party has been silent for the timeout of the engine."""
        payload = encode(content)
        if len(payload) > self._most:
            raise PartyError(self.party, f"its {method} takes {len(payload) / MIB:.1f} MiB, and {self._limit}")
        with self._turn:
            answer = self._answer(method, payload)
            while answer.get("pending") is True:
                answer = self._answer(MORE, b"")
        refused, said = answer.get("refused"), answer.get("content")
        if type(refused) is str:
            why = self._lost(self._site)
            raise PartyError(self.party, f"{why}; {AGAIN}" if why else refused)
        if type(said) is not dict:
            raise PartyError(self.party, f"it answers {method!r} with nothing")
        return said

    def _answer(self, method: str, payload: bytes) -> Content:
        deadline = time.monotonic() + self._timeout + _GRACE
        try:
            self._connection.send_bytes(method.encode())
            self._connection.send_bytes(payload)
            while not self._connection.poll(_LOOK_SECONDS):
                why = self._lost(self._site) or ("FLARE's server hangs" if time.monotonic() > deadline else "")
                if why:
                    raise PartyError(self.party, f"{why}; {AGAIN}")
            reply = self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            why = self._lost(self._site) or "FLARE's server has ended, or has ended the job"
            raise PartyError(self.party, f"{why}; {AGAIN}") from error
        try:
            return decode(reply, self._most)
        except ValueError as error:
            raise PartyError(self.party, f"it answers {method!r} with what is no message ({error})") from error


NO_FILE = os.path.join(os.devnull, "none")


def environment(most_mib: int) -> dict[str, str]:
    """Environment variables for FLARE's processes: the largest message, and that none leaves a file at its receiver."""
    return {"NVFLARE_STREAMING_MAX_BLOB_SIZE": str((most_mib + 1) * MIB), "NVFLARE_DATUM_DIR": NO_FILE}
