"""How far embeddings and labels depend on each other, whatever an attack makes of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor

from vflbench.numerics.dcor import distance_correlation
from vflbench.numerics.interval import Interval, mean_interval

_ROWS = 1024

Place = tuple[str, str, bool]
"""Party, layer, and whether an attacker sees that layer."""


@dataclass(frozen=True)
class Dependence:
    """dCor^2 of one layer's embeddings and the labels over an epoch: mean over the audited batches."""

    party: str
    layer: str
    visible: bool
    dcor: Interval


@dataclass
class DependenceTable:
    """Collects squared distance correlations batch by batch, of the first 1024 rows of each.

    Of few rows dCor is biased upwards: independent embeddings have about the same value as here with the labels in another
    order, so compare runs of one batch size.
    """

    _values: dict[Place, list[float]] = field(default_factory=dict)

    def add(self, place: Place, embeddings: Tensor, truth: Tensor) -> None:
        """embeddings (n, d), truth (n,) classes. A batch of one class has none and is left out."""
        y = truth[:_ROWS]
        value = distance_correlation(embeddings[:_ROWS], y).item() if len(y) and bool((y != y[0]).any()) else math.nan
        self._values.setdefault(place, []).append(value)

    def found(self) -> list[Dependence]:
        """One entry a layer, in the order they first came."""
        return [
            Dependence(*place, mean_interval([value for value in values if not math.isnan(value)]))
            for place, values in self._values.items()
        ]

    def state(self) -> list[list[Any]]:
        """[party, layer, visible], [values] of each layer."""
        return [[list(place), list(values)] for place, values in self._values.items()]

    @classmethod
    def from_state(cls, state: Sequence[Sequence[Any]]) -> Self:
        return cls({tuple(place): list(values) for place, values in state})
