"""The row updates of lazy Adam, compiled by numba: the arithmetic of `lazy_adam.TorchRows` in one pass over memory.

In the loops, lanes is a tuple as long as an embedding is wide, so that its width `dim` is known when a loop is compiled; or
an empty one. The arithmetic and its order are the same. Rows that are read a little later are fetched ahead: they lie
anywhere in memory."""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor

from vflbench.models.base import ColumnEmbedding
from vflbench.models.lazy_adam import TorchRows
from vflbench.numerics.optim import IdleAdam

_POOL = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="lazy rows")
_WIDEST = 32
"""Loops are compiled anew for each width of a row up to this one; wider rows share one form, which takes it as a number."""


class NumbaRows(TorchRows):
    """The compiled updates, on the CPU. Columns have disjoint rows, so threads can work on different columns."""

    def __init__(self, module: ColumnEmbedding, idle: IdleAdam, lr: float, eps: float):
        super().__init__(module, idle, lr, eps)
        self._floats = self.packed.numpy()
        self._ints = self._floats.view(np.int32)
        self._lanes = (0,) * self.dim if self.dim <= _WIDEST else ()  # the length of a tuple is part of its type
        self._sizes = np.diff(module.offsets.numpy(), append=len(self._floats))
        self._threads = max(1, torch.get_num_threads())
        self._reads = 0  # reads in training; the number of a read is its stamp
        self._reached: tuple[list[tuple[int, int, int]], Tensor] | None = None
        # per number of a batch, its slot among the distinct rows; and per slot, its row and its summed gradient
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
        if training and self._scratch[0].shape != rows.shape:
            sums = np.empty((rows.size, self.dim), np.float32)
            self._scratch = np.empty(rows.shape, np.uint32), np.empty(rows.size, np.uint32), sums
        slots, distinct, _ = self._scratch
        here = self._floats, self._ints, rows, values.numpy(), slots, distinct, tables
        then = self._lanes, self.dim, self.step, self.lr, self.eps, self._reads if training else 0
        shares = self._shares(*rows.shape)
        counts = self._each(shares, lambda start, stop: _read_rows(here, then, start, stop))
        if training:
            reached = [(start, stop, count) for (start, stop), count in zip(shares, counts, strict=True)]
            self._reached = (reached, values.requires_grad_())
        return values

    def update(self) -> None:
        self.step += 1
        assert self._reached is not None, "no rows were read with gradients enabled"
        reached, values = self._reached
        self._reached = None
        if values.grad is None:
            values.grad = torch.zeros_like(values)
        gradient = values.grad.contiguous().numpy()
        here, then = (self._floats, self._ints, gradient, *self._scratch), (self._lanes, self.dim, self.step)
        b1, b2 = self.idle.beta1, self.idle.beta2
        rate, scale = self.lr / (1 - b1**self.step), 1 / math.sqrt(1 - b2**self.step)
        factors = tuple(np.float32(factor) for factor in (b1, 1 - b1, b2, 1 - b2, rate, scale, self.eps))
        self._each(reached, lambda start, stop, count: update_rows(here, then, factors, start, stop, count))

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

    def restore(self, state: dict[str, Any]) -> None:
        """The stamps and slots of rows serve one batch alone; those of a file are not believed."""
        super().restore(state)
        self._ints[:, 3 * self.dim + 1 : 3 * self.dim + 3] = 0
        self._reads = 0


_AHEAD = 16  # rows of a table between one that is read and one that is fetched


@intrinsic
def _fetch(_context: Any, array: Any, _place: Any) -> Any:
    """Have the cache line of a flat array's element fetched."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        line, word = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer()), ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [line.type, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [line.type], form)
        builder.call(fetch, [line, *(ir.Constant(word, value) for value in (0, 3, 1))])  # to be read, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), code


@njit(nogil=True, cache=True)
def _read_rows(here: Any, then: Any, start: int, stop: int) -> int:
    """Values of rows now, occurrence by occurrence, in the columns from start to stop - 1. With a stamp, each distinct row
    is also updated in place, once, and gets a slot. Returns the slot after the last.
    """
    floats, ints, rows, values, slots, distinct, tables = here
    lanes, dim, now, lr, eps, stamp = then
    d, n, width = len(lanes) or dim, rows.shape[0], floats.shape[1]
    last_at, stamp_at, slot_at = 3 * d, 3 * d + 1, 3 * d + 2
    flat, ahead, slot = floats.reshape(floats.size), 1 + (_AHEAD - 1) // (stop - start), start * n
    for i in range(n):
        later = min(i + ahead, n - 1)
        for j in range(start, stop):
            for line in range(0, last_at + 3, 16):
                _fetch(flat, np.int64(rows[later, j]) * width + line)  # type: ignore[call-arg]  # takes what it is given
            row = rows[i, j]
            last = ints[row, last_at]
            if stamp:
                if ints[row, stamp_at] != stamp:  # its first occurrence in this batch
                    ints[row, stamp_at] = stamp
                    ints[row, slot_at] = slot
                    distinct[slot] = row
                    slots[i, j] = slot
                    slot += 1
                    if last != now:
                        _catch_up(floats[row], floats[row], tables, d, last, now, lr, eps)
                        for a in range(d):
                            floats[row, d + a] *= np.float32(tables[now - last, 4])
                        for a in range(d):
                            floats[row, 2 * d + a] *= np.float32(tables[now - last, 5])
                        ints[row, last_at] = now
                else:
                    slots[i, j] = ints[row, slot_at]
                for a in range(d):
                    values[i, j, a] = floats[row, a]
            elif last != now:
                _catch_up(floats[row], values[i, j], tables, d, last, now, lr, eps)
            else:
                for a in range(d):
                    values[i, j, a] = floats[row, a]
    return slot


@njit(nogil=True, cache=True, inline="always")
def _catch_up(
    row: np.ndarray, p: np.ndarray, tables: np.ndarray, d: int, last: int, now: int, lr: float, eps: float
) -> None:
    """The weights of a row, after the steps since `last`, by the sums of IdleAdam, into p."""
    weight = tables[last, 0] - tables[now - last, 2] * tables[now, 0] if last > 0 else 0.0
    if weight > 0:
        shift = (tables[last, 1] - tables[now - last, 3] * tables[now, 1]) / weight
        rate, offset = np.float32(lr * weight), np.float32(eps * shift)
        for a in range(d):
            p[a] = row[a] - rate * row[d + a] / (np.sqrt(row[2 * d + a]) + offset)
    else:
        for a in range(d):
            p[a] = row[a]


@njit(nogil=True, cache=True)
def update_rows(here: Any, then: Any, factors: Any, start: int, stop: int, end: int) -> None:
    """Sum gradients over the occurrences of a row, in order, then take an Adam step on each distinct row.

    factors: of Adam, as float32. end: the slot after the last, as `_read_rows` returned it for these columns.
    """
    floats, ints, gradient, slots, distinct, sums = here
    lanes, dim, now = then
    b1, rest1, b2, rest2, rate, scale, eps = factors
    d, n, width = len(lanes) or dim, gradient.shape[0], floats.shape[1]
    flat, first = floats.reshape(floats.size), start * n
    new = first
    for i in range(n):
        for j in range(start, stop):
            k = slots[i, j]
            if k == new:  # its first occurrence
                new += 1
                for a in range(d):
                    sums[k, a] = np.float32(0)
            for a in range(d):
                sums[k, a] += gradient[i, j, a]
    for k in range(first, end):
        for line in range(0, 3 * d + 3, 16):
            later = np.int64(distinct[min(k + _AHEAD, end - 1)])
            _fetch(flat, later * width + line)  # type: ignore[call-arg]
        row = distinct[k]
        for a in range(d):
            g = sums[k, a]
            m = floats[row, d + a] * b1 + g * rest1
            v = floats[row, 2 * d + a] * b2 + g * rest2 * g
            floats[row, d + a] = m
            floats[row, 2 * d + a] = v
            floats[row, a] = floats[row, a] - m * rate / (np.sqrt(v) * scale + eps)
        ints[row, 3 * d] = now
