"""`vflbench parties write | compose | check | start | run`: parties on hosts of their own, over mutual TLS."""

import importlib.metadata
import importlib.util
import json
import os
import socket
import ssl
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vflbench.engines.nvflare.kit import ANY, LABEL_PARTY, Kit, read_kit, shared
from vflbench.errors import UserError
from vflbench.places import pip_install
from vflbench.plain_files import written_whole

COMMANDS = {
    "write": "vflbench.hosts.project",
    "compose": __name__,
    "check": __name__,
    "start": "vflbench.hosts.start",
    "run": "vflbench.hosts.run",
}

USAGE = """vflbench parties: each party on a host of its own, over mutual TLS.
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


def parties(arguments: Sequence[str]) -> None:
    """The command."""
    if not arguments or arguments[0] in ("-h", "--help", "help") or {"-h", "--help"} & set(arguments[1:2]):
        print(USAGE)
        return
    name, *words = arguments
    if name not in COMMANDS:
        problem = f"there is no such command; there are {', '.join(COMMANDS)}"
        raise UserError(problem, key=f"vflbench parties {name}", see="vflbench parties --help")
    getattr(importlib.import_module(COMMANDS[name]), name)(words)


def split_words(words: Sequence[str], command: str, what: str, own: Sequence[str]) -> tuple[str, dict[str, str], list[str]]:
    """The one word that is a path, the options of the command itself, and the other words."""
    paths = [word for word in words if "=" not in word and not word.startswith(("-", "~", "+"))]
    if len(paths) != 1:
        problem = f"it needs one {what}, and got {', '.join(paths) or 'none'}"
        raise UserError(problem, key=f"vflbench parties {command}", see="vflbench parties --help")
    options = dict(word.split("=", 1) for word in words if word.split("=")[0] in own)
    return paths[0], options, [word for word in words if word != paths[0] and word.split("=")[0] not in own]


def need_flare() -> None:
    """Raise UserError where NVIDIA FLARE is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise UserError(f"it needs NVIDIA FLARE: {pip_install('nvflare')}", key="vflbench parties")


def refuse_words(words: Sequence[str], command: str) -> None:
    """Raise UserError for the first word that a command doesn't know."""
    if words:
        raise UserError("there is no such option", key=words[0].split("=")[0], see=f"vflbench parties --help ({command})")


_UNREACHABLE = "the label party can't be reached: {}; has it started, is the port open?"
_PATIENCE = 5.0  # seconds until a host counts as not reachable


class UnreachableError(UserError):
    """Nobody answers there."""


def settings_of(kit: Kit) -> dict[str, Any]:
    """FLARE's settings in startup/: of the server, or of a client."""
    name = "fed_server.json" if kit.party == LABEL_PARTY else "fed_client.json"
    try:
        content = json.loads((kit.folder / "startup" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"it is no kit of `vflbench parties write`: {error}", key="kit", value=kit.folder) from error
    return dict(content)


def address_of(kit: Kit) -> tuple[str, int]:
    """Host and port of the label party."""
    host, _, port = settings_of(kit)["servers"][0]["service"]["target"].rpartition(":")
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
            answered = secured.recv(1)  # in TLS 1.3 a certificate is refused only now
            if not answered:
                raise ConnectionResetError
    except ssl.SSLCertVerificationError as error:
        raise UserError("who answers there has no certificate of this project", key=key) from error
    except (ssl.SSLError, ConnectionError) as error:
        if isinstance(error, ConnectionRefusedError):
            raise UnreachableError(_UNREACHABLE.format("nobody listens there"), key=key) from error
        problem = "it refuses this party's certificate; is this folder of the same project, and still valid?"
        raise UserError(problem, key=key) from error
    except OSError as error:
        raise UnreachableError(_UNREACHABLE.format(error.strerror or error), key=key) from error


def check(words: Sequence[str]) -> None:
    """The command: a line for each thing. Raises UserError for the first that is wrong."""
    path, _, others = split_words(words, "check", "folder of a party", ())
    refuse_words(others, "check")
    need_flare()
    kit = read_kit(Path(path))
    settings_of(kit)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("vflbench", "nvflare", "torch"))
    print(f"party {kit.party}: {versions}")
    refuse_readable_keys(kit)
    print(f"experiment: {_agreement(kit)}")
    print(f"data: {table_line(kit)}")
    host, port = address_of(kit)
    if kit.party == LABEL_PARTY:
        print(f"server: the others must reach this host, port {port}")
    else:
        refuse_stranger(kit)
        print(f"label party: {host}, port {port}, can be reached, and takes this party's certificate")


def refuse_readable_keys(kit: Kit) -> None:
    """Raise UserError where others on this machine can read a private key or the secret."""
    for file in (*sorted((kit.folder / "startup").glob("*.key")), *sorted((kit.folder / "private").glob("secret"))):
        if stat.S_IMODE(os.stat(file).st_mode) & 0o077:
            raise UserError("others on this machine can read it: chmod 600", key=str(file))


def table_line(kit: Kit) -> str:
    """What is known of the party's table. Raises UserError where it can't be read."""
    places = kit.data.get("path")
    for place in places if isinstance(places, list) else [places] if places else []:
        try:
            with open(place, "rb") as file:
                file.read(1)
        except OSError as error:
            raise UserError(f"it can't be read: {error.strerror}", key="data.path", value=str(place)) from error
    return ", ".join(f"{key}={value}" for key, value in kit.data.items()) or "as the experiment says"


def _agreement(kit: Kit) -> str:
    if kit.agreed is None:
        return "none agreed to, so every run is refused (party.yaml: experiment)"
    if kit.agreed == ANY:
        return "any that the label party asks for"
    return f"one of {len(kit.agreed)} groups of options; another is refused"


def compose(words: Sequence[str]) -> None:
    """The command: what would run is built, and written without the options that are the label party's own."""
    from vflbench.cli.build import build
    from vflbench.cli.command_line import with_privacy, with_quoted_marks
    from vflbench.cli.config import composed, current_config, own_options, plain

    path, _, overrides = split_words(words, "compose", "file", ())
    if os.path.lexists(path):
        raise UserError("it is there already; a file is never overwritten", key="FILE", value=path)
    words = [*with_quoted_marks(with_privacy(overrides)), "engine=nvflare", "engine.mode=provisioned"]
    config = composed("train", words)
    with current_config(config):
        chosen = own_options(config)
        build(chosen)
        options = shared(plain(chosen))
    text = yaml.safe_dump(options, sort_keys=False, allow_unicode=True)
    with written_whole(Path(path), "w", encoding="utf-8") as file:
        file.write(
            f"# An experiment of vflbench, to be named in party.yaml under `experiment:` by all who agree to it.\n{text}"
        )
    print(f"{path}: every party that agrees puts it in its folder, and its name in party.yaml under experiment")
