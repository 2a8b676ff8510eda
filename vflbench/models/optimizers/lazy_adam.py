"""Adam that touches only the table rows of its batch, and comes to what dense Adam comes to."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import torch
from torch import nn, optim

from vflbench.errors import UserError
from vflbench.models.optimizers.adam import Beta
from vflbench.models.optimizers.base import Optimizer
from vflbench.models.optimizers.rows import LazyRows, TorchRows
from vflbench.numerics.idle_adam import IdleAdam
from vflbench.options import Positive, options


@options
class LazyAdam(Optimizer):
    """Adam, with the steps that a table row sits out done in closed form when the row is next read.

    Dense Adam moves every row of an embedding table at every step, also those that no row of the batch holds: their
    gradient is 0, their moments fade, and the weights coast. Here these idle steps are summed up (see
    `vflbench.numerics.idle_adam`), so a step costs what its batch costs, however large the tables are. Unlike "sparse"
    Adam, which leaves them out and is another optimiser, this comes to what dense Adam comes to: a closed form of the idle
    steps and another order of the same sums are all that differs.

    All other weights are under torch's own Adam. There is no weight decay, which would give idle rows a gradient.

    lr: step size. beta1, beta2: decay of the moments, beta1 < beta2. eps: added to the root of the second.
    kernel: `torch`, or `numba`, compiled, on the CPU and with `pip install vflbench[fast]`; `auto` takes what is there.
    Both give the same numbers.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    lr: Positive = 5e-4
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    eps: Positive = 1e-8
    kernel: Literal["auto", "torch", "numba"] = "auto"

    def attach(self, network: nn.Module) -> "LazyStepper":
        if self.beta1 >= self.beta2:
            problem = f"it must be below beta2, {self.beta2}: the idle steps of a row have no sum otherwise"
            raise UserError(problem, key="optimizer.beta1", value=self.beta1)
        idle = IdleAdam(self.beta1, self.beta2)
        tables = [module for module in network.modules() if hasattr(module, "lookup")]
        lazy = {id(module.table) for module in tables}
        others = [parameter for parameter in network.parameters() if id(parameter) not in lazy]
        betas = (self.beta1, self.beta2)
        dense = optim.Adam(others, lr=self.lr, betas=betas, eps=self.eps, fused=True) if others else None
        rows = [self._rows(module.table.device)(module, idle, self.lr, self.eps) for module in tables]
        for module, source in zip(tables, rows, strict=True):
            module.lookup = source
        return LazyStepper(dense, rows)

    def _rows(self, device: torch.device) -> type[LazyRows]:
        if self.kernel == "torch" or (self.kernel == "auto" and device.type != "cpu"):
            return TorchRows
        if device.type != "cpu":
            raise UserError(f"it runs on the CPU, and this run on {device}", key="optimizer.kernel", value="numba")
        try:
            return import_module("vflbench.models.optimizers.kernel").NumbaRows  # a second to import
        except (ImportError, RuntimeError) as error:  # not there, not for this numpy, or no folder for what it compiles
            if self.kernel == "auto":
                return TorchRows
            problem = f"numba can't be used ({error}); pip install 'vflbench[fast]'"
            raise UserError(problem, key="optimizer.kernel", value="numba") from error


class LazyStepper:
    """What stands where others have a torch optimiser: its own Adam for most weights, lazy rows for tables."""

    def __init__(self, dense: optim.Optimizer | None, rows: list[LazyRows]):
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
        """Bring every row of every table up to date."""
        for rows in self.rows:
            rows.settle()

    def state_dict(self) -> dict[str, Any]:
        """Packed tables share their memory with the network's own weights: a file that knows holds them once."""
        dense = None if self.dense is None else self.dense.state_dict()
        return {"dense": dense, "rows": [rows.state() for rows in self.rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.dense is not None:
            self.dense.load_state_dict(state["dense"])
        for rows, own in zip(self.rows, state["rows"], strict=True):
            rows.restore(own)
