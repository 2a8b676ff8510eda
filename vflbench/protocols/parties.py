"""What both kinds of parties share: how they look rows up, draw noise, and save what they have learned."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vflbench.data.table import Features
from vflbench.defenses.base import Context
from vflbench.messages.facts import OwnColumns
from vflbench.models.layers import ColumnEmbedding
from vflbench.models.optimizers.base import Optimizer, Stepper, load_state
from vflbench.numerics.optim import SgdSteps

Lookup = Callable[[Tensor], Features]
"""Row ids (n,) -> the party's own columns of these rows."""


@dataclass(frozen=True)
class Noise:
    """A party's generators: what its defense draws from while training, and while predicting.

    They are two so that predicting more or less often never changes what training draws.
    """

    training: torch.Generator
    predicting: torch.Generator


@dataclass(frozen=True)
class Unlearned:
    """A batch whose embedding was sent before the party learned from the one before it. drawn: state of what the network
    draws from, as it was.
    """

    ids: Tensor
    epoch: int
    drawn: Tensor | None


def context_of(ids: Tensor, columns: Features | None, epoch: int, rng: torch.Generator) -> Context:
    """What a defense of a party with these columns gets beside the values."""
    return Context(ids.clone(), None if columns is None else OwnColumns(columns.numeric, columns.categorical), epoch, rng)


def attach(optimizer: Optimizer, network: nn.Module) -> Stepper:
    """The optimiser of a network. For a network without parameters, one that does nothing."""
    if next(network.parameters(), None) is not None:
        return optimizer.attach(network)
    return SgdSteps([], lr=0.0)


def single(h: Tensor) -> Tensor:
    """float64 values as float32; others as they are."""
    return h.float() if h.dtype is torch.float64 else h


def first_gradient(network: nn.Module) -> Tensor:
    """(p,) of the batch, by the parameters of the first layer: those of the module that holds the network's first."""
    for module in network.modules():
        gradients = [p.grad.flatten() for p in module.parameters(recurse=False) if p.grad is not None]
        if gradients and not isinstance(module, ColumnEmbedding):
            return torch.cat(gradients).detach().float()
    return torch.empty(0)


def learned(network: nn.Module, optimizer: Stepper) -> dict[str, Any]:
    """The weights of a party, and the state of its optimiser."""
    return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}


def relearn(network: nn.Module, optimizer: Stepper, state: Mapping[str, Any]) -> None:
    """Restore what `learned` returned. All tensors are copied, also those of the optimiser, which torch would share."""
    network.load_state_dict(state["network"])
    load_state(optimizer, state["optimizer"])
    shared = set(_memories(state["optimizer"]))
    for values in optimizer.state.values():
        for name, value in values.items():
            if isinstance(value, Tensor) and shared.intersection(_memories(value)):
                values[name] = value.clone()


def _memories(value: Any) -> Iterator[int]:
    """Memory addresses of the tensors in nested dicts and lists."""
    if isinstance(value, Tensor):
        yield value.untyped_storage().data_ptr()
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _memories(part)
