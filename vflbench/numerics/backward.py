"""The backward pass from given gradients, without torch's check of their shapes, which loads its compiler (1.5 s)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


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
