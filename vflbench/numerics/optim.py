"""Optimisers and a backward pass of torch that do not load its slow compiler; layers whose weights the caller draws."""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, Adam, Optimizer


class _Uncompiled(Optimizer):
    """What keeps its methods from being compiled is taken off them: it would load torch's compiler to say so. So is what
    names each step for torch's profiler, and calls hooks.
    """

    profile_hook_step = staticmethod(lambda step: step)  # type: ignore[assignment]
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
    engine = torch.autograd.Variable._execution_engine  # torch.autograd.backward loads the compiler to compare shapes
    engine.run_backward(tuple(tensors), tuple(gradients), False, False, (), allow_unreachable=True, accumulate_grad=True)


def embedding(places: Tensor, table: Tensor) -> Tensor:
    """`F.embedding`: the same bits in float32 and float64. On the CPU, where torch's way back sets up a loop for each
    row, this one takes a quarter of its time. On a card, `gather` would add rows in any order.

    places: (n, c) int; table: (V, dim). Returns (n, c, dim).
    """
    if table.device.type != "cpu":
        return F.embedding(places, table)
    rows = places.long().reshape(-1, 1).expand(-1, table.shape[1])
    return table.gather(0, rows).view(*places.shape, table.shape[1])


class BareLinear(nn.Linear):
    """Its weights aren't initialised."""

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""


class BareConv2d(nn.Conv2d):
    """Its weights aren't initialised."""

    bias: nn.Parameter

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""
