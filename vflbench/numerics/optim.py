"""Optimisers and a backward pass of torch that do not load its compiler (1.5 s); layers whose weights the caller draws."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, Optimizer


class _Uncompiled(Optimizer):
    """What keeps its methods from being compiled is taken off them: it would load torch's compiler to say so."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamSteps(_Uncompiled, Adam):
    """torch.optim.Adam."""

    step = torch.no_grad()(inspect.unwrap(Adam.step))


class SgdSteps(_Uncompiled, SGD):
    """torch.optim.SGD."""

    step = torch.no_grad()(inspect.unwrap(SGD.step))


class Lbfgs(_Uncompiled, LBFGS):
    """torch.optim.LBFGS."""


def backward(tensors: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """`torch.autograd.backward(tensors, gradients)`: the same bits in the same order. Raises RuntimeError where a gradient
    has another shape or type than its tensor.
    """
    for values, g in zip(tensors, gradients, strict=True):
        if g.shape != values.shape or g.dtype != values.dtype:
            raise RuntimeError(f"a gradient {tuple(g.shape)}, {g.dtype}, for a tensor {tuple(values.shape)}, {values.dtype}")
    with torch.enable_grad():
        _Root.apply(list(gradients), *tensors).backward()


class _Root(torch.autograd.Function):
    """A number whose gradients by the tensors are those that are given."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Any, ...]:
        return None, *ctx.gradients


class BareLinear(nn.Linear):
    """Its weights aren't initialised."""

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""


class BareConv2d(nn.Conv2d):
    """Its weights aren't initialised."""

    bias: nn.Parameter

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""
