"""Layers whose weights the caller draws: torch's own are drawn from the global generator when they are made.

`torch.nn.utils.skip_init` does the same by way of the meta device, and with it loads torch's compiler.
"""

from torch import Tensor, nn
from torch.nn.modules import module as _modules


class BareLinear(nn.Linear):
    """Its weights aren't initialised."""

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""


class BareConv2d(nn.Conv2d):
    """Its weights aren't initialised."""

    bias: nn.Parameter

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""


def is_plain_linear(layer: nn.Module) -> bool:
    """Whether calling it is W x + b and nothing else: its class and its `forward` are torch's, its weights are its own
    parameters, and no code of others is called with it.
    """
    return (
        type(layer) in (nn.Linear, BareLinear)
        and "forward" not in vars(layer)
        and {"weight", "bias"} <= set(layer._parameters)
        and layer.bias is not None
        and not has_hooks(layer)
        and not any(getattr(_modules, f"_global_{kind}") for kind in _KINDS)
    )


def has_hooks(of: nn.Module | Tensor) -> bool:
    """Whether code of others is called when it is used; torch has no public way to ask."""
    return any(getattr(of, f"_{kind}", None) for kind in (*_KINDS, "post_accumulate_grad_hooks"))


_KINDS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
