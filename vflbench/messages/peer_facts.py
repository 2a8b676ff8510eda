"""Facts about other parties: their models, what they would send, how they compress it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vflbench.messages.codec import Encoded
from vflbench.messages.fact import Fact, Layers, Network
from vflbench.messages.facts import PartyFeatures


@dataclass(frozen=True)
class PeerModel(Network):
    """Another party's bottom model, and the columns that it takes.

    network: (numeric (n, k), categorical (n, c)) -> layer -> (n, d), differentiable in the numeric columns. It also has
    `tables()` and `from_vectors(numeric, vectors)` for categorical ones, as in `vflbench.models.base.Bottom`.
    numeric: names of the numeric columns. cardinalities: of the categorical ones.
    """

    network: Any
    numeric: tuple[str, ...]
    cardinalities: tuple[int, ...]


@dataclass(frozen=True)
class PeerModels(Fact):
    """Every other party's bottom model as it was when it computed the embeddings of the batch.

    Args:
        models: party -> copy.
    """

    title = "peer models"

    models: Mapping[str, PeerModel]


@dataclass(frozen=True)
class Architecture:
    """How another party's bottom model is built. numeric, cardinalities: as in `PeerModel`.

    build: generator -> a new network of the same layers, with weights drawn as those of the party were before training. It
    has nothing of the party's own weights.
    """

    numeric: tuple[str, ...]
    cardinalities: tuple[int, ...]
    build: Callable[[torch.Generator], Any]


@dataclass(frozen=True)
class PeerArchitectures(Fact):
    """The architecture of every other party's bottom model, without weights.

    Args:
        peers: party -> `Architecture`.
    """

    title = "peer architectures"

    peers: Mapping[str, Architecture]


Answerer = Callable[[Tensor, Tensor, torch.Generator], Mapping[str, Tensor]]
"""(numeric (n, k), categorical (n, c), generator of its noise) -> layer -> (n, d) that the party would send."""


@dataclass(frozen=True)
class Queries(Fact):
    """What every other party would send for any features: its model and its defense can be asked but not looked into.

    Args:
        answer: party -> `Answerer`, (numeric (n, k), categorical (n, c), generator of its noise) -> layer -> (n, d).
    """

    title = "queries to peers"

    answer: Mapping[str, Answerer]


@dataclass(frozen=True)
class Auxiliary(Fact):
    """All parties' columns of rows that are not trained on, and their classes; the run takes them from the test rows.

    Args:
        columns: party -> its columns of m rows, the same for every party.
        labels: (m,) classes of these rows, 0 .. K - 1; left out where there are no rows.
    """

    title = "auxiliary rows"

    columns: Mapping[str, PartyFeatures]
    labels: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True)
class Compression(Fact):
    """The rule by which the received embeddings were compressed, without any noise that was added.

    Args:
        encoded: party -> layer -> the encoded embedding. Layers that crossed uncompressed are not there.
    """

    title = "compression rule"
    per_row = True

    encoded: Mapping[str, Mapping[str, Encoded]]

    def rules(self, party: str) -> dict[str, Callable[[Tensor], Tensor]]:
        """Layer -> function: what other embeddings (m, d) of that layer would become by the same rule."""
        return {layer: encoded.compress for layer, encoded in self.encoded.get(party, {}).items()}


@dataclass(frozen=True)
class NoiseMean(Fact):
    """The mean of the noise in the received embeddings. Subtracted from them, it leaves the receiver's network input.

    Args:
        means: party -> layer -> (n, d). Layers without such noise are not there.
    """

    title = "mean of the noise"
    per_row = True

    means: Mapping[str, Layers]


@dataclass(frozen=True)
class PeerDecoder(Network):
    """A network that the label party has trained to read another party's embeddings.

    network: (n, d) -> (n, k + s): of all layers side by side, divided by `scale` (d,), numeric columns before a sigmoid, and
    the logits of categorical ones. ids: for each categorical column, the (s_j,) ids that these logits are of.
    """

    network: Any
    layers: tuple[str, ...]
    scale: Tensor
    numeric: int
    ids: tuple[Tensor, ...]

    @torch.no_grad()
    def __call__(self, received: Layers) -> PartyFeatures:
        """received: layer -> (n, d)."""
        z = torch.cat([received[layer].float() for layer in self.layers], dim=1)
        numeric, *logits = self.network(z / self.scale).split([self.numeric, *map(len, self.ids)], dim=1)
        decoded = [ids[scores.argmax(dim=1)] for ids, scores in zip(self.ids, logits, strict=True)]
        categorical = torch.stack(decoded, dim=1) if decoded else torch.empty(len(z), 0, device=z.device)
        return PartyFeatures(torch.sigmoid(numeric), categorical.int())


@dataclass(frozen=True)
class PeerDecoders(Fact):
    """The decoders of a label party that hijacks, as they stood when it had answered the batch. of: party -> its decoder."""

    title = "the decoder of adversary=fsha"

    of: Mapping[str, PeerDecoder]
