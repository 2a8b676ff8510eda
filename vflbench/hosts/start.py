"""`vflbench parties start KIT`: one party, in the foreground, until Ctrl-C, with FLARE's client or server in it."""

import argparse
import fcntl
import json
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from vflbench.engines.nvflare.kit import LABEL_PARTY, Kit, read_kit
from vflbench.errors import UserError
from vflbench.hosts.commands import UnreachableError, address_of, need_flare, refuse_stranger, refuse_words, split_words
from vflbench.hosts.project import draw_secret

SAID = {
    "Successfully registered client": "connected to the label party",
    "Server started": "ready: waiting for parties",
    "Client: New client": "a party has connected",
    "Launch the job in process": "a run begins",
    "child worker process finished": "the run has ended",
    "Server app stopped": "the run has ended",
    "no connection to server": "the label party can't be reached; trying again",
    "CertificateError": "who answers at the label party's address is not of this project",
    "BYOC not permitted": "refused a run that brings code",
    "component not authorized": "refused a run that asks for other classes than vflbench's",
}
"""What a record of FLARE's contains -> what is printed, once until something else is."""

LOST = SAID["no connection to server"]


class Lines(logging.Handler):
    """A handler that prints records of SAID, and nothing else."""

    def __init__(self, level: int = logging.NOTSET):
        super().__init__(level)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        said = next((said for part, said in SAID.items() if part in text), "")
        if not said and self._last == LOST and "SSL" in text and "is created" in text:
            said = "connected to the label party again"
        if said and (said != self._last or said.startswith("a ")):
            print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stdout, flush=True)
            self._last = said


BEAT = 5
"""Seconds between two signs of life of a party."""

MOST_BYTES = (1 << 30) + (1 << 20)
"""Of a message. The environment variable NVFLARE_STREAMING_MAX_BLOB_SIZE sets another limit."""

SAVING = 10
"""Seconds that the processes of a run get to save what they have learned when they are stopped."""

_PLAIN_PATH = re.compile(r"[\w./+@:,=%-]+")


def start(words: Sequence[str]) -> None:
    """The command. Returns only by raising, or by ending the process."""
    path, _, others = split_words(words, "start", "folder of a party", ())
    refuse_words(others, "start")
    need_flare()
    kit = read_kit(Path(path))
    if not _PLAIN_PATH.fullmatch(str(kit.folder)):
        problem = "NVIDIA FLARE starts processes with this path in a command line: without blanks and quotes, please"
        raise UserError(problem, key="kit", value=str(kit.folder))
    draw_secret(kit.folder)
    if kit.party != LABEL_PARTY:
        with suppress(UnreachableError):  # it may start later: FLARE tries again
            refuse_stranger(kit)
    with _alone(kit):
        _run_flare(kit)


def _run_flare(kit: Kit) -> None:
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    is_label = kit.party == LABEL_PARTY
    host, port = address_of(kit)
    os.environ.setdefault("NVFLARE_STREAMING_MAX_BLOB_SIZE", str(MOST_BYTES))
    os.environ["NVFLARE_DATUM_DIR"] = os.path.join(os.devnull, "none")  # a message can't leave a file at its receiver
    if is_label:
        _refuse_taken(port)
        _own_stores(kit.folder)
        from nvflare.private.fed.app.server.server_train import main
    else:
        from nvflare.private.fed.app.client.client_train import main
    options = ["secure_train=true", "config_folder=config", f"org={kit.party}", f"heart_beat_interval={BEAT}"]
    options += [] if is_label else [f"uid={kit.party}"]
    file = "fed_server.json" if is_label else "fed_client.json"
    arguments = argparse.Namespace(workspace=str(kit.folder), set=options, local_rank=0, fed_server=file, fed_client=file)
    _end_with_children()
    print(f"{kit.party}: {f'server at port {port}' if is_label else f'looking for {host}, port {port}'}", flush=True)
    code = MainProcessMonitor.run(main_func=main, run_dir=arguments.workspace, args=arguments)
    if code:
        raise UserError(f"it has ended with code {code}; log.txt in its folder says why", key=f"party {kit.party}")


def _own_stores(folder: Path) -> None:
    """Let the server keep jobs in its own folder. FLARE's default is one place in /tmp for all projects of a machine."""
    default = folder / "local" / "resources.json.default"
    resources = json.loads(default.read_text(encoding="utf-8"))
    store = folder / "store"
    store.mkdir(mode=0o700, exist_ok=True)
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    for part in resources["components"]:
        if part["id"] == "job_manager":
            part["args"]["uri_root"] = str(store / "jobs")
    (folder / "local" / "resources.json").write_text(json.dumps(resources, indent=1), encoding="utf-8")


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(f"the server can't listen there: {error.strerror}", key="port", value=port) from error


def _end_with_children() -> None:
    """On Ctrl-C and SIGTERM, end this process and those of a run that it started, which have process groups of their own."""
    import psutil

    def end(number: int, _frame: FrameType | None) -> None:
        children = psutil.Process().children(recursive=True)
        for child in children:
            with suppress(psutil.Error):
                child.terminate()
        for child in psutil.wait_procs(children, timeout=SAVING)[1]:
            with suppress(psutil.Error):
                child.kill()
        print("\nstopped", file=sys.stderr, flush=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


@contextmanager
def _alone(kit: Kit) -> Iterator[None]:
    """While entered, no other process may start this party from this folder."""
    with open(kit.folder / "private" / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError("another process has started this party already", key="kit", value=kit.folder) from error
        yield
