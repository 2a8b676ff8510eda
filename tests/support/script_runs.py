"""The programs of scripts/, run in this process: as from the command line, without the seconds that imports take."""

import contextlib
import importlib
import io
import subprocess
import sys
from unittest import mock


def load(name):
    """scripts/NAME.py, loaded anew: pytest finds it by `pythonpath`."""
    return importlib.reload(importlib.import_module(name))


def run(script, *arguments):
    """As `python scripts/SCRIPT.py ARGUMENTS`. script: a name, or what `load` returned."""
    module = load(script) if isinstance(script, str) else script
    words = [f"{module.__name__}.py", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = module.main()
        except SystemExit as exit_:
            code = exit_.code
    if isinstance(code, str):  # sys.exit("message")
        code, message = 1, code
        err.write(message)
    return subprocess.CompletedProcess(words, code or 0, out.getvalue(), err.getvalue())
