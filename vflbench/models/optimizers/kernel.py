"""The row updates of lazy Adam, compiled by numba; the same arithmetic as in plain torch, in one pass over memory."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from vflbench.models.optimizers.rows import LazyRows
from vflbench.numerics.idle_adam import IdleAdam

_POOL = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="lazy rows")
_AHEAD = 12  # rows that are fetched from memory while this one is worked on


class NumbaRows(LazyRows):
    """Compiled, on the CPU. Columns hold disjoint ids, so that each can be worked on by another thread."""

    def __init__(self, module: nn.Module, idle: IdleAdam, lr: float, eps: float):
        super().__init__(module, idle, lr, eps)
        self._floats = self.packed.numpy()
        self._ints = self._floats.view(np.int32)
        self._threads = max(1, torch.get_num_threads())
        self._reads = 0  # in training; each has a stamp of its own
        self._read: tuple[np.ndarray, Tensor, np.ndarray, np.ndarray] | None = None
        self._scratch = (np.empty((0, 0), np.int32), np.empty((0, 0, self.dim), np.float32), np.empty(0, np.int64))

    def __call__(self, ids: Tensor) -> Tensor:
        places = ids.numpy()
        values = torch.empty(*ids.shape, self.dim)
        tables = self.idle.upto(self.step).numpy()
        training = torch.is_grad_enabled()
        self._reads += training
        unique, _, counts = self._room(places)
        self._each(
            places.shape[1],
            lambda start, stride: _read(
                *(self._floats, self._ints, places, values.detach().numpy(), unique, counts, tables),
                *(self.dim, self.step, self.lr, self.eps, self._reads if training else 0, start, stride),
            ),
        )
        if training:
            self._read = (places, values.requires_grad_())
        return values

    def update(self) -> None:
        self.step += 1
        places, values = self._read
        self._read = None
        if values.grad is None:
            values.grad = torch.zeros_like(values)
        gradient = values.grad.contiguous().numpy()
        unique, sums, counts = self._room(places)
        b1, b2 = self.idle.beta1, self.idle.beta2
        rate, scale = self.lr / (1 - b1**self.step), 1 / math.sqrt(1 - b2**self.step)
        self._each(
            places.shape[1],
            lambda start, stride: _update(
                *(self._floats, self._ints, places, gradient, unique, sums, counts, self.dim, self.step),
                *map(np.float32, (b1, 1 - b1, b2, 1 - b2, rate, scale, self.eps)),
                *(start, stride),
            ),
        )

    def _each(self, columns: int, work) -> None:
        """work(start, stride) for columns start, start + stride, ...: as many at once as there are threads."""
        count = min(self._threads, columns)
        waiting = [_POOL.submit(work, start, count) for start in range(1, count)]
        if count:
            work(0, count)
        for future in waiting:
            future.result()

    def _room(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Room for each column's different ids, their summed gradients, and their number."""
        n, c = places.shape
        if self._scratch[0].shape != (c, n):
            self._scratch = np.empty((c, n), np.int32), np.empty((c, n, self.dim), np.float32), np.zeros(c, np.int64)
        return self._scratch

    def state(self) -> dict[str, Tensor | int]:
        return {**super().state(), "reads": self._reads}

    def restore(self, state: dict[str, Tensor | int]) -> None:
        super().restore(state)
        self._reads = state["reads"]


@njit(nogil=True, cache=True)
def _read(floats, ints, places, values, unique, counts, tables, d, now, lr, eps, stamp, start, stride):
    """Rows as they are now, one occurrence after the other; with a stamp, in place as well, once for each different row."""
    n, c = places.shape
    last_at, stamp_at, slot_at = 3 * d, 3 * d + 1, 3 * d + 2
    ahead = np.int32(0)
    for j in range(start, c, stride):
        count = 0
        for i in range(n):
            if i + _AHEAD < n:
                ahead ^= ints[places[i + _AHEAD, j], last_at]
            row = places[i, j]
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
def _catch_up(row, p, tables, d, last, now, lr, eps, write):
    """IdleAdam's sums on one row; p gets the weights, and with `write` the row its moments."""
    if last > 0:
        weight = tables[last, 0] - tables[now - last, 2] * tables[now, 0]
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
    floats, ints, places, gradient, unique, sums, counts, d, now, b1, rest1, b2, rest2, rate, scale, eps, start, stride
):
    """Gradients summed over the occurrences of a row, in order, then Adam's step on each different row."""
    n, c = places.shape
    slot_at = 3 * d + 2
    for j in range(start, c, stride):
        for k in range(counts[j]):
            for a in range(d):
                sums[j, k, a] = np.float32(0)
        for i in range(n):
            k = ints[places[i, j], slot_at]
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
