"""What a process can do to be quick on its machine without changing a result by more than rounding."""

import ctypes
import platform
from typing import Any

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20
_LARGEST_ERROR = 1e-5  # of a float32 product of 512 terms, relative to the largest entry; bfloat16 is at 1e-3


def tune() -> dict[str, Any]:
    """Once in a process, before training; what was done is for the manifest. Nothing is decided by the clock.

    malloc: keep memory that activations give back, instead of returning it to the kernel and faulting it in again at each
    step (glibc). denormals: flushed to zero. matmul: `medium` lets oneDNN compute float32 products, with AVX-512 where MKL
    would stay with AVX2; where that cuts them to bfloat16, as with AMX, products stay as they are by default.
    """
    return {
        "malloc": "keeps memory" if _keep_memory() else "as it is",
        "denormals": "flushed" if torch.set_flush_denormal(True) else "kept",
        "matmul": _choose_matmul(),
        "threads": torch.get_num_threads(),
    }


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
    """Of a float32 product on the CPU against float64, relative to the largest entry."""
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(256, 512, generator=rng), torch.randn(512, 256, generator=rng)
    exact = a.double() @ b.double()
    return float(((a @ b).double() - exact).abs().max() / exact.abs().max())
