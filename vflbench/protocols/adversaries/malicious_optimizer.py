"""Malicious local optimiser: a party's own steps are scaled, so that the top model leans on its embeddings."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.models.optimizers import Optimizer, Stepper, load_state
from vflbench.options import Ratio, RatioOrZero, options
from vflbench.protocols.adversaries import Adversary


@options
class MaliciousOptimizer(Adversary):
    """Scale each coordinate of its own steps up while its gradient keeps its sign, so that its network learns faster than
    those of honest parties and the top model comes to depend on it.

        step'_t = r_t step_t,   r_t = min(max(1 + gamma g_t / g'_(t-1), min_ratio), max_ratio),   g'_t = r_t g_t

    g_t: the gradient of a coordinate; step_t: what the optimiser that the parties agreed on would do. For plain SGD this is
    the published rule, which scales the gradient; Adam divides a gradient by its size, so what is scaled is its step. If the
    last gradient was 0, r_t is 1. Tables that `lazy_adam` updates keep their honest steps.

    gamma: weight of the ratio. min_ratio, max_ratio: bounds of r_t, 1 and 5 as published.

    Source: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022: the
    malicious local optimizer, with the ratio and the bounds of its public code.
    """

    gamma: RatioOrZero = 1.0
    min_ratio: Ratio = 1.0
    max_ratio: Ratio = 5.0

    def __post_init__(self) -> None:
        if self.min_ratio > self.max_ratio:
            raise UserError(f"it must be at most max_ratio, {self.max_ratio}", key="min_ratio", value=self.min_ratio)

    def attach(self, network: nn.Module, optimizer: Optimizer) -> Stepper:
        return ScaledSteps(super().attach(network, optimizer), list(network.parameters()), self)


class ScaledSteps:
    """In place of an optimiser: its steps, scaled coordinate by coordinate."""

    def __init__(self, honest: Stepper, parameters: list[nn.Parameter], by: MaliciousOptimizer):
        self.honest, self._parameters, self._by = honest, parameters, by
        self._last: list[Tensor | None] = [None] * len(parameters)  # scaled gradients

    @property
    def state(self) -> Mapping[Any, Any]:
        return self.honest.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.honest.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        moved = [(j, p, p.detach().clone(), p.grad.clone()) for j, p in enumerate(self._parameters) if p.grad is not None]
        self.honest.step()
        for j, parameter, before, g in moved:
            ratio = self._ratio(g, self._last[j])
            parameter.add_((ratio - 1) * (parameter - before))
            self._last[j] = ratio * g

    def _ratio(self, g: Tensor, last: Tensor | None) -> Tensor:
        if last is None:
            return torch.ones_like(g)
        change = torch.where(last == 0, 0.0, g / torch.where(last == 0, 1.0, last))
        return (1 + self._by.gamma * change).clamp(self._by.min_ratio, self._by.max_ratio)

    def state_dict(self) -> dict[str, Any]:
        return {"honest": self.honest.state_dict(), "last": list(self._last)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        load_state(self.honest, state_dict["honest"])
        self._last = [None if last is None else last.clone() for last in state_dict["last"]]
