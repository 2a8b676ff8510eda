"""What the inner layers of a module put out, read by forward hooks while it is called."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules whose children stand for them."""


def children_of(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Dotted names of the named children; of a plain container among them, those of its own children."""
    for name, child in module.named_children():
        if type(child) in _CONTAINERS:
            yield from children_of(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@dataclass
class Taps:
    """Which submodules are read. names: dotted. copied: those whose output a later step of the module changes in place.

    What is read is the tensor that flows on, so its gradient is that of the activation. Where it has more than two
    dimensions, it is the flattened tensor, of which the module gets a view. Of a tuple or list, as an LSTM returns it, the
    first tensor is read. Anything but floating-point numbers with one entry a row isn't read. A submodule that is called
    several times is read at its last call.
    """

    names: Sequence[str]
    copied: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def call(self, module: nn.Module, rows: int, *inputs: Any) -> tuple[Any, dict[str, Tensor]]:
        """The module's output, and name -> (rows, width) in the order in which submodules ran.

        Then `changed` has the names of those whose output was changed in place.
        """
        read: dict[str, Tensor] = {}
        versions: dict[str, int] = {}

        def keep(name: str, output: Any) -> Any:
            first = _first_tensor(output)
            if first is None or not first.is_floating_point() or first.ndim == 0 or len(first) != rows:
                return None
            read.pop(name, None)
            read[name] = flat = first if first.ndim == 2 else first.reshape(rows, -1)
            versions[name] = flat._version
            passed_on = flat.clone() if name in self.copied else flat
            return None if passed_on is first else _with_first(output, passed_on.view(first.shape))

        with ExitStack() as hooks:
            for name in self.names:
                hook = module.get_submodule(name).register_forward_hook(lambda _, __, output, name=name: keep(name, output))
                hooks.callback(hook.remove)
            output = module(*inputs)
        self.changed = {name for name, values in read.items() if values._version != versions[name]}
        return output, read


def distinct(read: Mapping[str, Tensor], others: Sequence[Tensor]) -> tuple[str, ...]:
    """The names of those that show other memory than one before, or than the others: not those of an identity."""
    seen, names = {_place(values) for values in others}, []
    for name, values in read.items():
        if values.numel() and _place(values) not in seen:
            seen.add(_place(values))
            names.append(name)
    return tuple(names)


def _place(values: Tensor) -> tuple[int, tuple[int, ...], torch.dtype]:
    flat = values.reshape(len(values), -1)
    return flat.data_ptr(), tuple(flat.shape), flat.dtype


def _first_tensor(output: Any) -> Tensor | None:
    while isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def _with_first(output: Any, tensor: Tensor) -> Any:
    """The same output with another first tensor."""
    if isinstance(output, Tensor):
        return tensor
    parts = [_with_first(output[0], tensor), *output[1:]]
    return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
