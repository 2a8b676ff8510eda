"""Gradient steps, as torch.optim.SGD takes them, without its import of torch's compiler (1.5 s)."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.numerics.adam import copy_state, of_one_kind, reset_gradients


class SgdSteps:
    """Gradient descent with momentum on a list of parameters: the same bits as torch.optim.SGD.

        u = momentum u + g   (g at first),   p = p - lr u

    weight_decay: w in g + w p. A parameter without gradient is left out of a step.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0):
        self.parameters = list(parameters)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        reset_gradients(self.parameters, set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        for parameters in of_one_kind(p for p in self.parameters if p.grad is not None):
            gradients = [p.grad for p in parameters if p.grad is not None]
            if any(g.is_sparse for g in gradients):
                for parameter, g in zip(parameters, gradients, strict=True):
                    self._move([parameter], [g])
            else:
                self._move(parameters, gradients)

    def _move(self, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        if self.weight_decay != 0:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=self.weight_decay))
        if self.momentum != 0:
            gradients = [self._velocity(p, g) for p, g in zip(parameters, gradients, strict=True)]
        if gradients[0].is_sparse:
            parameters[0].add_(gradients[0], alpha=-self.lr)
        else:
            torch._foreach_add_(parameters, gradients, alpha=-self.lr)

    def _velocity(self, parameter: Tensor, g: Tensor) -> Tensor:
        if parameter not in self.state:
            self.state[parameter] = {"momentum_buffer": g.detach().clone()}
        else:
            self.state[parameter]["momentum_buffer"].mul_(self.momentum).add_(g)
        return self.state[parameter]["momentum_buffer"]

    def state_dict(self) -> dict[str, Any]:
        """The state of each parameter in turn; None before its first step, and without momentum."""
        return {"state": [self.state.get(p) for p in self.parameters]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """A copy of what `state_dict` returned. Raises ValueError for what doesn't fit these parameters."""
        states = state_dict["state"]
        if len(states) != len(self.parameters) or (self.momentum == 0 and any(states)):
            raise ValueError("the optimiser has a state of no parameter")
        self.state.clear()
        for parameter, saved in zip(self.parameters, states, strict=True):
            if saved is not None:
                self.state[parameter] = {"momentum_buffer": torch.empty_like(parameter)}
                copy_state(saved, self.state[parameter])
