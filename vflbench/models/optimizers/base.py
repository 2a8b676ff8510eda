"""Optimizer: what every entry of configs/optimizer builds. Each party attaches one to its network."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from torch import nn

from vflbench.options import options


class Stepper(Protocol):
    """The methods of torch's optimisers that a party calls. `state` holds tensors per parameter."""

    @property
    def state(self) -> Mapping[Any, Any]: ...

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def step(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@options
class Optimizer:
    """Options of an optimiser. A subclass overrides `attach`.

    usual: option -> its least and largest usual value; one outside is named where a run diverges.
    """

    usual: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def attach(self, network: nn.Module) -> Stepper:
        """An optimiser over the parameters of one party's network."""
        raise NotImplementedError
