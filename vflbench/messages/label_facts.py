"""Facts that the label party has: the labels, and its own networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from vflbench.messages.fact import Fact, Layers, Network
from vflbench.messages.facts import OwnColumns


@dataclass(frozen=True)
class Labels(Fact):
    """The classes of the batch, as the label party holds them. classes: (n,)."""

    title = "labels"

    classes: Tensor

    def rows(self, index: Tensor) -> Self:
        return type(self)(self.classes[index])


@dataclass(frozen=True)
class TopNetworks(Network):
    """Networks of the label party, frozen: (party -> layer -> (n, d), own columns) -> logits (n, outputs)."""

    forward: Any


@dataclass(frozen=True)
class OwnTop(Fact):
    """The label party's own networks as they were when they answered the batch: the top, and a bottom of its own columns
    where it has one. networks: a frozen copy.
    """

    title = "own top"

    networks: TopNetworks

    def logits(self, embeddings: Mapping[str, Layers], columns: OwnColumns) -> Tensor:
        """Logits as predictions have them, (n, 1) for two classes and (n, K) for more, differentiable in the embeddings.

        embeddings: party -> layer -> (n, d), all that each other party sends. columns: the label party's own columns of
        these rows; (n, 0) where it holds none.
        """
        logits: Tensor = self.networks.forward(embeddings, columns)
        return logits
