"""`python -m vflbench` as a user would call it, in a fork of a process that has loaded what it needs: the same, but quick.

That process is itself a fork of this one, from the end of the collection: what test modules import is there, and no test has
changed anything yet. It reads an order per line, forks, and answers with the exit code.
"""

import atexit
import gc
import importlib
import json
import logging
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

OPEN = {k: v for k, v in os.environ.items() if k not in ("HYDRA_FULL_ERROR", "VFLBENCH_TRACEBACK")}
"""The environment of commands."""

SMALL = ("dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=3")
"""Options of a run that takes less than a second."""

SMALL_JUDGE = "VFLBENCH_TEST_SMALL_JUDGE"
"""An environment variable with which the networks that judge rebuilt rows take 20 steps instead of 500: seconds a run."""

FEW_CANDIDATES = {"_PENALTIES": (0.15,), "_STEPS": 5, "_FEW": 0}
"""What makes a probe that chooses among few candidates, which takes a tenth of the time."""

_UNCHANGED = {"COMP_LINE", "HYDRA_FULL_ERROR", "VFLBENCH_CACHE"}
"""Environment variables that no module reads when it is imported."""

_WARM = ("cli.build", "cli.launcher", "cli.mistakes", "cli.train", "cli.audit", "report.page")
"""Modules that the process imports before it forks; a run would import most of them, which takes seconds."""

_server: tuple[TextIO, TextIO] | None = None
"""Where the process takes orders, and where it answers."""


def command(*arguments, cwd, **environment):
    """`vflbench ARGUMENTS` in the folder `cwd`, with these environment variables besides those of the tests.

    Where these change nothing that is read at the start, the probe has few candidates.
    """
    if set(environment) <= _UNCHANGED:
        return run(arguments, cwd, {**OPEN, **environment}, FEW_CANDIDATES)
    how = {"env": {**OPEN, **environment}, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    return subprocess.run([sys.executable, "-m", "vflbench", *arguments], cwd=cwd, timeout=300, **how)


def script(code, cwd):
    """`python -c CODE` in the folder `cwd`."""
    return run(["-c", code], cwd, OPEN)


def run(arguments, cwd, environment, probe=()):
    """The same, with all variables of the environment. probe: constants of vflbench.metrics.probe."""
    orders, answers = _server
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("out", "err")]
        order = {"arguments": list(arguments), "cwd": str(cwd), "files": files, "probe": dict(probe)}
        order["environment"] = dict(environment)
        print(json.dumps(order), file=orders, flush=True)
        code = json.loads(answers.readline())
        out, err = (Path(file).read_text() for file in files)
    return subprocess.CompletedProcess(["vflbench", *arguments], code, out, err)


def begin():
    """Fork the process that forks commands."""
    global _server
    (order_end, orders), (answers, answer_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number in {*map(int, os.listdir("/proc/self/fd"))} - {0, 1, 2, order_end, answer_end}:
                with suppress(OSError):
                    os.close(number)
            serve(os.fdopen(order_end), os.fdopen(answer_end, "w"))
        finally:
            os._exit(0)
    os.close(order_end)
    os.close(answer_end)
    _server = os.fdopen(orders, "w"), os.fdopen(answers)
    for end in (_server[1].close, partial(os.waitpid, child, 0), _server[0].close):  # the last comes first, and ends it
        atexit.register(end)


def serve(orders, answers):
    line = orders.readline()
    if not line:
        return
    as_python_begins()
    for module in ("scipy.optimize", *(f"vflbench.{name}" for name in _WARM)):
        importlib.import_module(module)
    from hydra import compose, initialize_config_dir

    from vflbench.files import config_folder
    from vflbench.report import charts

    with initialize_config_dir(str(config_folder()), version_base="1.3"):  # the first parse of each kind of override is slow
        words = ("attack=[norm,spectral]", "optimizer.lr=0.05", "model._target_=a.b", "+defense.x={_target_: a.B, size: -1}")
        compose("train", [*words, "name=x_1-y", "model.wide=true", "hydra.run.dir=a/b", "seed=${epochs}"])
    library, kept = charts.library, Path(os.environ["VFLBENCH_CACHE"]) / "library.js"

    def kept_library():
        if not kept.exists():
            kept.write_text(library())
        return kept.read_text()

    charts.library = kept_library  # the script of a page: the same in all, and seconds to make
    gc.freeze()
    while line:
        child = os.fork()
        if child == 0:
            orders.close()
            answers.close()
            obey(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), file=answers, flush=True)
        line = orders.readline()


def as_python_begins():
    """Take back what pytest has changed for its own process."""
    logging.root.handlers.clear()
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    sys.path[:] = [sys.path[0], *(folder for folder in sys.path[1:] if Path(folder).name not in ("tests", "scripts", "bin"))]


def obey(order):
    """Become the process that the order describes, run it, and end."""
    code = 1
    try:
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environment"])
        modes = (os.O_RDONLY, os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_WRONLY)
        for number, (name, mode) in enumerate(zip([os.devnull, *order["files"]], modes, strict=True)):
            os.dup2(os.open(name, mode, 0o600), number)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        if os.environ.pop(SMALL_JUDGE, ""):
            for name in ("vflbench.metrics.inversion", "vflbench.run.grade_reconstruction"):
                importlib.import_module(name)._STEPS = 20
        vars(importlib.import_module("vflbench.metrics.probe")).update(order["probe"])
        sys.path[0] = order["cwd"]  # as `python -m` does, and `python -c`
        sys.argv = ["vflbench", *order["arguments"]]
        if sys.argv[1:2] == ["-c"]:
            exec(sys.argv[2], {"__name__": "__main__"})
        else:
            runpy.run_module("vflbench", run_name="__main__")
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
