"""The compiled loops of `kernel.NumbaRows`: rows of a table are read, and updated, in one pass over a batch each.

lanes: a tuple as long as an embedding is wide, so that its width `dim` is known when a loop is compiled; or an empty one.
The arithmetic and its order are the same. Rows that are read a little later are fetched ahead: they lie anywhere in memory.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

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
def read_rows(
    floats: np.ndarray,
    ints: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    slots: np.ndarray,
    distinct: np.ndarray,
    tables: np.ndarray,
    lanes: tuple[int, ...],
    dim: int,
    now: int,
    lr: float,
    eps: float,
    stamp: int,
    start: int,
    stop: int,
) -> int:
    """Values of rows now, occurrence by occurrence, in the columns from start to stop - 1. With a stamp, each distinct row
    is also updated in place, once, and gets a slot. Returns the slot after the last.
    """
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
def update_rows(
    floats: np.ndarray,
    ints: np.ndarray,
    gradient: np.ndarray,
    slots: np.ndarray,
    distinct: np.ndarray,
    sums: np.ndarray,
    lanes: tuple[int, ...],
    dim: int,
    now: int,
    b1: np.float32,
    rest1: np.float32,
    b2: np.float32,
    rest2: np.float32,
    rate: np.float32,
    scale: np.float32,
    eps: np.float32,
    start: int,
    stop: int,
    end: int,
) -> None:
    """Sum gradients over the occurrences of a row, in order, then take an Adam step on each distinct row.

    end: the slot after the last, as `read_rows` returned it for these columns.
    """
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
