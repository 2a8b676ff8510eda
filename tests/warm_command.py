"""`python -m vflbench` in a fork of a process that has imported everything: the same, without the seconds that takes.

As a script it is that process: it reads an order a line, forks, and answers with the exit code.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

UNCHANGED = {"COMP_LINE", "HYDRA_FULL_ERROR", "VFLBENCH_CACHE"}
"""What of the environment nothing reads while it is imported."""

_server: subprocess.Popen | None = None


def run(arguments, cwd, environment) -> subprocess.CompletedProcess:
    """What subprocess.run([python, "-m", "vflbench", *arguments]) gives. environment: all of it."""
    global _server
    if _server is None or _server.poll() is not None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        _server = subprocess.Popen([sys.executable, __file__], **pipes)
        atexit.register(stop)
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("out", "err")]
        order = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment), "files": files}
        _server.stdin.write(json.dumps(order) + "\n")
        _server.stdin.flush()
        code = json.loads(_server.stdout.readline())
        out, err = (Path(file).read_text() for file in files)
    return subprocess.CompletedProcess(["vflbench", *arguments], code, out, err)


def stop() -> None:
    """Its input ends, and so does it."""
    _server.stdin.close()
    _server.wait()
    _server.stdout.close()


def serve() -> None:
    import hydra
    import torch  # noqa: F401

    assert hydra
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            obey(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


def obey(order) -> None:
    """As the process that the order asks for; it ends here."""
    code = 1
    try:
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environment"])
        modes = (os.O_RDONLY, os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_WRONLY)
        for number, (name, mode) in enumerate(zip([os.devnull, *order["files"]], modes, strict=True)):
            os.dup2(os.open(name, mode, 0o600), number)
        sys.path[0] = order["cwd"]
        sys.argv = ["vflbench", *order["arguments"]]
        vflbench_main()
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def vflbench_main() -> None:
    from vflbench.cli.main import main

    main()


if __name__ == "__main__":
    serve()
