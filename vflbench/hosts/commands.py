"""vflbench parties: each party on a host of its own, over mutual TLS.
It needs pip install 'vflbench[nvflare]'.

  vflbench parties write PROJECT [parties=[a,b]] [host=NAME] [port=8002]
                         [days=360]
      make a project: a folder of its own for the label party and for each other
  vflbench parties compose FILE KEY=VALUE ...
      write the experiment of these options to FILE, for all to read and agree
  vflbench parties check KIT
      what is in a party's folder; whether its table and the server are there
  vflbench parties start KIT
      on each host: stay connected until Ctrl-C; begin with the label party
  vflbench parties run PROJECT [timeout=60] KEY=VALUE ...
      on the label party's host: train and attack with those who are connected

KEY=VALUE are options of `vflbench train`. What each party can inspect:
"Parties on hosts of their own" in the documentation.
"""

import argparse
import contextlib
import fcntl
import importlib.metadata
import io
import json
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from vflbench.cli.build import build
from vflbench.cli.command_line import with_privacy, with_quoted_marks
from vflbench.cli.config import composed, current_config, plain, run_options
from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare import CONTROLLER, EXECUTOR, PARTY_AT_HOST, RELAY, NvFlare, environment
from vflbench.errors import UserError
from vflbench.files import written_whole
from vflbench.hosts.kit import ANY_EXPERIMENT, FILE, SUBMITTER, Kit, draw_secret, read_kit, shared

_COMMANDS = {
    "write": __name__,
    "compose": __name__,
    "check": __name__,
    "start": __name__,
    "run": "vflbench.hosts.run",
}


def parties(arguments: Sequence[str]) -> None:
    """The command."""
    if not arguments or arguments[0] in ("-h", "--help", "help") or {"-h", "--help"} & set(arguments[1:2]):
        print(__doc__)
        return
    name, *words = arguments
    if name not in _COMMANDS:
        problem = f"there is no such command; there are {', '.join(_COMMANDS)}"
        raise UserError(problem, key=f"vflbench parties {name}", see="vflbench parties --help")
    getattr(importlib.import_module(_COMMANDS[name]), name)(words)


def split_words(words: Sequence[str], what: str, allowed: Sequence[str] = ()) -> tuple[str, dict[str, str], list[str]]:
    """The one word that is a path, the options of the command itself, and the other words."""
    paths = [word for word in words if "=" not in word and not word.startswith(("-", "~", "+"))]
    if len(paths) != 1:
        problem = f"it needs one {what}, and got {', '.join(paths) or 'none'}"
        raise UserError(problem, key="vflbench parties", see="vflbench parties --help")
    options = dict(word.split("=", 1) for word in words if word.split("=")[0] in allowed)
    return paths[0], options, [word for word in words if word != paths[0] and word.split("=")[0] not in allowed]


def only_path(words: Sequence[str], what: str, allowed: Sequence[str] = ()) -> tuple[str, dict[str, str]]:
    """The same where there are no other words. Raises UserError for the first, and where FLARE is not installed."""
    path, options, others = split_words(words, what, allowed)
    if others:
        raise UserError("there is no such option", key=others[0].split("=")[0], see="vflbench parties --help")
    NvFlare().require_installed()
    return path, options


ADMIN = "submit@vflbench.org"
"""FLARE wants a user to be named like an address. It is a name in a certificate; nothing is sent there."""

LINES = "vflbench.hosts.commands.Lines"
"""The handler of log records that writes to the terminal."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_RESERVED = (LABEL_PARTY, SUBMITTER, "server", "all", "admin", "client")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?")
_MOST_PARTIES = 64
_RIGHTS = {"submit_job": "any", "manage_job": "any", "view": "any"} | dict.fromkeys(
    ("clone_job", "download_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr"), "none"
)
"""What the submitter may ask of a site: to run, list and abort jobs. No code of a job's own, no commands, no shut-down."""

_README = """# A project of vflbench

| folder | who gets it |
|---|---|
| `label/` | the label party: the server, reached by the others as {host}, port {port} |
| `submit/` | the label party: the key that submits experiments |
{rows}

Each folder holds a private key. Hand it over so that nobody else can read it, and delete your copy of it here: whoever wrote
this project has had all keys until then. The key of the certificate authority was not kept, so nobody can join this project
later; the certificates are valid for {days} days. With other parties, or after that, write a new project.

Each party runs `vflbench parties start FOLDER` on its host, the label party first. Then the label party runs
`vflbench parties run PROJECT KEY=VALUE ...` in a PROJECT that still holds `label/` and `submit/`.
"""
_PARTY = """# What party {name} brings, and what it agreed to. Only this party reads it. Paths begin in this folder.
# The label party is reached as {host}, port {port}. Everything here stays with this party; startup/ and private/ hold keys.
#   vflbench parties check .             # the table can be read, the label party can be reached
#   vflbench parties start .             # stays connected; Ctrl-C ends it
party: {name}

data: {{}} # options of dataset= of this party alone, as {{path: table.csv}}; {{}}: as the experiment says

experiment: null # the FILE of `vflbench parties compose` that this party agreed to: any other is refused | any | null: none

output: runs # where results and checkpoints of this party are written
"""


def write(words: Sequence[str]) -> None:
    """The command."""
    path, options = only_path(words, "folder", ("parties", "host", "port", "days"))
    names, host = party_names(options.get("parties", "[a]")), options.get("host", "localhost")
    if not _HOST.fullmatch(host):
        raise UserError("it must be a name or an address under which the label party is reached", key="host", value=host)
    port, days = number_option(options, "port", 8002, 65535), number_option(options, "days", 360, 3650)
    folder = Path(os.path.abspath(path))
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError("there is something already; a project is never overwritten", key="project", value=path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".vflbench-parties-", dir=folder.parent) as place:
        made = Path(place) / "project"
        made.mkdir(mode=0o700)
        kits = provisioned(Path(place) / "work", names, host, port, days)
        for name in (LABEL_PARTY, *names):
            _complete(kits / name, name, f"others: [{', '.join(names)}]\n" if name == LABEL_PARTY else "", host, port)
            shutil.move(kits / name, made / name)
        shutil.move(kits / ADMIN, made / SUBMITTER)
        (made / SUBMITTER).chmod(0o700)
        rows = "\n".join(f"| `{name}/` | party {name}, and nobody else |" for name in names)
        (made / "README.md").write_text(_README.format(host=host, port=port, days=days, rows=rows), encoding="utf-8")
        if folder.is_dir():
            folder.rmdir()
        made.rename(folder)
    print(f"{path}: a project of {len(names) + 1} parties. {path}/README.md says who gets which folder.")


def party_names(text: str) -> list[str]:
    """The names in `[a,b]` or `a,b`. Raises UserError."""
    names = [name.strip() for name in text.strip().removeprefix("[").removesuffix("]").split(",")]
    for name in names:
        if not _NAME.fullmatch(name) or name in _RESERVED:
            problem = f"a party's name is of small letters, digits and _, as a,b, and not {', '.join(_RESERVED)}"
            raise UserError(problem, key="parties", value=name)
    if len(set(names)) < len(names) or len(names) > _MOST_PARTIES:
        raise UserError(f"a name is there twice, or there are more than {_MOST_PARTIES}", key="parties", value=text)
    return names


def number_option(options: dict[str, str], key: str, default: int, most: int) -> int:
    """An option of a command, from 1 on. Raises UserError."""
    text = options.get(key, str(default))
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII) or not 1 <= int(text) <= most:
        raise UserError(f"it must be a whole number from 1 to {most}", key=key, value=text)
    return int(text)


def provisioned(work: Path, names: Sequence[str], host: str, port: int, days: int) -> Path:
    """The folder of kits that FLARE makes in `work`, which the caller deletes: the key of the authority is there."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    server = {"name": LABEL_PARTY, "type": "server", "org": LABEL_PARTY, "fed_learn_port": port}
    server |= {"default_host": host, "host_names": [host]}
    clients = [{"name": name, "type": "client", "org": name, "allow_log_streaming": False} for name in names]
    admin = {"name": ADMIN, "type": "admin", "org": LABEL_PARTY, "role": "lead"}
    described = {"api_version": 3, "name": "vflbench", "participants": [server, *clients, admin]}
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config"), CertBuilder(root_valid_days=days)]
    said, old = io.StringIO(), os.umask(0o077)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            made = Provisioner(str(work), builders).provision(prepare_project(described))
    except ValueError as error:  # such as a name of a host that FLARE does not take
        raise UserError(" ".join(str(error).split()), key="vflbench parties write") from error
    finally:
        os.umask(old)
    if made.get(CtxKey.BUILD_ERROR):
        raise UserError(f"NVIDIA FLARE could not provision it: {' '.join(said.getvalue().split())[-300:]}", key="project")
    return Path(made[CtxKey.CURRENT_PROD_DIR])


def _complete(kit: Path, name: str, more: str, host: str, port: int) -> None:
    """Give a kit of FLARE's what is ours: what may run there, party.yaml, a start script. more: lines of party.yaml.

    Only the classes of a run may be built from a job, and no log of a party goes to the server.
    """
    is_label = name == LABEL_PARTY
    with _edited(kit / "local" / "resources.json.default") as resources:
        streams = ("site_log_streamer", "log_receiver")
        resources["components"] = [part for part in resources["components"] if part["id"] not in streams]
        resources["class_list_enforcement_mode"] = "enforce"
        resources["class_allow_list"] = [CONTROLLER, RELAY] if is_label else [EXECUTOR, PARTY_AT_HOST]
        if is_label:
            resources["servers"][0]["heart_beat_timeout"] = 30
        else:
            resources["allow_log_streaming"] = False
    with _edited(kit / "local" / "authorization.json.default") as rights:
        rights["permissions"] = {"lead": _RIGHTS}
    with _edited(kit / "local" / "log_config.json.default") as logging:
        logging["handlers"]["consoleHandler"] = {"class": LINES, "level": "INFO"}
    for file in ("readme.txt", "startup/start.sh", "startup/sub_start.sh", "startup/stop_fl.sh"):
        (kit / file).unlink()
    (kit / FILE).write_text(_PARTY.format(name=name, host=host, port=port) + more, encoding="utf-8")
    kit.chmod(0o700)


@contextlib.contextmanager
def _edited(file: Path) -> Any:
    """The content of a JSON file, which is written again."""
    content = json.loads(file.read_text(encoding="utf-8"))
    yield content
    file.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


def compose(words: Sequence[str]) -> None:
    """The command: what would run is built, and written without the options that are the label party's own."""
    path, _, overrides = split_words(words, "file")
    if os.path.lexists(path):
        raise UserError("it is there already; a file is never overwritten", key="FILE", value=path)
    config = composed("train", [*with_quoted_marks(with_privacy(overrides)), "engine=nvflare", "engine.mode=provisioned"])
    with current_config(config):
        chosen = run_options(config)
        build(chosen)
        text = yaml.safe_dump(shared(plain(chosen)), sort_keys=False, allow_unicode=True)
    with written_whole(Path(path), "w", encoding="utf-8") as file:
        file.write(
            f"# An experiment of vflbench, to be named in party.yaml under `experiment:` by all who agree to it.\n{text}"
        )
    print(f"{path}: every party that agrees puts it in its folder, and its name in party.yaml under experiment")


_UNREACHABLE = "the label party can't be reached: {}; has it started, is the port open?"
_PATIENCE = 5.0  # seconds until a host counts as not reachable


class UnreachableError(UserError):
    """Nobody answers there."""


def address_of(kit: Kit) -> tuple[str, int]:
    """Host and port of the label party, as FLARE's settings in startup/ have it."""
    name = "fed_server.json" if kit.is_label else "fed_client.json"
    try:
        settings: dict[str, Any] = json.loads((kit.folder / "startup" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"it is no kit of `vflbench parties write`: {error}", key="kit", value=kit.folder) from error
    host, _, port = settings["servers"][0]["service"]["target"].rpartition(":")
    return host, int(port)


def refuse_stranger(kit: Kit) -> None:
    """Raise UserError where nothing listens at the label party's address, or one side's certificate isn't the project's."""
    startup, (host, port) = kit.folder / "startup", address_of(kit)
    key = f"{host}:{port}"
    try:
        context = ssl.create_default_context(cafile=startup / "rootCA.pem")
        context.check_hostname = False  # FLARE looks at the name in the certificate
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with socket.create_connection((host, port), timeout=_PATIENCE) as plain, context.wrap_socket(plain) as secured:
            secured.sendall(b"GET / HTTP/1.0\r\n\r\n")
            if not secured.recv(1):  # in TLS 1.3 a certificate is refused only now
                raise ConnectionResetError
    except ssl.SSLCertVerificationError as error:
        raise UserError("who answers there has no certificate of this project", key=key) from error
    except ConnectionRefusedError as error:
        raise UnreachableError(_UNREACHABLE.format("nobody listens there"), key=key) from error
    except (ssl.SSLError, ConnectionError) as error:
        problem = "it refuses this party's certificate; is this folder of the same project, and still valid?"
        raise UserError(problem, key=key) from error
    except OSError as error:
        raise UnreachableError(_UNREACHABLE.format(error.strerror or error), key=key) from error


def check(words: Sequence[str]) -> None:
    """The command: a line for each thing. Raises UserError for the first that is wrong."""
    kit = read_kit(Path(only_path(words, "folder of a party")[0]))
    host, port = address_of(kit)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("vflbench", "nvflare", "torch"))
    print(f"party {kit.party}: {versions}")
    for file in (*sorted((kit.folder / "startup").glob("*.key")), *sorted((kit.folder / "private").glob("secret"))):
        if stat.S_IMODE(os.stat(file).st_mode) & 0o077:
            raise UserError("others on this machine can read it: chmod 600", key=str(file))
    agreed = f"one of {len(kit.agreed)} groups of options; another is refused" if isinstance(kit.agreed, dict) else ""
    nothing = "none agreed to, so every run is refused (party.yaml: experiment)"
    print(f"experiment: {agreed or ('any that the label party asks for' if kit.agreed == ANY_EXPERIMENT else nothing)}")
    places = kit.data.get("path", [])
    for place in places if isinstance(places, list) else [places]:
        try:
            Path(place).open("rb").close()
        except OSError as error:
            raise UserError(f"it can't be read: {error.strerror}", key="data.path", value=place) from error
    print(f"data: {', '.join(f'{key}={value}' for key, value in kit.data.items()) or 'as the experiment says'}")
    if kit.is_label:
        print(f"server: the others must reach this host, port {port}")
    else:
        refuse_stranger(kit)
        print(f"label party: {host}, port {port}, can be reached, and takes this party's certificate")


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


class Lines(logging.Handler):
    """A handler that prints records of SAID, and nothing else."""

    _last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        said = next((said for part, said in SAID.items() if part in text), "")
        if said and (said != self._last or said.startswith("a ")):
            print(f"{time.strftime('%H:%M:%S')} {said}", flush=True)
            self._last = said


BEAT = 5
"""Seconds between two signs of life of a party."""

MOST_MIB = 1024
"""Of a message. The environment variable NVFLARE_STREAMING_MAX_BLOB_SIZE sets another limit."""


def start(words: Sequence[str]) -> None:
    """The command: FLARE's server or client, in this process, until Ctrl-C."""
    kit = read_kit(Path(only_path(words, "folder of a party")[0]))
    if not re.fullmatch(r"[\w./+@:,=%-]+", str(kit.folder)):
        problem = "NVIDIA FLARE starts processes with this path in a command line: without blanks and quotes, please"
        raise UserError(problem, key="kit", value=str(kit.folder))
    draw_secret(kit.folder)
    host, port = address_of(kit)
    if kit.is_label:
        _refuse_taken(port)
        _store_jobs_in(kit.folder)
    else:
        with suppress(UnreachableError):  # it may start later: FLARE tries again
            refuse_stranger(kit)
    with open(kit.folder / "private" / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError("another process has started this party already", key="kit", value=kit.folder) from error
        print(f"{kit.party}: {f'server at port {port}' if kit.is_label else f'looking for {host}, port {port}'}")
        sys.stdout.flush()
        _run_flare(kit)


def _run_flare(kit: Kit) -> None:
    os.environ.update(environment(MOST_MIB) | os.environ)
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    if kit.is_label:
        from nvflare.private.fed.app.server.server_train import main
    else:
        from nvflare.private.fed.app.client.client_train import main
    options = ["secure_train=true", "config_folder=config", f"org={kit.party}", f"heart_beat_interval={BEAT}"]
    options += [] if kit.is_label else [f"uid={kit.party}"]
    arguments = argparse.Namespace(workspace=str(kit.folder), set=options, local_rank=0)
    arguments.fed_server, arguments.fed_client = "fed_server.json", "fed_client.json"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_with_children)
    if code := MainProcessMonitor.run(main_func=main, run_dir=arguments.workspace, args=arguments):
        raise UserError(f"it has ended with code {code}; log.txt in its folder says why", key=f"party {kit.party}")


def _end_with_children(number: int, _frame: FrameType | None) -> None:
    """End this process, and those of a run that it started, which have process groups of their own."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _store_jobs_in(folder: Path) -> None:
    """Let the server keep jobs in its own folder. FLARE's default is one place in /tmp for all projects of a machine."""
    local, store = folder / "local", folder / "store"
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    store.mkdir(mode=0o700, exist_ok=True)
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    next(part for part in resources["components"] if part["id"] == "job_manager")["args"]["uri_root"] = str(store / "jobs")
    (local / "resources.json").write_text(json.dumps(resources, indent=1), encoding="utf-8")


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(f"the server can't listen there: {error.strerror}", key="port", value=port) from error
