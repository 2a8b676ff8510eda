"""What makes a process quick on its machine, without changing a result by more than rounding."""

import ctypes
import os
import platform
from typing import Any

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20
_LARGEST_ERROR = 1e-5  # of a float32 product of 512 terms, relative to the largest entry; bfloat16 is at 1e-3
_VALUES_PER_THREAD = 1 << 19
_AVAILABLE = torch.get_num_threads()


def tune() -> dict[str, Any]:
    """Called once in a process, before training. Returns what was done, for the manifest. Nothing depends on the clock.

    malloc: keep memory that activations free, instead of returning it to the kernel and faulting it in again at each step
    (glibc). denormals: flushed to zero. matmul: `medium` lets oneDNN compute float32 products, with AVX-512 where MKL would
    use AVX2; where oneDNN would round them to bfloat16, as with AMX, the default stays.
    """
    return {
        "malloc": "keeps memory" if _keep_memory() else "as it is",
        "denormals": "flushed" if torch.set_flush_denormal(True) else "kept",
        "matmul": _choose_matmul(),
        "threads": torch.get_num_threads(),
    }


def set_threads(rows: int, width: int) -> int:
    """Set torch's threads for batches of `rows` rows in layers of `width` units; returns their number, for the manifest.

    Nothing is changed if the user set OMP_NUM_THREADS. Where a launcher of sweeps set it for this worker, it is a limit.
    Usage, once the batch size is known and before the models are built:

        machine["threads"] = set_threads(batch_size, model.width)
    """
    if "OMP_NUM_THREADS" not in os.environ or os.environ.get("VFLBENCH_THREADS") == "auto":
        torch.set_num_threads(min(_AVAILABLE, choose_threads(rows, width)))
    return torch.get_num_threads()


def choose_threads(rows: int, width: int) -> int:
    """How many threads a batch of this size keeps busy, at least 1; a function of its two arguments only."""
    return max(1, rows * width // _VALUES_PER_THREAD)


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
