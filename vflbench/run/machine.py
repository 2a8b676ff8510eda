"""What makes a process quick on its machine, without changing a result by more than rounding."""

import ctypes
import os
import platform
from typing import Any

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20
_LARGEST_ERROR = 1e-5  # of a float32 product of 512 terms, relative to the largest entry; bfloat16 is at 1e-3
_PRODUCTS_PER_THREAD = 1 << 24
_AVAILABLE = torch.get_num_threads()


def tune() -> dict[str, Any]:
    """Called at the start of a run. Returns what was done, for the manifest. Nothing depends on the clock.

    malloc: keep memory that activations free, instead of returning it to the kernel and faulting it in again at each step
    (glibc). denormals: flushed to zero. matmul: `medium` lets oneDNN compute float32 products, with AVX-512 where MKL would
    use AVX2; where oneDNN would round them to bfloat16, as with AMX, the default stays. threads: as many as when the process
    began, so that data are loaded in the same way whatever ran in this process before.
    """
    if _may_choose_threads():
        torch.set_num_threads(_AVAILABLE)
    return {
        "malloc": "keeps memory" if _keep_memory() else "as it is",
        "denormals": "flushed" if torch.set_flush_denormal(True) else "kept",
        "matmul": _choose_matmul(),
        "threads": torch.get_num_threads(),
    }


def set_threads(rows: int, width: int) -> int:
    """Set torch's threads for batches of `rows` rows in layers of `width` units. Returns their number, for the manifest.

    If the user set OMP_NUM_THREADS, nothing is changed. If a launcher of sweeps set it for this worker, it is a limit.
    Usage, once the batch size is known and before the models are built, as the compiled optimiser reads the number then:

        machine["threads"] = set_threads(batch_size, model.width)
    """
    if _may_choose_threads():
        torch.set_num_threads(min(_AVAILABLE, choose_threads(rows, width)))
    return torch.get_num_threads()


def use_threads(count: int) -> None:
    """Set torch's threads to so many, as a run had, unless the user set OMP_NUM_THREADS; never more than there are."""
    if _may_choose_threads():
        torch.set_num_threads(min(_AVAILABLE, count))


def helpers_beside(threads: int) -> int:
    """How many threads, each with so many of torch's, this machine keeps busy."""
    return max(1, _AVAILABLE // max(1, threads))


def _may_choose_threads() -> bool:
    """Whether OMP_NUM_THREADS is free, or was set by a launcher (see vflbench/cli/environment.py)."""
    return "OMP_NUM_THREADS" not in os.environ or os.environ.get("VFLBENCH_THREADS") == "auto"


def choose_threads(rows: int, width: int) -> int:
    """The number of threads that a batch keeps busy, at least 1. Depends on nothing but its arguments.

    A layer costs rows * width^2 multiplications; a thread needs 2^24 of them to repay its coordination. Two threads against
    one, time of a step of wide_deep on two idle cores, with idle threads asleep:

        rows x width    512 x 128   1024 x 128   2048 x 128   256 x 512   512 x 512   2048 x 512
        products        2^23        2^24         2^25         2^26        2^27        2^29
        speed-up        0.64        0.89         1.13         1.42        1.56        1.85
    """
    return max(1, rows * width**2 // _PRODUCTS_PER_THREAD)


def _keep_memory() -> bool:
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    wanted = {_M_MMAP_THRESHOLD: _LARGEST_MMAP_THRESHOLD, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 64 << 20}
    done = [mallopt(option, value) == 1 for option, value in wanted.items()]
    return all(done)


def _choose_matmul() -> str:
    torch.set_float32_matmul_precision("medium")
    if product_error() > _LARGEST_ERROR:
        torch.set_float32_matmul_precision("highest")
    return torch.get_float32_matmul_precision()


def product_error() -> float:
    """The error of a float32 product on the CPU against float64, relative to the largest entry."""
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(256, 512, generator=rng), torch.randn(512, 256, generator=rng)
    exact = a.double() @ b.double()
    return float(((a @ b).double() - exact).abs().max() / exact.abs().max())
