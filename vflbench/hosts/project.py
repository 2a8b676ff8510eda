"""`vflbench parties write`: a project of NVIDIA FLARE, provisioned by FLARE itself, with a kit for each party."""

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare.engine import CONTROLLER, EXECUTOR, RELAY
from vflbench.errors import UserError
from vflbench.hosts.commands import only_path
from vflbench.hosts.kit import FILE, SUBMITTER

ADMIN = "submit@vflbench.org"
"""FLARE wants a user to be named like an address. It is a name in a certificate; nothing is sent there."""

PARTY_SITE = "vflbench.hosts.sites.PartyAtHost"
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
        resources["class_allow_list"] = [CONTROLLER, RELAY] if is_label else [EXECUTOR, PARTY_SITE]
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
