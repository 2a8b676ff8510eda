"""The programs of scripts/, run in this process: as from the command line, without the seconds that imports take."""

import contextlib
import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def load(name: str) -> ModuleType:
    """scripts/NAME.py as a fresh module. A script may import its neighbours."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        with mock.patch.object(sys, "path", [str(SCRIPTS), *sys.path]):
            spec.loader.exec_module(module)
    finally:  # what the script imported stays: extensions such as vl_convert can be loaded once in a process
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
    return module


def run(script: str | ModuleType, *arguments: object) -> subprocess.CompletedProcess[str]:
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
