"""Steps of Adam, SGD and L-BFGS, the backward pass from given gradients, and layers whose weights the caller draws.

They have the bits of torch's own, which load its compiler (1.5 s).
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_State = dict[str, "Tensor"]


class AdamSteps:
    """Adam on a list of parameters: the same bits as torch.optim.Adam; unless fused, in float32 and float64
    alone.

        m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,   p = p - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)

    weight_decay: w in g + w p. amsgrad: the largest v so far takes the place of v in the step. fused: one kernel for the
    whole step; without it the roundings differ. lr may be changed between steps. A parameter without gradient is left out
    of a step, and has no state before its first.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; amsgrad: Reddi et al., ICLR 2018.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        amsgrad: bool = False,
        fused: bool = False,
    ):
        self.parameters = list(parameters)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.amsgrad, self.fused = amsgrad, fused
        self.state: dict[Tensor, _State] = {}
        self._moments = ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else []))

    def zero_grad(self, set_to_none: bool = True) -> None:
        reset_gradients(self.parameters, set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        for parameters in of_one_kind(p for p in self.parameters if p.grad is not None):
            gradients = [p.grad for p in parameters if p.grad is not None]
            if any(g.is_sparse for g in gradients):
                raise RuntimeError("Adam does not support sparse gradients")
            states = [self._state_of(p) for p in parameters]
            self._fused(parameters, gradients, states) if self.fused else self._each(parameters, gradients, states)

    def _state_of(self, parameter: Tensor) -> _State:
        if parameter not in self.state:
            zeros = {name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in self._moments}
            step = torch.zeros((), dtype=torch.float32, device=parameter.device if self.fused else "cpu")
            self.state[parameter] = {"step": step, **zeros}
        return self.state[parameter]

    def _fused(self, parameters: list[Tensor], gradients: list[Tensor], states: list[_State]) -> None:
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        first, second = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        largest = [state["max_exp_avg_sq"] for state in states] if self.amsgrad else []
        torch._fused_adam_(
            *(parameters, gradients, first, second, largest, steps),
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=self.amsgrad,
            maximize=False,
        )

    def _each(self, parameters: list[Tensor], gradients: list[Tensor], states: list[_State]) -> None:
        (b1, b2), first, second = self.betas, [state["exp_avg"] for state in states], [s["exp_avg_sq"] for s in states]
        for state in states:
            state["step"] += 1
        if self.weight_decay != 0:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=self.weight_decay))
        torch._foreach_lerp_(first, gradients, 1 - b1)
        torch._foreach_mul_(second, b2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - b2)
        if self.amsgrad:
            largest = [state["max_exp_avg_sq"] for state in states]
            torch._foreach_maximum_(largest, second)
            second = largest
        steps = [state["step"].item() for state in states]
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, [(1 - b2**t) ** 0.5 for t in steps])
        torch._foreach_add_(roots, self.eps)
        torch._foreach_addcdiv_(parameters, first, roots, [-(self.lr / (1 - b1**t)) for t in steps])

    def state_dict(self) -> dict[str, Any]:
        """The state of each parameter in turn; None before its first step."""
        return {"state": [self.state.get(p) for p in self.parameters]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """A copy of what `state_dict` returned. Raises ValueError for what doesn't fit these parameters."""
        states = state_dict["state"]
        if len(states) != len(self.parameters):
            raise ValueError("the optimiser has a state of no parameter")
        self.state.clear()
        for parameter, saved in zip(self.parameters, states, strict=True):
            if saved is not None:
                copy_state(saved, self._state_of(parameter))


def reset_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad.detach_().zero_()


def of_one_kind(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """The parameters, apart by device and type, as the kernels for lists of tensors need them."""
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return list(kinds.values())


def copy_state(saved: Mapping[str, Any], into: Mapping[str, Tensor]) -> None:
    """Copy tensors of the same names, shapes and types. Raises ValueError where they aren't the same: the kernels believe
    what a file claims.
    """
    if set(saved) != set(into):
        raise ValueError("the optimiser's state has other names")
    for name, values in into.items():
        given = saved[name]
        if not isinstance(given, torch.Tensor) or given.layout is not torch.strided:
            raise ValueError(f"the optimiser's {name} is no tensor")
        if given.shape != values.shape or given.dtype != values.dtype:
            raise ValueError(f"the optimiser's {name} is {tuple(given.shape)} where {tuple(values.shape)} belongs")
        values.copy_(given)


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


class Lbfgs(torch.optim.LBFGS):
    """torch.optim.LBFGS. What keeps its methods from being compiled is taken off two of them, which also are never compiled
    here: it would load torch's compiler to say so.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


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
