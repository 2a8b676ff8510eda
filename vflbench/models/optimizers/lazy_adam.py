"""Adam that updates only the table rows of the batch, with the result of dense Adam."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import torch
from torch import nn

from vflbench.errors import UserError
from vflbench.models.layers import ColumnEmbedding
from vflbench.models.optimizers.base import Optimizer, load_state
from vflbench.models.optimizers.rows import LazyRows, TorchRows
from vflbench.numerics.idle_adam import IdleAdam
from vflbench.numerics.optim import AdamSteps
from vflbench.options import Decay, Rate, RootTerm, options
from vflbench.places import pip_install


@options
class LazyAdam(Optimizer):
    """Adam in which the idle steps of a table row are applied in closed form when the row is next read.

    Dense Adam moves every row of an embedding table at every step, also rows that do not occur in the batch: their gradient
    is 0, their moments decay, and the weights keep moving. Here these idle steps are summed (see
    `vflbench.numerics.idle_adam`), so the cost of a step does not depend on the size of the tables. "Sparse" Adam omits the
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
        betas = (self.beta1, self.beta2)
        dense = AdamSteps(others, lr=self.lr, betas=betas, eps=self.eps, fused=True) if others else None
        rows = [self._rows(module.table.device)(module, idle, self.lr, self.eps) for module in tables]
        for module, lazy_rows in zip(tables, rows, strict=True):
            module.lookup = lazy_rows
        return LazyStepper(dense, rows)

    def _rows(self, device: torch.device) -> type[LazyRows]:
        if self.kernel == "torch" or (self.kernel == "auto" and device.type != "cpu"):
            return TorchRows
        if device.type != "cpu":
            raise UserError(f"it runs on the CPU, but this run uses {device}", key="optimizer.kernel", value="numba")
        try:
            return import_module("vflbench.models.optimizers.kernel").NumbaRows  # a second to import
        except (ImportError, RuntimeError) as error:  # not installed, wrong numpy, or no writable cache folder
            if self.kernel == "auto":
                return TorchRows
            problem = f"numba cannot be used ({error}); {pip_install('fast')}"
            raise UserError(problem, key="optimizer.kernel", value="numba") from error


class LazyStepper:
    """In place of a torch optimiser: plain Adam for most weights, lazy rows for tables."""

    def __init__(self, dense: AdamSteps | None, rows: list[LazyRows]):
        self.dense, self.rows = dense, rows

    @property
    def state(self) -> Mapping[Any, Any]:
        return self.dense.state if self.dense is not None else {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.dense is not None:
            self.dense.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        if self.dense is not None:
            self.dense.step()
        for rows in self.rows:
            rows.update()

    @torch.no_grad()
    def settle(self) -> None:
        """Apply the idle steps of all rows of all tables."""
        for rows in self.rows:
            rows.settle()

    def state_dict(self) -> dict[str, Any]:
        """Packed tables share memory with the network's weights, so a file that keeps sharing stores them once."""
        dense = None if self.dense is None else self.dense.state_dict()
        return {"dense": dense, "rows": [rows.state() for rows in self.rows]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if self.dense is not None:
            load_state(self.dense, state_dict["dense"])
        for rows, state in zip(self.rows, state_dict["rows"], strict=True):
            rows.restore(state)
