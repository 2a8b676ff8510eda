"""The entry point: `vflbench train | audit | ...`, as in COMMANDS. It loads neither torch nor Hydra.

What the user got wrong ends every command in one paragraph, with exit code 1.
"""

import argparse
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from vflbench.errors import UserError, nearest
from vflbench.results.terminal import for_stream

TOO_MUCH, NOT_JUDGED = 2, 3
"""Exit codes of --fail-above: a threshold is exceeded; none is, but one could not be judged."""

COMMANDS = {
    "train": "vflbench.cli.command_line:train_command",
    "audit": "vflbench.cli.command_line:audit_command",
    "grade": "vflbench.cli.command_line:grade_command",
    "prepare": "vflbench.cli.prepare:prepare",
    "parties": "vflbench.hosts.commands:parties",
    "report": "vflbench.cli.report:report",
    "reproduce": "vflbench.cli.reproduce:reproduce",
    "list": "vflbench.cli.help:list_choices",
}
"""Command -> its function, which takes the words after the command. Its module is imported only then, as some load torch."""

_USAGE = """vflbench: who can read our labels, or our data, and what does protection cost?

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
        report_errors(lambda: pkgutil.resolve_name("vflbench.cli.help:complete")(arguments, list(COMMANDS)))
    elif command in COMMANDS:
        report_errors(lambda: pkgutil.resolve_name(COMMANDS[command])(arguments[1:]))
    elif command == "--version":
        from vflbench import __version__

        print(f"vflbench {__version__}")
    elif command in ("-h", "--help", "help"):
        print(_USAGE)
    else:
        near = nearest(command, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
        fail(f"vflbench {command}: there is no such command{near} (see: vflbench --help)")


def prepare_environment() -> None:
    """At the start of a command: idle threads sleep, and workers of a sweep can tell who set OMP_NUM_THREADS.

    A launcher of sweeps sets OMP_NUM_THREADS for its workers. VFLBENCH_THREADS=auto says that the user has not set it, so
    that in a worker it limits the number of threads and does not determine it (vflbench/run/settings.py).
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look through all packages for some
    os.environ["VFLBENCH_THREADS"] = "given" if "OMP_NUM_THREADS" in os.environ else "auto"
    prepare_process()


def prepare_process() -> None:
    """At the start of a command, and of a worker of its sweep: before torch is loaded, and before anything is read from the
    working folder.

    OpenMP's threads sleep while they wait, unless the user chose otherwise: by default they spin, which takes the cores from
    other processes; libgomp reads the variable when torch loads it. numba would obey a file of the working folder, down to
    what it unpickles: where there is one, numba counts as absent. No module is taken from the working folder, in this
    process and in those that it starts. Relative entries of PYTHONPATH, and empty ones, as in PYTHONPATH=:/a, are that
    folder; absolute ones stay.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.path.lexists(".numba_config.yaml") and "numba" not in sys.modules:
        sys.modules["numba"] = None  # type: ignore[assignment]  # Python's own way to forbid an import
    os.environ["PYTHONSAFEPATH"] = "1"  # `python -m` of workers would put it first
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    kept = [entry for entry in entries if os.path.isabs(entry)]
    if kept != entries:
        checkout = str(Path(__file__).resolve().parents[2])
        dropped = {os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)} - set(kept)
        if checkout in dropped:  # vflbench itself comes from there: it stays, as the last
            kept.append(checkout)
        sys.path[:] = [place for place in sys.path if place not in dropped] + [p for p in kept[-1:] if p in dropped]
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)


class Judged(SystemExit):
    """The result is there, and a threshold is not known to be kept. Its code is one of these two."""


def report_errors(command: Callable[[], None]) -> None:
    """Run a command. A mistake of the user's ends in one paragraph and exit code 1; a fault of vflbench's, in a traceback.

    Hydra would print errors in its own way. With HYDRA_FULL_ERROR=1 it raises them, so this variable is set here. Whether
    the user had set it is kept in VFLBENCH_TRACEBACK.
    """
    os.environ.setdefault("VFLBENCH_TRACEBACK", "1" if os.environ.get("HYDRA_FULL_ERROR") == "1" else "0")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Judged:
        raise
    except SystemExit as error:
        sys.exit(1 if error.code == 2 else error.code)  # argparse uses 2; here every mistake ends in 1
    except Exception as error:
        fail_with(error)
    except KeyboardInterrupt as error:
        print(f"\n{error}" if str(error) else "\nstopped; the same command goes on from what was saved", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 130))


def fail_with(error: Exception) -> NoReturn:
    """End with one paragraph on a mistake of the user's. A fault of vflbench's is raised, as is what has no reader."""
    from vflbench.cli.mistakes import describe  # late, as it loads Hydra

    text = describe(error)
    if text is None or wants_traceback() or isinstance(error, BrokenPipeError):
        raise error
    fail(text)


def wants_traceback() -> bool:
    """Whether the user asked for tracebacks, by HYDRA_FULL_ERROR=1."""
    return os.environ.get("VFLBENCH_TRACEBACK") == "1"


def fail(text: str) -> NoReturn:
    """Print to stderr, within the width of a terminal, and exit with code 1."""
    print(for_stream(text, sys.stderr), file=sys.stderr)
    sys.exit(1)


class Words(argparse.ArgumentParser):
    """What it refuses ends in one paragraph."""

    def error(self, message: str) -> NoReturn:
        see = f"{self.prog} --help"
        if match := re.fullmatch(r"the following arguments are required: (?P<names>.*)", message):
            for action in self._actions:
                if action.metavar in match["names"].split(", ") and action.nargs != "*":
                    raise UserError(f"it is missing: {action.help}", key=str(action.metavar), see=see)
        if match := re.fullmatch(r"unrecognized arguments: (?P<words>.*)", message):
            words = match["words"].split(" ")
            if words[0].startswith("--") and any(action.metavar == "KEY=VALUE" and action.nargs for action in self._actions):
                flag, _, value = words[0].partition("=")
                following = next((word for word in words[1:2] if "=" not in word and not word.startswith("-")), "VALUE")
                option = f"{flag.lstrip('-').replace('-', '_')}={value or following}"
                raise UserError(f"there is no such flag; options are KEY=VALUE: {option}", key=flag, see=see)
        raise UserError(message, see=see)
