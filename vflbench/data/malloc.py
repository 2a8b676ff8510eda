"""Memory that is freed stays with the process: faulting it in again for each block costs more than parsing it."""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20


def keep_memory() -> bool:
    """Have glibc keep what is freed from now on, up to 32 MiB at a piece. Returns whether it does."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    wanted = {_M_MMAP_THRESHOLD: _LARGEST_MMAP_THRESHOLD, _M_TRIM_THRESHOLD: 2**31 - 1}
    return len(wanted) == sum(mallopt(option, value) == 1 for option, value in wanted.items())


def give_back() -> None:
    """Return to the system what is kept and not used."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
