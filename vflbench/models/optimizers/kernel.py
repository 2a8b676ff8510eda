"""The row updates of lazy Adam, compiled by numba: the arithmetic of `rows.TorchRows` in one pass over memory."""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from vflbench.models.layers import ColumnEmbedding
from vflbench.models.optimizers.rows import LazyRows
from vflbench.numerics.idle_adam import IdleAdam

_POOL = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="lazy rows")
_AHEAD = 12  # distance in rows of the software prefetch


class NumbaRows(LazyRows):
    """The compiled updates, on the CPU. Columns have disjoint rows, so threads can work on different columns."""

    def __init__(self, module: ColumnEmbedding, idle: IdleAdam, lr: float, eps: float):
        super().__init__(module, idle, lr, eps)
        self._floats = self.packed.numpy()
        self._ints = self._floats.view(np.int32)
        self._threads = max(1, torch.get_num_threads())
        self._reads = 0  # reads in training; the number of a read is its stamp
        self._read: tuple[np.ndarray, Tensor] | None = None
        self._scratch = (np.empty((0, 0), np.int32), np.empty((0, 0, self.dim), np.float32), np.empty(0, np.int64))

    def __call__(self, ids: Tensor) -> Tensor:
        rows = ids.numpy()
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self._floats):
            raise IndexError("an id is outside its table")  # which the compiled loops don't look at
        values = torch.empty(*ids.shape, self.dim)
        tables = self.idle.tables_up_to(self.step).numpy()
        training = torch.is_grad_enabled()
        self._reads += training
        unique, _, counts = self._buffers(rows)
        self._each(
            rows.shape[1],
            lambda start, stride: _read(
                *(self._floats, self._ints, rows, values.detach().numpy(), unique, counts, tables),
                *(self.dim, self.step, self.lr, self.eps, self._reads if training else 0, start, stride),
            ),
        )
        if training:
            self._read = (rows, values.requires_grad_())
        return values

    def update(self) -> None:
        self.step += 1
        assert self._read is not None, "no rows were read with gradients enabled"
        rows, values = self._read
        self._read = None
        if values.grad is None:
            values.grad = torch.zeros_like(values)
        gradient = values.grad.contiguous().numpy()
        unique, sums, counts = self._buffers(rows)
        b1, b2 = self.idle.beta1, self.idle.beta2
        rate, scale = self.lr / (1 - b1**self.step), 1 / math.sqrt(1 - b2**self.step)
        f32 = np.float32

        def work(start: int, stride: int) -> None:
            factors = f32(b1), f32(1 - b1), f32(b2), f32(1 - b2), f32(rate), f32(scale), f32(self.eps)
            tables = self._floats, self._ints
            _update(*tables, rows, gradient, unique, sums, counts, self.dim, self.step, *factors, start, stride)

        self._each(rows.shape[1], work)

    def _each(self, columns: int, work: Callable[[int, int], Any]) -> None:
        """Call work(start, stride) for the columns start, start + stride, ... of each thread."""
        count = min(self._threads, columns)
        waiting = [_POOL.submit(work, start, count) for start in range(1, count)]
        if count:
            work(0, count)
        for future in waiting:
            future.result()

    def _buffers(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per column, buffers for the distinct rows, their summed gradients, and their number."""
        n, c = rows.shape
        if self._scratch[0].shape != (c, n):
            self._scratch = np.empty((c, n), np.int32), np.empty((c, n, self.dim), np.float32), np.zeros(c, np.int64)
        return self._scratch

    def restore(self, state: dict[str, Any]) -> None:
        """The stamps and slots of rows serve one batch alone; those of a file are not believed."""
        super().restore(state)
        self._ints[:, 3 * self.dim + 1 : 3 * self.dim + 3] = 0
        self._reads = 0


@njit(nogil=True, cache=True)
def _read(
    floats: np.ndarray,
    ints: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    unique: np.ndarray,
    counts: np.ndarray,
    tables: np.ndarray,
    d: int,
    now: int,
    lr: float,
    eps: float,
    stamp: int,
    start: int,
    stride: int,
) -> np.int32:
    """Values of rows now, occurrence by occurrence. With a stamp, each distinct row is also updated in place, once."""
    n, c = rows.shape
    last_at, stamp_at, slot_at = 3 * d, 3 * d + 1, 3 * d + 2
    ahead = np.int32(0)
    for j in range(start, c, stride):
        count = 0
        for i in range(n):
            if i + _AHEAD < n:
                ahead ^= ints[rows[i + _AHEAD, j], last_at]
            row = rows[i, j]
            last = ints[row, last_at]
            if stamp:
                if ints[row, stamp_at] != stamp:  # its first occurrence in this batch
                    ints[row, stamp_at] = stamp
                    ints[row, slot_at] = count
                    unique[j, count] = row
                    count += 1
                    if last != now:
                        _catch_up(floats[row], floats[row, :d], tables, d, last, now, lr, eps, True)
                        ints[row, last_at] = now
                for a in range(d):
                    values[i, j, a] = floats[row, a]
            elif last != now:
                _catch_up(floats[row], values[i, j], tables, d, last, now, lr, eps, False)
            else:
                for a in range(d):
                    values[i, j, a] = floats[row, a]
        counts[j] = count
    return ahead


@njit(nogil=True, cache=True, inline="always")
def _catch_up(
    row: np.ndarray, p: np.ndarray, tables: np.ndarray, d: int, last: int, now: int, lr: float, eps: float, write: bool
) -> None:
    """Apply the sums of IdleAdam to one row: weights into p, and with `write` moments into the row."""
    weight = tables[last, 0] - tables[now - last, 2] * tables[now, 0] if last > 0 else 0.0
    if weight > 0:
        shift = (tables[last, 1] - tables[now - last, 3] * tables[now, 1]) / weight
        rate, offset = np.float32(lr * weight), np.float32(eps * shift)
        for a in range(d):
            p[a] = row[a] - rate * row[d + a] / (np.sqrt(row[2 * d + a]) + offset)
    else:
        for a in range(d):
            p[a] = row[a]
    if write:
        for a in range(d):
            row[d + a] *= np.float32(tables[now - last, 4])
            row[2 * d + a] *= np.float32(tables[now - last, 5])


@njit(nogil=True, cache=True)
def _update(
    floats: np.ndarray,
    ints: np.ndarray,
    rows: np.ndarray,
    gradient: np.ndarray,
    unique: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    d: int,
    now: int,
    b1: np.float32,
    rest1: np.float32,
    b2: np.float32,
    rest2: np.float32,
    rate: np.float32,
    scale: np.float32,
    eps: np.float32,
    start: int,
    stride: int,
) -> None:
    """Sum gradients over the occurrences of a row, in order, then take an Adam step on each distinct row."""
    n, c = rows.shape
    slot_at = 3 * d + 2
    for j in range(start, c, stride):
        for k in range(counts[j]):
            for a in range(d):
                sums[j, k, a] = np.float32(0)
        for i in range(n):
            k = ints[rows[i, j], slot_at]
            for a in range(d):
                sums[j, k, a] += gradient[i, j, a]
        for k in range(counts[j]):
            row = unique[j, k]
            for a in range(d):
                g = sums[j, k, a]
                m = floats[row, d + a] * b1 + g * rest1
                v = floats[row, 2 * d + a] * b2 + g * rest2 * g
                floats[row, d + a] = m
                floats[row, 2 * d + a] = v
                floats[row, a] = floats[row, a] - m * rate / (np.sqrt(v) * scale + eps)
            ints[row, 3 * d] = now
