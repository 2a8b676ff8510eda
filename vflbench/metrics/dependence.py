"""Statistical dependence of embeddings and labels, measured without an attack."""

import math
from dataclasses import dataclass, field

from torch import Tensor

from vflbench.numerics.dcor import distance_correlation
from vflbench.numerics.interval import UNIT, Interval, mean_interval

_ROWS = 1024

Place = tuple[str, str, bool]
"""Party, layer, and whether an attacker sees the layer."""


@dataclass(frozen=True)
class Dependence:
    """dCor^2 between the embeddings of one layer and the labels: mean over the audited batches of an epoch."""

    party: str
    layer: str
    visible: bool
    dcor: Interval


@dataclass
class DependenceTable:
    """Collects the squared distance correlation of the first 1024 rows of each batch.

    dCor is biased upwards on few rows, also for independent embeddings. Compare only runs with the same batch size.
    """

    _values: dict[Place, list[float]] = field(default_factory=dict)

    def add(self, place: Place, embeddings: Tensor, truth: Tensor) -> None:
        """embeddings: (n, d). truth: (n,) classes. A batch with a single class is left out."""
        y = truth[:_ROWS]
        value = distance_correlation(embeddings[:_ROWS], y).item() if len(y) and bool((y != y[0]).any()) else math.nan
        self._values.setdefault(place, []).append(value)

    def found(self) -> list[Dependence]:
        """One entry per layer, in the order of their first batches."""
        return [
            Dependence(*place, mean_interval([value for value in values if not math.isnan(value)], UNIT))
            for place, values in self._values.items()
        ]
