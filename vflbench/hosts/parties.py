"""`vflbench parties write | compose | check | start | run`: parties on hosts of their own, over mutual TLS."""

import importlib.util
from collections.abc import Sequence

from vflbench.errors import UserError
from vflbench.places import pip_install

COMMANDS = {
    "write": ("vflbench.hosts.parties_write", "write"),
    "compose": ("vflbench.hosts.parties_compose", "compose"),
    "check": ("vflbench.hosts.parties_check", "check"),
    "start": ("vflbench.hosts.parties_start", "start"),
    "run": ("vflbench.hosts.parties_run", "run"),
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
    module, function = COMMANDS[name]
    getattr(importlib.import_module(module), function)(words)


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
