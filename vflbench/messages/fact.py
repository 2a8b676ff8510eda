"""Fact: one kind of knowledge, the base of all others."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vflbench.messages.codec import Encoded
from vflbench.messages.message import Kind

Layers = Mapping[str, "Tensor"]
"""Layer name -> (n, d), one row for each row of the batch."""


@dataclass(frozen=True)
class Fact:
    """One kind of knowledge about a round, or about the run.

    title: how the fact is named in threat models. message: the kind of message that carries it, if one does; the answer of
    an attack that knows the fact counts as a leak through that kind of message.
    """

    title: ClassVar[str] = ""
    message: ClassVar[Kind | None] = None

    def rows(self, index: Tensor) -> Self:
        """The fact about these rows of the batch alone. index: (m,) places. A fact that is not about rows stays whole."""
        return self

    def copy(self) -> Self:
        """The same fact in tensors of its own, which an attack may change."""
        return replace(self, **{part.name: copied(getattr(self, part.name)) for part in fields(self)})

    def named(self, ids_of: Callable[[Tensor], Tensor]) -> Self:
        """The same fact for an attack, which knows rows by names. ids_of: names (m,) -> row ids (m,)."""
        return self


class Network:
    """What a fact holds that is copied with its networks."""


def rows_of(layers: Layers, index: Tensor) -> dict[str, Tensor]:
    """These rows of every layer."""
    return {layer: values[index] for layer, values in layers.items()}


def copied(value: Any) -> Any:
    """Tensors cloned, and those in mappings, lists, facts and encodings; networks deeply; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, Encoded | Fact):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([copied(part) for part in value])
    return copy.deepcopy(value) if isinstance(value, Network) else value
