"""Memory that is read here and there, in pages of 2 MiB where Linux has them: with fewer pages, fewer are looked up."""

import ctypes
import mmap
from contextlib import suppress

from torch import Tensor

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
