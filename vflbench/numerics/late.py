"""torch under names that load it at first use. It takes over a second to load, which what only reads or describes need not
wait for: who an attacker is, what a recording holds, how scores are graded.

    from __future__ import annotations          # so that `torch.Generator` in a signature loads nothing either

    from vflbench.numerics.late import F, torch

    if TYPE_CHECKING:
        from torch import Tensor

Everything that runs sees torch itself. A class that derives from one of torch's, a decorator of torch's and a default value
load it when they are read; the classes stand in modules that are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["F", "nn", "no_grad", "torch"]

P = ParamSpec("P")
R = TypeVar("R")


class Late:
    """Stands for a module, and imports it when it is first asked for anything."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what pickle, copy and inspect look for
            raise AttributeError(name)
        return getattr(import_module(self._name), name)

    def __repr__(self) -> str:
        return f"<{self._name}, loaded at first use>"


if TYPE_CHECKING:
    import torch as torch
    from torch import nn as nn
    from torch.nn import functional as F
else:
    torch, nn, F = Late("torch"), Late("torch.nn"), Late("torch.nn.functional")


def no_grad(function: Callable[P, R]) -> Callable[P, R]:
    """The function without autograd's records, as of `torch.no_grad()`."""

    @wraps(function)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.no_grad():
            return function(*args, **kwargs)

    return quiet
