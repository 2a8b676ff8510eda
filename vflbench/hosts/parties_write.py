"""`vflbench parties write`: a project of NVIDIA FLARE, provisioned by FLARE itself, with a kit for each party.

FLARE makes a certificate authority for this project alone, and a key and a certificate for each kit; connections are mutual
TLS. The authority's key is not kept: nobody can join a project later, or be given another party's name. It costs a new
project to add a party.
"""

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
from vflbench.hosts.parties import need_flare, refuse_words, split_words
from vflbench.hosts.parties_texts import kit_readme, party_file, project_readme
from vflbench.plain_files import open_to_write

PROJECT = "vflbench"
ADMIN = "submit@vflbench.org"
"""FLARE wants a user to be named like an address. It is a name in a certificate; nothing is sent there."""

LINES = "vflbench.hosts.parties_lines.Lines"
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
