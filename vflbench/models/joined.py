"""ReLU layers on the CPU as one node of autograd: each layer is one product, and the gradient passes through in place.

The bits are those of the layers one after the other.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from vflbench.numerics.bare_layers import is_plain_linear

_LEAST = 1 << 26
"""Multiplications of the largest layer from which on it gains: below, torch's own nodes take less time than this one."""

_unseen: ContextVar[bool] = ContextVar("unseen", default=False)


@contextmanager
def gradients_between_unseen(unseen: bool = True) -> Iterator[None]:
    """Inside, if unseen, layers are called of which nobody will look at the gradients of any activation but the last, nor
    differentiate twice: `retain_grad` has no effect on the others, and a second derivative raises RuntimeError.
    """
    before = _unseen.set(unseen)
    try:
        yield
    finally:
        _unseen.reset(before)


def joined(layers: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, ...] | None:
    """The activations max(0, W x + b) of linear layers, first layer first, (n, width) each; None where they are to be called
    one after the other: of small batches, on other devices, where somebody looks between a layer and its ReLU or changes
    what a ReLU is, and where gradients between them may be looked at.

    The product of a layer adds the bias and takes the maximum while it has its numbers at hand, which saves reading and
    writing (n, width) twice.
    """
    if not layers or not all(map(_is_plain, layers)) or not _fits(layers, x):
        return None
    if torch.is_grad_enabled() and not _unseen.get():
        return None
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    weights = [values.to(dtype) for layer in linear for values in (layer.weight, layer.bias)]
    state = dtype, torch.get_float32_matmul_precision(), torch.get_num_threads()
    if not all(_same_bits((len(x), *weight.shape), *state) for weight in weights[::2]):
        return None
    x = x.to(dtype)
    return _Joined.apply(x, *weights) if torch.is_grad_enabled() else _forward(x, weights)


def _is_plain(layer: nn.Module) -> bool:
    return is_plain_linear(layer) and layer.get_parameter("weight").device.type == "cpu"


def _fits(layers: Sequence[nn.Module], x: Tensor) -> bool:
    largest = max(layer.get_parameter("weight").numel() for layer in layers)  # the first is small where columns are few
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dim() == 2
        and x.dtype in (torch.float32, torch.bfloat16)
        and len(x) * largest >= _LEAST
        and x.is_contiguous()
        and torch._C._len_torch_function_stack() == 0
        and not torch._C._are_functorch_transforms_active()
    )


def _forward(x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    activations = []
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        x = _relu_of_product(x, weight, bias)
        activations.append(x)
    return tuple(activations)


class _Joined(torch.autograd.Function):
    """a_l = max(0, a_(l-1) W_l^T + b_l). x: (n, inputs); weights: W_1 (outputs, inputs), b_1 (outputs,), W_2, ..."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        activations = _forward(x, weights)
        ctx.save_for_backward(x, *weights[::2], *activations)
        ctx.set_materialize_grads(False)
        return activations

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        depth, needed = len(given), ctx.needs_input_grad
        x, *saved = ctx.saved_tensors
        weights, activations = saved[:depth], saved[depth:]
        found: list[Tensor | None] = [None] * len(needed)
        g: Tensor | None = None  # a buffer of its own once there is one: what is given may be another's
        for i in reversed(range(depth)):
            above, own = given[i], g is not None
            if g is not None and above is not None:
                g = g.add_(above)
            elif g is None:
                g = above
            if g is None:
                continue
            masked = g if own else torch.empty_like(activations[i])
            g = torch.ops.aten.threshold_backward(g, activations[i], 0, grad_input=masked)
            below = activations[i - 1] if i else x
            if needed[2 * i + 1]:
                found[2 * i + 1] = g.t().mm(below)  # as torch does it: x^T g may sum in another order
            if needed[2 * i + 2]:
                found[2 * i + 2] = g.sum(dim=0)
            g = g.mm(weights[i]) if any(needed[: 2 * i + 1]) else None
        found[0] = g
        return tuple(found)


def _relu_of_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "relu", [], "")


_checked: dict[tuple[Any, ...], bool] = {}
_checking = threading.Lock()


def _same_bits(sizes: tuple[int, int, int], dtype: torch.dtype, precision: str, threads: int) -> bool:
    """Whether a joined layer has the bits of product, bias and ReLU one after the other, at (n, outputs, inputs), and its
    gradients have theirs: on numbers of both signs, once in a process. Which way torch computes a product depends on all of
    these and on the processor.
    """
    case = sizes, dtype, precision, threads
    with _checking:
        if case not in _checked:
            _checked[case] = _try(*sizes, dtype)
    return _checked[case]


def _try(n: int, outputs: int, inputs: int, dtype: torch.dtype) -> bool:
    given = _numbers(n, outputs).to(dtype)
    with torch.autocast("cpu", enabled=False), torch.enable_grad():
        try:
            joined_one, apart = (_value_and_gradients(form, inputs, given) for form in (_one_joined, _one_apart))
        except (AttributeError, RuntimeError):  # a build of torch without it
            return False
    return all(map(torch.equal, joined_one, apart))


def _value_and_gradients(form: Callable[..., Tensor], inputs: int, given: Tensor) -> list[Tensor]:
    n, outputs = given.shape
    of = [_numbers(*shape).to(given.dtype).requires_grad_() for shape in ((n, inputs), (outputs, inputs), (outputs,))]
    value = form(*of)
    return [value.detach(), *torch.autograd.grad(value, of, given)]


def _one_joined(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _Joined.apply(x, weight, bias)[0]


def _one_apart(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.linear(x, weight, bias))


def _numbers(*shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=torch.float32).remainder_(7919).mul_(0.61803).sin_().view(shape)
