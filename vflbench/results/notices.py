"""Notices that many runs of a sweep would print alike: the first run prints them, in whatever process it is."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_FOLDER = "VFLBENCH_NOTICES"
"""Names a folder with an empty file for each notice that was printed, in the processes of a sweep on one machine."""


@contextmanager
def printed_once() -> Iterator[None]:
    """While entered, `is_new` holds once for each text, in this process and in those that it starts."""
    with TemporaryDirectory(prefix="vflbench_", ignore_cleanup_errors=True) as folder:
        os.environ[_FOLDER] = folder
        try:
            yield
        finally:
            os.environ.pop(_FOLDER, None)


def is_new(text: str) -> bool:
    """Whether no run of this sweep has printed it. True outside a sweep, and where its folder can't be written."""
    folder = os.environ.get(_FOLDER)
    if not folder:
        return True
    file = Path(folder, hashlib.sha256(text.encode()).hexdigest())
    try:
        file.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
