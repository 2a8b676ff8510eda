"""The row updates of lazy Adam, compiled by numba: the arithmetic of `rows.TorchRows` in one pass over memory."""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.models.layers import ColumnEmbedding
from vflbench.models.optimizers.loops import read_rows, update_rows
from vflbench.models.optimizers.rows import LazyRows
from vflbench.numerics.idle_adam import IdleAdam

_POOL = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="lazy rows")
_WIDEST = 32
"""Loops are compiled anew for each width of a row up to this one; wider rows share one form, which takes it as a number."""


class NumbaRows(LazyRows):
    """The compiled updates, on the CPU. Columns have disjoint rows, so threads can work on different columns."""

    def __init__(self, module: ColumnEmbedding, idle: IdleAdam, lr: float, eps: float):
        super().__init__(module, idle, lr, eps)
        self._floats = self.packed.numpy()
        self._ints = self._floats.view(np.int32)
        self._lanes = (0,) * self.dim if self.dim <= _WIDEST else ()  # the length of a tuple is part of its type
        self._sizes = np.diff(module.offsets.numpy(), append=len(self._floats))
        self._threads = max(1, torch.get_num_threads())
        self._reads = 0  # reads in training; the number of a read is its stamp
        self._read: tuple[list[tuple[int, int, int]], Tensor] | None = None
        self._scratch = (np.empty((0, 0), np.uint32), np.empty(0, np.uint32), np.empty((0, self.dim), np.float32))

    def __call__(self, ids: Tensor) -> Tensor:
        places = ids.numpy()
        if places.size and not 0 <= places.min() <= places.max() < len(self._floats):
            raise IndexError("an id is outside its table")  # which the compiled loops don't look at
        rows = places.astype(np.uint32) if places.dtype != np.int32 else np.ascontiguousarray(places).view(np.uint32)
        values = torch.empty(*ids.shape, self.dim)
        tables = self.idle.tables_up_to(self.step).numpy()
        training = torch.is_grad_enabled()
        self._reads += training
        slots, distinct, _ = self._buffers(rows, training)
        here = self._floats, self._ints, rows, values.numpy(), slots, distinct, tables
        now = self._lanes, self.dim, self.step, self.lr, self.eps, self._reads if training else 0
        shares = self._shares(*rows.shape)
        counts = self._each(shares, lambda start, stop: read_rows(*here, *now, start, stop))
        if training:
            reached = [(start, stop, count) for (start, stop), count in zip(shares, counts, strict=True)]
            self._read = (reached, values.requires_grad_())
        return values

    def update(self) -> None:
        self.step += 1
        assert self._read is not None, "no rows were read with gradients enabled"
        reached, values = self._read
        self._read = None
        if values.grad is None:
            values.grad = torch.zeros_like(values)
        gradient = values.grad.contiguous().numpy()
        here = self._floats, self._ints, gradient, *self._scratch, self._lanes, self.dim, self.step
        b1, b2 = self.idle.beta1, self.idle.beta2
        rate, scale = self.lr / (1 - b1**self.step), 1 / math.sqrt(1 - b2**self.step)
        factors: Any = [np.float32(factor) for factor in (b1, 1 - b1, b2, 1 - b2, rate, scale, self.eps)]
        update: Any = update_rows
        self._each(reached, lambda start, stop, count: update(*here, *factors, start, stop, count))

    def _shares(self, n: int, c: int) -> list[tuple[int, int]]:
        """Columns start .. stop - 1 for each thread. A column of many ids costs more: its rows are mostly distinct."""
        sizes = self._sizes if len(self._sizes) == c else np.ones(c)
        costs = np.cumsum(1 + 4 * sizes / (sizes + n)) if n else np.arange(1.0, c + 1)
        count = min(self._threads, c)
        ends = [int(np.searchsorted(costs, costs[-1] * k / count)) for k in range(1, count)] if c else []
        bounds = [0, *ends, c]
        return [(start, stop) for start, stop in pairwise(bounds) if start < stop]

    def _each(self, shares: Sequence[tuple[int, ...]], work: Callable[..., Any]) -> list[Any]:
        """work(*share) for each, all but the first in threads of their own."""
        waiting = [_POOL.submit(work, *share) for share in shares[1:]]
        first = [work(*share) for share in shares[:1]]
        return [*first, *(future.result() for future in waiting)]

    def _buffers(self, rows: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per number of a batch, its slot among the distinct rows; and per slot, its row and its summed gradient."""
        if training and self._scratch[0].shape != rows.shape:
            sums = np.empty((rows.size, self.dim), np.float32)
            self._scratch = np.empty(rows.shape, np.uint32), np.empty(rows.size, np.uint32), sums
        return self._scratch

    def restore(self, state: dict[str, Any]) -> None:
        """The stamps and slots of rows serve one batch alone; those of a file are not believed."""
        super().restore(state)
        self._ints[:, 3 * self.dim + 1 : 3 * self.dim + 3] = 0
        self._reads = 0
