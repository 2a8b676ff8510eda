"""Settings of a run that belong to no component, its device, and what makes a process quick on its machine."""

import ctypes
import os
import platform
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from vflbench.errors import UserError
from vflbench.numerics.system import flushes_denormals
from vflbench.options import NonNegativeInt, Number, Rows, Seed, Steps, options

_MALLOC = ((-3, 32 << 20), (-1, 2**31 - 1), (-2, 64 << 20))  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD of malloc.h
_LARGEST_ERROR = 1e-5  # of a float32 product of 512 terms, relative to the largest entry; bfloat16 is at 1e-3
_PRODUCTS_PER_THREAD = 1 << 24  # two threads take longer than one for 2^24 products, and less long for 2^25 (wide_deep)
_AVAILABLE = torch.get_num_threads()


@options
class Audit:
    """How much of an epoch is audited.

    batches: the number of batches to attack, spread evenly over the epoch, or `all`; `auto` takes 20, but at most a 15th of
    the epoch's and at least 5. epochs: audit all epochs, or only the last one. train_rows: the largest number of rows to
    score for train AUC. canaries: the number of training rows whose label is replaced by a fair coin, to check a promised
    eps; `auto`: a 20th of all rows, at most 1000, and so few that they add at most a 20th to any class, if a defense
    promises one. dcor: also measure, in audited batches, the squared distance correlation of every layer's embeddings
    and the labels. probe: also report what a model reads that is trained on half of the true labels, with all messages
    and the scores of all attacks as inputs. auxiliary_path: another source of the same columns, read like the dataset's
    `path`, that auxiliary rows are drawn from; null: the test rows.
    """

    batches: Steps | Literal["all", "auto"] = "auto"
    epochs: Literal["all", "last"] = "all"
    train_rows: Rows = 100_000
    canaries: NonNegativeInt | Literal["auto"] = "auto"
    dcor: bool = False
    probe: bool = True
    auxiliary_path: str | None = None

    def audited(self, steps: int) -> int:
        """The number of audited batches in an epoch of `steps` batches."""
        if self.batches == "auto":
            return min(steps, max(5, min(20, steps // 15)))
        return steps if self.batches == "all" else min(steps, self.batches)

    def planted(self, rows: int, rarest: int, classes: int, *, promised: bool) -> int:
        """The number of canaries among `rows` training rows of so many classes. rarest: rows of the rarest class, of which
        many coins would leave little. promised: whether a defense promises an eps.
        """
        if self.canaries == "auto":
            return min(1000, rows // 20, classes * rarest // 20) if promised else 0
        return min(rows, self.canaries)


@options
class Settings:
    """The options that belong to no component.

    epochs: the number of epochs, or `auto`: as many as the protocol suggests.
    batch_size: rows per step; `auto` takes the largest power of two between 32 and 512 with which an epoch has 100 steps.
    precision: of the products of the network's layers, `float32` or `bf16` (autocast; weights, tables, losses, messages and
    the optimiser's state stay float32). It is used as it is asked for; where bf16 is slower, a run says so.
    log_every: steps between lines of train.log.
    checkpoint: `resume` saves the state at the end of each epoch and when the run is stopped, and deletes it when the run
    has finished; `keep` doesn't delete it; `none` saves nothing.
    overwrite: compute a finished run again.
    record: keep the messages of all rounds, or of the audited ones, in the run's folder, for `vflbench audit`.
    """

    epochs: Number | Literal["auto"] = 2
    batch_size: Rows | Literal["auto"] = "auto"
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bf16"] = "float32"
    log_every: Steps = 100
    checkpoint: Literal["resume", "keep", "none"] = "resume"
    overwrite: bool = False
    record: Literal["none", "messages", "audited"] = "none"
    audit: Audit


def bf16_slowness(device: torch.device, rows: int, width: int, timer: Any = timeit.default_timer) -> float:
    """How many times as long the three products of a layer of `width` units, forth and back, take in bfloat16 as in float32.

    It is said and nothing else: a precision that the clock chose would give a command other numbers from run to run.
    """
    x, w = torch.ones(rows, width, device=device), torch.ones(width, width, device=device)

    def seconds(*, bf16: bool) -> float:
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            return min(timeit.repeat(lambda: [y := x @ w, x.T @ y, float((y @ w)[0, 0])], timer=timer, number=1, repeat=7))

    return seconds(bf16=True) / seconds(bf16=False)


def choose_device(wanted: str) -> torch.device:
    """The device to use; `auto` is cuda if there is one, else cpu."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "this machine, or its build of torch, has no CUDA device; use cpu or auto", key="device", value="cuda"
        )
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


@contextmanager
def as_a_guest() -> Iterator[None]:
    """While entered, a run in another's process may set what it likes, and computes gradients; then all is as it was."""
    matmul, denormals, threads = torch.get_float32_matmul_precision(), flushes_denormals(), torch.get_num_threads()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.set_flush_denormal(denormals)
        torch.set_num_threads(threads)


def tune() -> dict[str, Any]:
    """Called at the start of a run. Returns what was done, for the manifest. Nothing depends on the clock.

    malloc: keep memory that activations free, instead of returning it to the kernel and faulting it in again at each step
    (glibc). denormals: flushed to zero. matmul: `medium` lets oneDNN compute float32 products, with AVX-512 where MKL would
    use AVX2; where oneDNN would round them to bfloat16, as with AMX, the default stays. threads: as many as when the process
    began, so that data are loaded in the same way whatever ran in this process before.
    """
    keeps = [ctypes.CDLL(None).mallopt(*option) for option in _MALLOC] if platform.libc_ver()[0] == "glibc" else [0]
    torch.set_float32_matmul_precision("medium")
    if product_error() > _LARGEST_ERROR:
        torch.set_float32_matmul_precision("highest")
    return {
        "malloc": "keeps memory" if all(keeps) else "as it is",
        "denormals": "flushed" if torch.set_flush_denormal(True) else "kept",
        "matmul": torch.get_float32_matmul_precision(),
        "threads": use_threads(_AVAILABLE),
    }


def set_threads(rows: int, width: int) -> int:
    """Set torch's threads to as many as a batch of `rows` rows in layers of `width` units keeps busy, at least 1. Returns
    their number, for the manifest. Called once the batch size is known and before the models are built, as the compiled
    optimiser reads the number then.

    A layer costs rows * width^2 multiplications; a thread needs 2^24 of them to repay its coordination.
    """
    return use_threads(max(1, rows * width**2 // _PRODUCTS_PER_THREAD))


def use_threads(count: int) -> int:
    """Set torch's threads to so many, never more than there are, and return their number. If the user set OMP_NUM_THREADS,
    nothing is changed; if a launcher set it for a run of a sweep (see vflbench/cli/main.py), it is a limit.
    """
    if "OMP_NUM_THREADS" not in os.environ or os.environ.get("VFLBENCH_THREADS") == "auto":
        torch.set_num_threads(min(_AVAILABLE, count))
    return torch.get_num_threads()


def product_error() -> float:
    """The error of a float32 product on the CPU against float64, relative to the largest entry."""
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(256, 512, generator=rng), torch.randn(512, 256, generator=rng)
    exact = a.double() @ b.double()
    return float(((a @ b).double() - exact).abs().max() / exact.abs().max())
