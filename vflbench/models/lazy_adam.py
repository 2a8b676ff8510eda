"""Adam that updates only the table rows of the batch, with the result of dense Adam."""

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vflbench.errors import UserError, pip_install
from vflbench.models.base import ColumnEmbedding
from vflbench.models.optimizers import Optimizer
from vflbench.numerics.optim import AdamSteps, IdleAdam, embedding
from vflbench.numerics.system import on_large_pages
from vflbench.options import Decay, Rate, RootTerm, options

_MOST_STEPS = 2**26
"""Of a state in a file: the sums over idle steps take memory for each step."""


class TorchRows:
    """A table whose idle steps are applied when a row is read, and its gradient step after the batch: in torch, on any
    device.

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
        self.step = 0  # the last step; rows that are behind catch up when they are read
        self._read: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        """Rows (n, c, dim) with the present values of dense Adam. ids: (n, c), rows of the table.

        With gradients enabled, the next `update` applies to these rows; a further call before it replaces them. Without
        gradients nothing is changed.
        """
        unique, inverse = torch.unique(ids.long(), return_inverse=True)
        rows = self.caught_up(self.packed.index_select(0, unique))
        values = rows[:, : self.dim].contiguous()
        if torch.is_grad_enabled():
            self._read = (unique, rows, values.requires_grad_())
        return embedding(inverse, values)

    def update(self) -> None:
        """The next Adam step, with the gradients of the rows read last; all other gradients are 0."""
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


def _root(v: Tensor) -> Tensor:
    """sqrt(v) with IEEE rounding, through float64: torch's float32 square root can be off by one unit in the last place."""
    return v.double().sqrt().float()


@options
class LazyAdam(Optimizer):
    """Adam in which the idle steps of a table row are applied in closed form when the row is next read.

    Dense Adam moves every row of an embedding table at every step, also rows that do not occur in the batch: their gradient
    is 0, their moments decay, and the weights keep moving. Here these idle steps are summed (see
    `vflbench.numerics.optim`), so the cost of a step does not depend on the size of the tables. "Sparse" Adam omits the
    idle steps and is another optimiser. This one agrees with dense Adam up to the closed form and the order of summation.

    All other weights use plain Adam. There is no weight decay, because it would give idle rows a gradient.

    lr: step size. beta1, beta2: decay of the moments, beta1 < beta2. eps: added to the root of the second moment.
    kernel: `torch`; `numba`, compiled, for the CPU, needs `pip install vflbench[fast]`; `auto`: numba if available. Both
    give the same numbers.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    lr: Rate = 5e-4
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    eps: RootTerm = 1e-8
    kernel: Literal["auto", "torch", "numba"] = "auto"

    def attach(self, network: nn.Module) -> "LazyStepper":
        if self.beta1 >= self.beta2:
            problem = f"it must be below beta2, {self.beta2}: otherwise the sum over idle steps diverges"
            raise UserError(problem, key="optimizer.beta1", value=self.beta1)
        idle = IdleAdam(self.beta1, self.beta2)
        tables = [module for module in network.modules() if isinstance(module, ColumnEmbedding)]
        lazy = {id(module.table) for module in tables}
        others = [parameter for parameter in network.parameters() if id(parameter) not in lazy]
        rows = [self._rows(module.table.device)(module, idle, self.lr, self.eps) for module in tables]
        for module, lazy_rows in zip(tables, rows, strict=True):
            module.lookup = lazy_rows
        betas = (self.beta1, self.beta2)
        return LazyStepper(rows, [{"params": others}], lr=self.lr, betas=betas, eps=self.eps, fused=True)

    def _rows(self, device: torch.device) -> type[TorchRows]:
        if self.kernel == "torch" or (self.kernel == "auto" and device.type != "cpu"):
            return TorchRows
        if device.type != "cpu":
            raise UserError(f"it runs on the CPU, but this run uses {device}", key="optimizer.kernel", value="numba")
        try:
            return import_module("vflbench.models.lazy_adam_numba").NumbaRows  # a second to import
        except (ImportError, RuntimeError) as error:  # not installed, wrong numpy, or no writable cache folder
            if self.kernel == "auto":
                return TorchRows
            problem = f"numba cannot be used ({error}); {pip_install('fast')}"
            raise UserError(problem, key="optimizer.kernel", value="numba") from error


class LazyStepper(AdamSteps):
    """Plain Adam for most weights, lazy rows for tables."""

    def __init__(self, rows: list[TorchRows], *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.rows = rows

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        with torch.no_grad():
            for rows in self.rows:
                rows.update()

    def state_dict(self) -> dict[str, Any]:
        """Packed tables share memory with the network's weights, so a file that keeps sharing stores them once."""
        return {"dense": super().state_dict(), "rows": [rows.state() for rows in self.rows]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict["dense"])
        for rows, state in zip(self.rows, state_dict["rows"], strict=True):
            rows.restore(state)
