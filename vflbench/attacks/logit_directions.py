"""What attacks keep of the gradients of an epoch: the direction of each layer along which the logit rises."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vflbench.numerics.logit_direction import gradient_moments, logit_direction


class LogitDirections:
    """The moments of gradients of all batches so far, layer by layer, on the CPU: a (d, d) and a (d,) tensor a layer."""

    def __init__(self) -> None:
        self._second: dict[str, Tensor] = {}
        self._third: dict[str, Tensor] = {}

    def add(self, layers: Mapping[str, Tensor]) -> None:
        """The gradients of one batch. layers: layer -> (n, d)."""
        for layer, g in layers.items():
            second, third = (moment.cpu() for moment in gradient_moments(g))
            self._second[layer] = self._second[layer] + second if layer in self._second else second
            self._third[layer] = self._third[layer] + third if layer in self._third else third

    def of(self, layer: str, prior: float) -> Tensor | None:
        """(d,) float64, of length 1; None for a layer without gradients. prior: the share of positives."""
        if layer not in self._second:
            return None
        return logit_direction(self._second[layer], self._third[layer], prior)

    def clear(self) -> None:
        self._second, self._third = {}, {}

    def state(self) -> dict[str, Any]:
        return {"second": dict(self._second), "third": dict(self._third)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._second = {layer: values.clone() for layer, values in state["second"].items()}
        self._third = {layer: values.clone() for layer, values in state["third"].items()}
