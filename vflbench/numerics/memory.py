"""Whether arrays of these sizes can be in memory at all: asked before they are made, where that is cheap to know."""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from vflbench.errors import UserError

_CGROUP = Path("/sys/fs/cgroup/memory.max")


@cache
def memory() -> int:
    """Bytes that this process can have at most; a large number where the system doesn't say."""
    known = 1 << 60
    with suppress(OSError, ValueError, AttributeError):
        known = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        known = min(known, int(_CGROUP.read_text()))
    return known


def refuse_too_large(numbers: int, bytes_each: int, what: str, key: str) -> None:
    """Raise UserError if so many numbers don't fit. what: they are, as in "the weights of a layer"."""
    needed = numbers * bytes_each
    if needed > memory():
        problem = f"{what} are {numbers:,} numbers, which take {needed / 2**30:,.0f} GB, and this machine has"
        raise UserError(f"{problem} {memory() / 2**30:,.0f} GB of memory; take fewer or smaller ones", key=key)
