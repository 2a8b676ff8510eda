"""How commands end: what the user got wrong is reported in one paragraph, with exit code 1."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from vflbench.results.terminal import for_stream

TOO_MUCH, NOT_JUDGED = 2, 3
"""Exit codes of --fail-above: a threshold is exceeded; none is, but one could not be judged."""


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
        from vflbench.cli.mistakes import describe

        text = describe(error)
        if text is None or wants_traceback():
            raise
        fail(text)
    except KeyboardInterrupt as error:
        print(f"\n{error}" if str(error) else "\nstopped; the same command goes on from what was saved", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 130))


def wants_traceback() -> bool:
    """Whether the user asked for tracebacks, by HYDRA_FULL_ERROR=1."""
    return os.environ.get("VFLBENCH_TRACEBACK") == "1"


def fail(text: str) -> NoReturn:
    """Print to stderr, within the width of a terminal, and exit with code 1."""
    print(for_stream(text, sys.stderr), file=sys.stderr)
    sys.exit(1)
