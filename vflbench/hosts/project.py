"""`vflbench parties write`: a project of NVIDIA FLARE, provisioned by FLARE itself, with a kit for each party."""

import contextlib
import io
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.engines.nvflare.job import CONTROLLER, EXECUTOR
from vflbench.engines.nvflare.kit import FILE, LABEL_PARTY, LABEL_PARTY_SITE, PARTY_SITE, SECRET, SUBMITTER
from vflbench.errors import UserError
from vflbench.hosts.commands import need_flare, refuse_words, split_words
from vflbench.plain_files import open_to_write

_INSPECT = """## What to look at before

- `party.yaml`: what this party brings, and which experiment it agreed to. Nobody else reads it.
- `local/resources.json.default`: `class_allow_list`, the only classes that a job may use here. They are vflbench's own; code
  that a job brings is refused (`byoc: none` in `local/authorization.json.default`), and so are commands to this host.
- `startup/`: this party's certificate and key, the project's certificate authority, and the address of the label party.
- after a run: `audit.log`, and in the folder named like the job what was asked (`app_{name}/config/run.json`).
"""


def project_readme(names: Sequence[str], host: str, port: int, days: int) -> str:
    """Of the whole project."""
    rows = "\n".join(f"| `{name}/` | party {name}, and nobody else |" for name in names)
    return f"""# A project of vflbench

| folder | who gets it |
|---|---|
| `{LABEL_PARTY}/` | the label party: the server, reached by the others as {host}, port {port} |
| `{SUBMITTER}/` | the label party: the key that submits experiments |
{rows}

Each folder holds a private key. Hand it over so that nobody else can read it, and delete your copy of it here: whoever wrote
this project has had all keys until then. The key of the certificate authority was not kept, so nobody can join this project
later; the certificates are valid for {days} days. With other parties, or after that, write a new project.

Each party runs `vflbench parties start FOLDER` on its host, the label party first. Then the label party runs

    vflbench parties run PROJECT KEY=VALUE ...

in a PROJECT that still holds `{LABEL_PARTY}/` and `{SUBMITTER}/`.
"""


def kit_readme(name: str, host: str, port: int) -> str:
    """Of one party's folder. It names no other party than the label party."""
    if name == LABEL_PARTY:
        role = (
            f"The label party: it holds the labels. The others must reach it as {host}, port {port}; no other port is open."
        )
    else:
        role = f"Party {name}, without labels. It connects to {host}, port {port}; no port of its own has to be open."
    return f"""# {name}

{role}
Everything in here stays with this party; `startup/` and `private/` hold its keys.

    pip install 'vflbench[nvflare]'      # the same version at every party
    vflbench parties check .             # the table can be read, the label party can be reached
    vflbench parties start .             # stays connected; Ctrl-C ends it

{_INSPECT.format(name="server" if name == LABEL_PARTY else name)}"""


def party_file(name: str, others: Sequence[str] = ()) -> str:
    """party.yaml as it is written at first. others: in that of the label party."""
    named = f"\nothers: [{', '.join(others)}] # who takes part where each party has a file of its own\n" if others else ""
    own = "the labels and its own columns" if name == LABEL_PARTY else "its own columns"
    return f"""# What party {name} brings, and what it agreed to. Only this party reads it. Paths begin in this folder.
party: {name}

data: {{}} # {own}: options of dataset= of this party alone, as {{path: table.csv}}; {{}}: as the experiment says

experiment: null # the FILE of `vflbench parties compose` that this party agreed to: any other is refused | any | null: none

output: runs # where results and checkpoints of this party are written
{named}"""


PROJECT = "vflbench"
ADMIN = "submit@vflbench.org"
"""FLARE wants a user to be named like an address. It is a name in a certificate; nothing is sent there."""

LINES = "vflbench.hosts.start.Lines"
"""The handler of log records that writes to the terminal."""

_SCRIPTS = ("start", "sub_start", "stop_fl")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_RESERVED = (LABEL_PARTY, SUBMITTER, "server", "all", "admin", "client")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?")
_MOST_PARTIES = 64
_PERMISSIONS = {
    "format_version": "1.0",
    "permissions": {
        "lead": {
            "submit_job": "any",
            "clone_job": "none",
            "manage_job": "any",
            "download_job": "none",
            "view": "any",
            "operate": "none",
            "shell_commands": "none",
            "byoc": "none",
            "server-predeployed-flwr": "none",
        }
    },
}
"""What the submitter may ask of a site: to run, list and abort jobs. No code of a job's own, no commands, no shut-down."""


def write(words: Sequence[str]) -> None:
    """The command."""
    project, options, others = split_words(words, "write", "folder", ("parties", "host", "port", "days"))
    refuse_words(others, "write")
    names = party_names(options.get("parties", "[a]"))
    host = options.get("host", "localhost")
    if not _HOST.fullmatch(host):
        raise UserError("it must be a name or an address under which the label party is reached", key="host", value=host)
    port, days = _number(options, "port", 8002, 1, 65535), _number(options, "days", 360, 1, 3650)
    need_flare()
    folder = Path(os.path.abspath(project))
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError("there is something already; a project is never overwritten", key="project", value=project)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".vflbench-parties-", dir=folder.parent) as place:
        made = Path(place) / "project"
        made.mkdir(mode=0o700)
        provision(Path(place) / "work", made, names, host, port, days)
        for name in (LABEL_PARTY, *names):
            complete(made / name, name, host, port, names if name == LABEL_PARTY else ())
        (made / SUBMITTER).chmod(0o700)
        (made / "README.md").write_text(project_readme(names, host, port, days), encoding="utf-8")
        if folder.is_dir():
            folder.rmdir()
        made.rename(folder)
    print(
        f"{Path(project)}: a project of {len(names) + 1} parties. {Path(project) / 'README.md'} says who gets which folder."
    )


def party_names(text: str) -> list[str]:
    """The names in `[a,b]` or `a,b`. Raises UserError."""
    names = [name.strip() for name in text.strip().removeprefix("[").removesuffix("]").split(",")]
    for name in names:
        if not _NAME.fullmatch(name) or name in _RESERVED:
            problem = f"a party's name is of small letters, digits and _, as a,b, and not {', '.join(_RESERVED)}"
            raise UserError(problem, key="parties", value=name)
    if len(set(names)) < len(names):
        raise UserError("a name is there twice", key="parties", value=text)
    if len(names) > _MOST_PARTIES:
        raise UserError(f"there can be at most {_MOST_PARTIES}", key="parties", value=len(names))
    return names


def _number(options: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    text = options.get(key, str(default))
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII) or not least <= int(text) <= most:
        raise UserError(f"it must be a whole number from {least} to {most}", key=key, value=text)
    return int(text)


def provision(work: Path, project: Path, names: Sequence[str], host: str, port: int, days: int) -> None:
    """Let FLARE make the kits, and move them to the project. Keys are in `work` meanwhile, which the caller deletes."""
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
    described = {"api_version": 3, "name": PROJECT, "participants": [server, *clients, admin]}
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config"), CertBuilder(root_valid_days=days)]
    said = io.StringIO()
    old = os.umask(0o077)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            made = Provisioner(str(work), builders).provision(prepare_project(described))
    except ValueError as error:  # such as a name of a host that FLARE does not take
        raise UserError(" ".join(str(error).split()), key="vflbench parties write") from error
    finally:
        os.umask(old)
    if made.get(CtxKey.BUILD_ERROR):
        raise UserError(f"NVIDIA FLARE could not provision it: {' '.join(said.getvalue().split())[-300:]}", key="project")
    kits = Path(made[CtxKey.CURRENT_PROD_DIR])
    for name in (LABEL_PARTY, *names):
        shutil.move(kits / name, project / name)
    shutil.move(kits / ADMIN, project / SUBMITTER)


def complete(kit: Path, name: str, host: str, port: int, others: Sequence[str]) -> None:
    """Give a kit of FLARE's what is ours: what may run there, party.yaml, a secret's place, a start script, a README."""
    is_label = name == LABEL_PARTY
    classes = (CONTROLLER, LABEL_PARTY_SITE) if is_label else (EXECUTOR, PARTY_SITE)
    resources = json.loads((kit / "local" / "resources.json.default").read_text(encoding="utf-8"))
    _write_json(kit / "local" / "resources.json.default", narrowed(resources, classes, is_label=is_label))
    _write_json(kit / "local" / "authorization.json.default", _PERMISSIONS)
    logging = json.loads((kit / "local" / "log_config.json.default").read_text(encoding="utf-8"))
    logging["handlers"]["consoleHandler"] = {"class": LINES, "level": "INFO"}
    _write_json(kit / "local" / "log_config.json.default", logging)
    for file in ("local/privacy.json.sample", "readme.txt", *(f"startup/{name}.sh" for name in _SCRIPTS)):
        (kit / file).unlink()
    script = kit / "start.sh"
    script.write_text('#!/bin/sh\nexec vflbench parties start "$(dirname "$0")" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    (kit / FILE).write_text(party_file(name, others), encoding="utf-8")
    (kit / "README.md").write_text(kit_readme(name, host, port), encoding="utf-8")
    kit.chmod(0o700)


def narrowed(resources: Mapping[str, Any], classes: Sequence[str], *, is_label: bool) -> dict[str, Any]:
    """FLARE's settings of a site: only `classes` may be built from a job, and no log of a party goes to the server."""
    streams = ("site_log_streamer", "log_receiver")
    components = [part for part in resources["components"] if part["id"] not in streams]
    changed: dict[str, Any] = {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(classes),
        "components": components,
    }
    if is_label:
        for server in resources["servers"]:
            server["heart_beat_timeout"] = 30
    else:
        changed["allow_log_streaming"] = False
    return {**resources, **changed}


def draw_secret(kit: Path) -> None:
    """Draw a party's secret into its private folder, once: on its own host, when it first starts."""
    file = kit / SECRET
    if file.exists():
        return
    file.parent.mkdir(mode=0o700, exist_ok=True)
    with open_to_write(file, "x", private=True) as out:
        out.write(f"{secrets.token_hex(32)}\n")


def _write_json(file: Path, content: Any) -> None:
    file.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")
