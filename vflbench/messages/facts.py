"""Facts: all kinds of knowledge that an attacker may have. A new kind is a new class, and code that supplies it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from vflbench.messages.codec import Encoded
from vflbench.messages.wire import Kind
from vflbench.options import Count, Positive

Layers = Mapping[str, Tensor]
"""Layer name -> (n, d), one row for each row of the batch."""


@dataclass(frozen=True)
class Fact:
    """One kind of knowledge about a round, or about the run.

    Attributes:
        title: how the fact is named in threat models.
        message: the kind of message that carries it, if one does; the answer of an attack that knows the fact counts as a
            leak through that kind of message.
        per_row: whether all that it holds has one row for each row of the batch.
    """

    title: ClassVar[str] = ""
    message: ClassVar[Kind | None] = None
    per_row: ClassVar[bool] = False

    def rows(self, index: Tensor) -> Self:
        """The fact about these rows of the batch alone. index: (m,) places. A fact that is not about rows stays whole."""
        return type(self)(**{name: _rows(value, index) for name, value in vars(self).items()}) if self.per_row else self


class Network:
    """What a fact holds that is copied with its networks."""


def _rows(value: Any, index: Tensor) -> Any:
    """These rows of a tensor, an `Encoded`, or of each one in a mapping."""
    if isinstance(value, Mapping):
        return {key: _rows(part, index) for key, part in value.items()}
    return value[index] if isinstance(value, Tensor) else value.rows(index)


def copied(value: Any) -> Any:
    """Tensors cloned, and those in mappings, lists and data classes; networks deeply; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, Network):
        return copy.deepcopy(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: copied(getattr(value, part.name)) for part in fields(value)})
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([copied(part) for part in value])
    return value


@dataclass(frozen=True)
class Schema:
    """What participants of federated training know of their columns, because they all have the same ones.

    binary: the columns that hold only 0 and 1, by number. intercept: whether column 0 is a column of ones. one_hot: first
    column and size of each categorical column; every row has exactly one 1 among these.
    """

    binary: tuple[int, ...]
    intercept: bool = False
    one_hot: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Rules:
    """What every participant of federated training has agreed to.

    parties: participants. rate: of a local step. reduction: of a batch's gradients, sum or mean. batches: local steps a
    round, one a batch. batch_size: rows of one such batch. schema: of their columns. whole: whether every
    coordinate of an update is sent, or None if it is not known.
    """

    parties: Count
    rate: Positive
    reduction: Literal["sum", "mean"]
    batches: Count
    batch_size: Count
    schema: Schema
    whole: bool | None = None


@dataclass(frozen=True)
class Embeddings(Fact):
    """Activations of a batch.

    Args:
        layers: each layer of the party's own network, the cut layer among them, layer -> (n, d).
        received: the embeddings that other parties sent to it, party -> layer -> (n, d).
    """

    title = "embeddings"
    per_row = True
    message = Kind.EMBEDDING

    layers: Layers
    received: Mapping[str, Layers] = field(default_factory=dict)


@dataclass(frozen=True)
class Gradients(Fact):
    """Gradients per example: the cut-layer gradient as the party received it, and those of the loss by the activations of
    each of its own layers that follow from it.

    Args:
        layers: layer -> (n, d).
    """

    title = "gradients"
    per_row = True
    message = Kind.GRADIENT

    layers: Layers


@dataclass(frozen=True)
class SummedGradients(Fact):
    """The gradient of the batch by the parameters of the party's own network, summed over rows by back-propagation.

    Args:
        parameters: parameter name -> tensor of its shape.
    """

    title = "summed gradients"
    message = Kind.GRADIENT

    parameters: Mapping[str, Tensor]


@dataclass(frozen=True)
class ClassShares(Fact):
    """The share of each of the K classes among the training rows.

    Args:
        shares: K numbers in [0, 1] that add up to 1.
    """

    title = "class shares"

    shares: tuple[float, ...]

    @property
    def positive(self) -> float:
        """The share of rows whose class is not 0."""
        return sum(self.shares[1:])


@dataclass(frozen=True)
class Known(Fact):
    """Rows whose label the attacker knows during the whole run. They are drawn once, from a generator of their own, and are
    never scored.

    Args:
        ids: (k,) row names, as in `View.ids`.
        labels: (k,) classes 0 .. K - 1.
    """

    title = "known labels"

    ids: Tensor
    labels: Tensor


@dataclass(frozen=True)
class KnownColumn(Fact):
    """Rows of which the attacker knows one column of another party during the whole run. They are drawn as those of `Known`
    are, and are never scored.

    Args:
        party: whose column.
        column: its name.
        ids: (k,) row names, as in `View.ids`.
        values: (k,) 0 .. count - 1, the category, or whether the number is above a cut.
        count: number of different values, 2 for a number.
    """

    title = "a column of known rows"

    party: str
    column: str
    ids: Tensor
    values: Tensor
    count: int


@dataclass(frozen=True)
class BatchHints(Fact):
    """Rows of the batch that are known to be positive, drawn afresh for each batch; they are not scored.

    Args:
        places: (k,) in the batch, counted from 0.
    """

    title = "known positives of each batch"

    places: Tensor


@dataclass(frozen=True)
class ClassHints(Fact):
    """One row of the batch for each class that is known to be of that class, drawn afresh; they are not scored.

    Args:
        places: (K,) in the batch, counted from 0, for class 0, 1, ...
    """

    title = "one known row of each class in each batch"

    places: Tensor


@dataclass(frozen=True)
class PartyFeatures(Fact):
    """The party's own columns of the batch.

    Args:
        numeric: (n, k) in [0, 1].
        categorical: (n, c) ids, counted from 0 per column.
    """

    title = "own columns"
    per_row = True

    numeric: Tensor
    categorical: Tensor


@dataclass(frozen=True)
class LocalModel(Fact):
    """The attacker's own network as it stands now, which it may ask about its own rows at any time.

    Args:
        embed: row names (m,) -> layer -> (m, d). Asking changes nothing.
    """

    title = "own network"
    message = Kind.EMBEDDING

    embed: Callable[[Tensor], Mapping[str, Tensor]]

    def named(self, ids_of: Callable[[Tensor], Tensor]) -> Self:
        """The same network for an attack, which knows rows by names. ids_of: names (m,) -> row ids (m,)."""
        embed = self.embed
        return type(self)(lambda names: embed(ids_of(names)))


@dataclass(frozen=True)
class Updates(Fact):
    """One round as a participant of federated training sees it.

    Args:
        rules: what all participants have agreed to.
        before: (d,) float64, the model before the round.
        sent: (d,) float64, the update that the participant sent itself.
        after: (d,) float64, the model that the server sent back, to which the mean of all updates was added.
        received: participant -> (d,), the updates of the others where they can be seen one by one; empty where only sums are
            seen.
    """

    title = "updates"
    message = Kind.UPDATE

    rules: Rules
    before: Tensor
    sent: Tensor
    after: Tensor
    received: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def others(self) -> Tensor:
        """(d,) the sum of all other participants' updates: k (after - before) - sent."""
        return self.rules.parties * (self.after - self.before) - self.sent


@dataclass(frozen=True)
class Predictions(Fact):
    """The model's logits of the batch, as the label party computes them.

    Args:
        logits: (n, 1) for two classes, (n, K) for K > 2.
    """

    title = "predictions"
    per_row = True
    message = Kind.PREDICTION

    logits: Tensor


@dataclass(frozen=True)
class Labels(Fact):
    """The classes of the batch, as the label party holds them.

    Args:
        classes: (n,) 0 .. K - 1.
    """

    title = "labels"
    per_row = True

    classes: Tensor


@dataclass(frozen=True)
class TopNetworks(Network):
    """Networks of the label party, frozen: (party -> layer -> (n, d), own columns) -> logits (n, outputs)."""

    forward: Any


@dataclass(frozen=True)
class LocalTop(Fact):
    """The label party's own networks as they were when they answered the batch: the top, and a bottom of its own columns
    where it has one.

    Args:
        networks: a frozen copy.
    """

    title = "own top"

    networks: TopNetworks

    def logits(self, embeddings: Mapping[str, Layers], columns: PartyFeatures) -> Tensor:
        """Logits as predictions have them, (n, 1) for two classes and (n, K) for more, differentiable in the embeddings.

        embeddings: party -> layer -> (n, d), all that each other party sends. columns: the label party's own columns of
        these rows; (n, 0) where it holds none.
        """
        logits: Tensor = self.networks.forward(embeddings, columns)
        return logits


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
