"""The entry point: `vflbench train | audit | ...`, as in COMMANDS. It loads neither torch nor Hydra."""

import importlib
import sys
from collections.abc import Callable

from vflbench.cli.environment import prepare_environment
from vflbench.cli.errors import fail, report_errors

COMMANDS = {
    "train": ("vflbench.cli.train", "train"),
    "audit": ("vflbench.cli.audit", "audit"),
    "grade": ("vflbench.cli.grade", "grade"),
    "prepare": ("vflbench.cli.prepare", "prepare"),
    "parties": ("vflbench.cli.parties", "parties"),
    "report": ("vflbench.cli.report", "report"),
    "list": ("vflbench.cli.listing", "list_choices"),
}
"""Command -> the module and the name of its function, which takes the words after the command."""

USAGE = """vflbench: who can read our labels, or our data, and what does protection cost?

  vflbench train                    train and attack a split network; the embedded data needs no file
  vflbench train --help             its options;  --cfg job shows them all as they would run
  vflbench audit RECORDING          what recorded messages give away; with --fail-above KEY=VALUE a check for CI
  vflbench grade DIR LABELS         grade scores that audit --scores-only made where no labels were
  vflbench prepare dataset=...      read a data set once, for all later runs; train does so by itself if needed
  vflbench parties                  parties on hosts of their own, over mutual TLS: write, compose, check, start, run
  vflbench report DIR [DIR ...]     one page on finished runs, with tables and figures; needs nothing that trains
  vflbench list [GROUP]             datasets, models, defenses, attacks, ... that can be chosen
  vflbench --version

Examples:
  vflbench train 'attack=[norm,spectral]' dataset=criteo dataset.path=train.txt.gz
  vflbench train -m defense=none,max_norm seed=0,1,2
  vflbench audit recorded 'attack=[norm,cosine]' --fail-above leak_auc_two_sided=0.6
  vflbench train --plugins mine attack=loudest   # with the modules and configs in the folder mine
  eval "$(vflbench -sc install=bash)"            # tab completion
"""


def main() -> None:
    """Entry point of the console script."""
    prepare_environment()
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command in ("-sc", "--shell-completion"):
        report_errors(lambda: _function("vflbench.cli.completion", "complete")(arguments, list(COMMANDS)))
    elif command in COMMANDS:
        report_errors(lambda: _function(*COMMANDS[command])(arguments[1:]))
    elif command == "--version":
        from vflbench import __version__

        print(f"vflbench {__version__}")
    elif command in ("-h", "--help", "help"):
        print(USAGE)
    else:
        fail(f"vflbench {command}: there is no such command; there are {', '.join(COMMANDS)} (see: vflbench --help)")


def _function(module: str, name: str) -> Callable[..., None]:
    """A command's function. Its module is imported only now, as some load torch."""
    return getattr(importlib.import_module(module), name)
