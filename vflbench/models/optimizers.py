"""Optimizer: what every entry of configs/optimizer builds, and each party attaches to its network; Adam and SGD."""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn, optim

from vflbench.numerics.optim import AdamSteps, SgdSteps
from vflbench.options import Decay, Rate, RootTerm, WeightDecay, options


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


@options
class Adam(Optimizer):
    """Adam on every parameter, embedding tables included, at every step.

    lr: step size. beta1, beta2: decay of the moments. eps: added to the root of the second moment. weight_decay: L2 penalty.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    lr: Rate = 5e-4
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    eps: RootTerm = 1e-8
    weight_decay: WeightDecay = 0.0

    def attach(self, network: nn.Module) -> AdamSteps:
        rates: dict[str, Any] = {"lr": self.lr, "betas": (self.beta1, self.beta2), "eps": self.eps}
        return AdamSteps(network.parameters(), **rates, weight_decay=self.weight_decay, fused=True)


@options
class Sgd(Optimizer):
    """Gradient steps, with optional momentum.

    lr: step size. momentum: decay of the velocity. weight_decay: L2 penalty.
    """

    lr: Rate = 0.1
    momentum: Decay = 0.0
    weight_decay: WeightDecay = 0.0

    def attach(self, network: nn.Module) -> SgdSteps:
        return SgdSteps(network.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)


def attach(optimizer: Optimizer, network: nn.Module) -> Stepper:
    """The optimiser of a network. For a network without parameters, one that does nothing."""
    if next(network.parameters(), None) is not None:
        return optimizer.attach(network)
    return SgdSteps([{"params": []}], lr=0.0)


def load_state(stepper: Stepper, state: dict[str, Any]) -> None:
    """`load_state_dict`, and a check of what it has taken: torch's kernels believe the shapes that a file claims. What torch
    takes as it is, is copied.

    Raises ValueError where a tensor doesn't fit its parameter, or an option is of another type than it was.
    """
    if not isinstance(stepper, optim.Optimizer):
        stepper.load_state_dict(copy.deepcopy(state))
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
        values.update({name: value.clone() for name, value in values.items() if isinstance(value, Tensor)})
