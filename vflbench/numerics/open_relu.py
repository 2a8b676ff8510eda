"""ReLU whose gradient is not zero for negative inputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_RELUS = (F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)


class OpenRelu(TorchFunctionMode):
    """Within this context every ReLU keeps its values but has another gradient.

        forward: max(0, x);   backward: g where x > 0, slope g elsewhere

    A gradient search for the input of a network gets stuck where the relevant units are inactive. With slope > 0 it still
    learns in which direction they become active. At an input with the target outputs both gradients are 0.
    """

    def __init__(self, slope: float):
        super().__init__()
        self.slope = slope

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RELUS:
            return _OpenRelu.apply(args[0], self.slope)
        return func(*args, **(kwargs or {}))


class _OpenRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(x > 0)
        ctx.slope = slope
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (is_open,) = ctx.saved_tensors
        return torch.where(is_open, g, ctx.slope * g), None
