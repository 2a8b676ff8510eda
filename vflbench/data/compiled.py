"""Whether compiled parsing pays: it costs half a second to load, and a second more where it was never compiled."""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

LEAST_BYTES, LEAST_BYTES_AT_FIRST = 64 << 20, 192 << 20
"""Of text from which on compiled functions save more CPU seconds than they cost: where numba's cache has them, and else."""

_ROW_BYTES = 128  # of a short row, for a limit of rows


def scanner(size: int, rows: int | None = None) -> ModuleType | None:
    """The module `scan`, where it saves time for texts of so many bytes; None where not, or where numba is not installed.

    rows: the limit of rows to read, if any.
    """
    size = size if rows is None else min(size, rows * _ROW_BYTES)
    cached = any(Path(__file__).with_name("__pycache__").glob("scan.*.nbi"))
    if size < (LEAST_BYTES if cached else LEAST_BYTES_AT_FIRST):
        return None
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":  # as for debugging: hours for what takes seconds
        return None
    try:
        return import_module("vflbench.data.scan")
    except (ImportError, RuntimeError):  # not installed, wrong numpy, or no writable cache folder
        return None
