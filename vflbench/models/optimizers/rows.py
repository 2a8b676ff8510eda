"""An embedding table in which a step updates only the rows of the batch."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.models.layers import ColumnEmbedding
from vflbench.numerics.idle_adam import IdleAdam
from vflbench.numerics.system import on_large_pages

_MOST_STEPS = 2**26
"""Of a state in a file: the sums over idle steps take memory for each step."""


class LazyRows:
    """A table whose idle steps are applied when a row is read, and its gradient step after the batch.

    packed: (V, W) float32. A row holds its p, m and v (dim each), the step of its last update (as int32) and two spare
    numbers, in one cache line for dim 4. The module's parameter is a view of it.
    """

    def __init__(self, module: ColumnEmbedding, idle: IdleAdam, lr: float, eps: float):
        self.idle, self.lr, self.eps = idle, lr, eps
        size, self.dim = module.table.shape
        needed = 3 * self.dim + 3
        width = 1 << math.ceil(math.log2(needed)) if needed <= 16 else 16 * math.ceil(needed / 16)
        self.packed = on_large_pages(torch.empty(size, width, device=module.table.device)).zero_()
        self.packed[:, : self.dim] = module.table.data
        module.table.data = self.packed[:, : self.dim]
        self.steps_of = self.packed.view(torch.int32)[:, 3 * self.dim]
        self.step = 0  # the last step; rows that are behind catch up when they are read

    def __call__(self, ids: Tensor) -> Tensor:
        """Rows (n, c, dim) with the present values of dense Adam. ids: (n, c), rows of the table.

        With gradients enabled, the next `update` applies to these rows; a further call before it replaces them. Without
        gradients nothing is changed.
        """
        raise NotImplementedError

    def update(self) -> None:
        """The next Adam step, with the gradients of the rows read last; all other gradients are 0."""
        raise NotImplementedError

    def settle(self) -> None:
        """Apply the idle steps of all rows."""
        for start in range(0, len(self.packed), 1 << 20):
            part = self.packed[start : start + (1 << 20)]
            part.copy_(self.caught_up(part.clone()))

    def caught_up(self, rows: Tensor) -> Tensor:
        """Apply the idle steps of packed rows (u, W) in place, and return them."""
        d = self.dim
        p, m, v = rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d : 3 * d]
        steps_of = rows.view(torch.int32)[:, 3 * d]
        last = steps_of.long()
        weight, shift = self.idle.sums(last, self.step)
        rate = (self.lr * weight).float()[:, None]
        p -= rate * m / (_root(v) + (self.eps * shift).float()[:, None])
        first, second = self.idle.decay(last, self.step)
        m *= first.float()[:, None]
        v *= second.float()[:, None]
        steps_of.fill_(self.step)
        return rows

    def state(self) -> dict[str, Any]:
        return {"packed": self.packed, "step": self.step}

    def restore(self, state: dict[str, Any]) -> None:
        """Raises ValueError for what is no such state: compiled loops trust the steps of the rows."""
        packed, step = state["packed"], state["step"]
        if packed.shape != self.packed.shape or packed.dtype != torch.float32 or type(step) is not int:
            raise ValueError("the rows of a table are of another shape")
        steps_of = packed.contiguous().view(torch.int32)[:, 3 * self.dim]
        if not 0 <= step <= _MOST_STEPS or (
            steps_of.numel() and not 0 <= int(steps_of.min()) <= int(steps_of.max()) <= step
        ):
            raise ValueError("the rows of a table were updated in steps that there can't have been")
        self.packed.copy_(packed)
        self.step = step


class TorchRows(LazyRows):
    """The updates in torch, on any device."""

    def __init__(self, module: ColumnEmbedding, idle: IdleAdam, lr: float, eps: float):
        super().__init__(module, idle, lr, eps)
        self._position = torch.zeros(len(self.packed), dtype=torch.int32, device=self.packed.device)
        self._read: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        unique, inverse = self._distinct(ids.reshape(-1).long())
        rows = self.caught_up(self.packed.index_select(0, unique))
        values = rows[:, : self.dim].contiguous()
        if torch.is_grad_enabled():
            self._read = (unique, rows, values.requires_grad_())
        return F.embedding(inverse.view(ids.shape), values)

    def _distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct ids, and the index of each id among them. A table of V numbers keeps one position of every id."""
        positions = torch.arange(len(ids), dtype=torch.int32, device=ids.device)
        self._position.scatter_(0, ids, positions)
        kept = self._position.index_select(0, ids)
        is_kept = kept == positions
        rank = is_kept.cumsum(0, dtype=torch.int32) - 1
        return ids[is_kept], rank.index_select(0, kept)

    def update(self) -> None:
        self.step += 1
        assert self._read is not None, "no rows were read with gradients enabled"
        unique, rows, values = self._read
        self._read = None
        g = values.grad
        if g is None:
            g = torch.zeros_like(values)
        d, b1, b2 = self.dim, self.idle.beta1, self.idle.beta2
        p, m, v = rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d : 3 * d]
        m.mul_(b1).add_(g * (1 - b1))
        v.mul_(b2).add_(g * (1 - b2) * g)
        rate, scale = self.lr / (1 - b1**self.step), 1 / math.sqrt(1 - b2**self.step)
        p -= m * rate / (_root(v) * scale + self.eps)
        rows.view(torch.int32)[:, 3 * d] = self.step
        self.packed.index_copy_(0, unique, rows)


def _root(v: Tensor) -> Tensor:
    """sqrt(v) with IEEE rounding, through float64: torch's float32 square root can be off by one unit in the last place."""
    return v.double().sqrt().float()
