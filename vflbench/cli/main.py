"""The entry point: `vflbench train | audit | ...`, as in COMMANDS. It loads neither torch nor Hydra."""

import importlib
import os
import sys
from collections.abc import Callable

from vflbench.cli.environment import prepare_environment
from vflbench.cli.errors import fail, report_errors
from vflbench.errors import nearest

COMMANDS = {
    "train": ("vflbench.cli.train", "train"),
    "audit": ("vflbench.cli.audit", "audit"),
    "grade": ("vflbench.cli.audit", "grade"),
    "prepare": ("vflbench.cli.prepare", "prepare"),
    "parties": ("vflbench.hosts.parties", "parties"),
    "report": ("vflbench.cli.report", "report"),
    "reproduce": ("vflbench.cli.reproduce", "reproduce"),
    "list": ("vflbench.cli.help", "list_choices"),
}
"""Command -> the module and the name of its function, which takes the words after the command."""

USAGE = """vflbench: who can read our labels, or our data, and what does protection cost?

  vflbench train               train and attack a split network; needs no file
  vflbench train --help        options of train; --cfg job shows the config
  vflbench audit RECORDING     what recorded messages give away; a check for CI
                               with --fail-above KEY=VALUE
  vflbench grade DIR LABELS    grade scores that audit --scores-only made
                               without labels
  vflbench prepare dataset=... read a data set once, for all later runs; train
                               does so if needed
  vflbench parties             parties on hosts of their own, over mutual TLS:
                               write, compose, check, start, run
  vflbench report DIR ...      a page on finished runs, with tables and figures
  vflbench reproduce NAME ...  repeat published experiments within a budget of
                               time, beside the published values
  vflbench list [GROUP]        data sets, models, defenses, attacks, ...
  vflbench --version

Examples:
  vflbench train dataset=criteo dataset.path=train.txt.gz
  vflbench train 'attack=[norm,spectral]' defense=marvell
  vflbench train -m defense=none,max_norm seed=0,1,2
  vflbench audit recorded 'attack=[norm,cosine]' --fail-above leak_auc_worst=0.6
  vflbench train --plugins mine attack=loudest
                               with the modules and configs in the folder mine
  eval "$(vflbench -sc install=bash)"          # tab completion
"""


def main() -> None:
    """Entry point of the console script."""
    if sys.stdout is None:  # it was closed by whoever started us
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    prepare_environment()
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command in ("-sc", "--shell-completion"):
        report_errors(lambda: _function("vflbench.cli.help", "complete")(arguments, list(COMMANDS)))
    elif command in COMMANDS:
        report_errors(lambda: _function(*COMMANDS[command])(arguments[1:]))
    elif command == "--version":
        from vflbench import __version__

        print(f"vflbench {__version__}")
    elif command in ("-h", "--help", "help"):
        print(USAGE)
    else:
        near = nearest(command, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
        fail(f"vflbench {command}: there is no such command{near} (see: vflbench --help)")


def _function(module: str, name: str) -> Callable[..., None]:
    """A command's function. Its module is imported only now, as some load torch."""
    return getattr(importlib.import_module(module), name)
