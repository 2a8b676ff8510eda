"""What depends on the machine: its memory and pages, its denormal numbers, and the precision of its products."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

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


def flushes_denormals() -> bool:
    """Whether this thread takes numbers below 2.2e-308 for 0. Each thread has a setting of its own."""
    return not bool((torch.tensor(1e-310, dtype=torch.float64) * 1.0).item())


_LEAST = 64 << 20
"""Bytes of a tensor from which on it matters: the processor remembers where some thousand pages of 4 KiB lie."""


def on_large_pages(values: Tensor) -> Tensor:
    """The same tensor, whose memory, not written yet, will be laid out in large pages if the system lets a process ask."""
    if values.device.type == "cpu" and values.nbytes >= _LEAST and hasattr(mmap, "MADV_HUGEPAGE"):
        start = -(-values.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (values.data_ptr() + values.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)
    return values


_DEVICES = ("cpu", "cuda")


@contextmanager
def in_full_precision() -> Iterator[None]:
    """Inside, and in what it decorates, torch.autocast rounds nothing: what is computed from float32 is float32."""
    with ExitStack() as stack:
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
