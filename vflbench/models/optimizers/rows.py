"""An embedding table of which a step touches only the rows of its batch."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.numerics.idle_adam import IdleAdam


class LazyRows:
    """A table whose rows are brought up to date when they are read, and updated when their batch is done.

    packed: (V, W) float32, a row's p, m and v (dim each), the step of its moments (as int32) and two spare numbers side by
    side, in one cache line for dim 4. The module's parameter is a view of it.
    """

    def __init__(self, module: nn.Module, idle: IdleAdam, lr: float, eps: float):
        self.idle, self.lr, self.eps = idle, lr, eps
        size, self.dim = module.table.shape
        needed = 3 * self.dim + 3
        width = 1 << math.ceil(math.log2(needed)) if needed <= 16 else 16 * math.ceil(needed / 16)
        self.packed = torch.zeros(size, width, device=module.table.device)
        self.packed[:, : self.dim] = module.table.data
        module.table.data = self.packed[:, : self.dim]
        self.steps_of = self.packed.view(torch.int32)[:, 3 * self.dim]
        self.step = 0  # that every row is, or will be when it is read, up to date with

    def __call__(self, ids: Tensor) -> Tensor:
        """Rows (n, c, dim) as a dense Adam would have them now. ids: (n, c), counted over all columns.

        While gradients are recorded, these rows are updated by `update`, and what was read for that is forgotten by the
        next call; otherwise nothing is changed.
        """
        raise NotImplementedError

    def update(self) -> None:
        """Adam's next step, with the gradients of the rows that were read last, which are 0 for all others."""
        raise NotImplementedError

    def settle(self) -> None:
        """Bring every row up to date, as for a look at the whole table."""
        for start in range(0, len(self.packed), 1 << 20):
            part = self.packed[start : start + (1 << 20)]
            part.copy_(self.caught_up(part.clone()))

    def caught_up(self, rows: Tensor) -> Tensor:
        """Packed rows (u, W), changed in place: their idle steps done."""
        d = self.dim
        p, m, v = rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d : 3 * d]
        steps_of = rows.view(torch.int32)[:, 3 * d]
        last = steps_of.long()
        weight, shift = self.idle.sums(last, self.step)
        rate = (self.lr * weight).float()[:, None]
        p -= rate * m / (_root(v) + (self.eps * shift).float()[:, None])
        first, second = self.idle.fading(last, self.step)
        m *= first.float()[:, None]
        v *= second.float()[:, None]
        steps_of.fill_(self.step)
        return rows

    def state(self) -> dict[str, Tensor | int]:
        return {"packed": self.packed, "step": self.step}

    def restore(self, state: dict[str, Tensor | int]) -> None:
        self.packed.copy_(state["packed"])
        self.step = state["step"]


class TorchRows(LazyRows):
    """In plain torch, on any device."""

    def __init__(self, module: nn.Module, idle: IdleAdam, lr: float, eps: float):
        super().__init__(module, idle, lr, eps)
        self._place = torch.zeros(len(self.packed), dtype=torch.int32, device=self.packed.device)
        self._read: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        unique, inverse = self._distinct(ids.reshape(-1).long())
        rows = self.caught_up(self.packed.index_select(0, unique))
        values = rows[:, : self.dim].contiguous()
        if torch.is_grad_enabled():
            self._read = (unique, rows, values.requires_grad_())
        return F.embedding(inverse.view(ids.shape), values)

    def _distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The different ids, and each one's place among them: every id keeps one of its places in a table of V numbers."""
        places = torch.arange(len(ids), dtype=torch.int32, device=ids.device)
        self._place.scatter_(0, ids, places)
        keeper = self._place.index_select(0, ids)
        keeps = keeper == places
        rank = keeps.cumsum(0, dtype=torch.int32) - 1
        return ids[keeps], rank.index_select(0, keeper)

    def update(self) -> None:
        self.step += 1
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
    """sqrt(v), rounded as IEEE asks, by way of float64: torch's own in float32 can be off by one in the last place."""
    return v.double().sqrt().float()
