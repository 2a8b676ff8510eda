"""Optimizer: what every entry of configs/optimizer builds. Each party attaches one to its network."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn, optim

from vflbench.numerics.optim import SgdSteps
from vflbench.options import options


class Stepper(Protocol):
    """The methods of torch's optimisers that a party calls. `state` holds tensors per parameter."""

    @property
    def state(self) -> Mapping[Any, Any]: ...

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def step(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@options
class Optimizer:
    """Options of an optimiser. A subclass overrides `attach`."""

    def attach(self, network: nn.Module) -> Stepper:
        """An optimiser over the parameters of one party's network."""
        raise NotImplementedError


def attach(optimizer: Optimizer, network: nn.Module) -> Stepper:
    """The optimiser of a network. For a network without parameters, one that does nothing."""
    if next(network.parameters(), None) is not None:
        return optimizer.attach(network)
    return SgdSteps([{"params": []}], lr=0.0)


def load_state(stepper: Stepper, state: dict[str, Any]) -> None:
    """`load_state_dict`, and a check of what it has taken: torch's kernels believe the shapes that a file claims.

    Raises ValueError where a tensor doesn't fit its parameter, or an option is of another type than it was.
    """
    if not isinstance(stepper, optim.Optimizer):
        stepper.load_state_dict(state)
        return
    before = [{key: type(value) for key, value in group.items()} for group in stepper.param_groups]
    stepper.load_state_dict(state)
    after = [{key: type(value) for key, value in group.items()} for group in stepper.param_groups]
    if before != after:
        raise ValueError("the optimiser's options are of other types")
    of_parameters = {id(p): p for group in stepper.param_groups for p in group["params"]}
    for parameter, values in stepper.state.items():
        if id(parameter) not in of_parameters:
            raise ValueError("the optimiser has a state of no parameter")
        for name, value in values.items():
            if isinstance(value, Tensor) and (
                not value.is_contiguous()  # as one number that stands for all would be
                or value.device != parameter.device
                or value.dtype not in (torch.float32, parameter.dtype)
                or (value.shape != parameter.shape and not (name == "step" and value.dim() == 0))
            ):
                raise ValueError(f"the optimiser's {name} is {tuple(value.shape)} for a parameter {tuple(parameter.shape)}")
