"""Facts: what an attacker can know. Each kind of knowledge is a class; a new kind is a new class and whoever supplies it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from vflbench.messages.codec import Encoded
from vflbench.messages.message import Kind

Layers = Mapping[str, Tensor]
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
        return replace(self, **{part.name: _copied(getattr(self, part.name)) for part in fields(self)})

    def named(self, ids_of: Callable[[Tensor], Tensor]) -> Self:
        """The same fact for an attack, which knows rows by names. ids_of: names (m,) -> row ids (m,)."""
        return self


@dataclass(frozen=True)
class Embeddings(Fact):
    """Activations of a batch.

    layers: each layer of the party's own network, the cut layer among them, layer -> (n, d). received: the embeddings that
    other parties sent to it, party -> layer -> (n, d).
    """

    title = "embeddings"
    message = Kind.EMBEDDING

    layers: Layers
    received: Mapping[str, Layers] = field(default_factory=dict)

    def rows(self, index: Tensor) -> Self:
        return type(self)(_rows(self.layers, index), {party: _rows(sent, index) for party, sent in self.received.items()})


@dataclass(frozen=True)
class Gradients(Fact):
    """Gradients per example: the cut-layer gradient as the party received it, and those of the loss by the activations of
    each of its own layers that follow from it. layers: layer -> (n, d).
    """

    title = "gradients"
    message = Kind.GRADIENT

    layers: Layers

    def rows(self, index: Tensor) -> Self:
        return type(self)(_rows(self.layers, index))


@dataclass(frozen=True)
class SummedGradients(Fact):
    """The gradient of the batch by the parameters of the party's own network, summed over rows by back-propagation.

    parameters: parameter name -> tensor of its shape.
    """

    title = "summed gradients"
    message = Kind.GRADIENT

    parameters: Mapping[str, Tensor]


@dataclass(frozen=True)
class ClassShares(Fact):
    """The share of each of the K classes among the training rows. shares: K numbers that add up to 1."""

    title = "class shares"

    shares: tuple[float, ...]

    @property
    def positive(self) -> float:
        """The share of rows whose class is not 0."""
        return sum(self.shares[1:])


@dataclass(frozen=True)
class Known(Fact):
    """Rows whose label the attacker knows during the whole run. They are drawn once, from a generator of their own, and are
    never scored. ids: (k,) row names, as in `View.ids`. labels: (k,) classes.
    """

    title = "known labels"

    ids: Tensor
    labels: Tensor


@dataclass(frozen=True)
class BatchHints(Fact):
    """Rows of the batch that are known to be positive, drawn afresh for each batch; they are not scored.

    places: (k,) in the batch.
    """

    title = "known positives of each batch"

    places: Tensor


@dataclass(frozen=True)
class ClassHints(Fact):
    """One row of the batch for each class that is known to be of that class, drawn afresh; they are not scored.

    places: (K,) in the batch, for class 0, 1, ...
    """

    title = "one known row of each class in each batch"

    places: Tensor


@dataclass(frozen=True)
class OwnColumns(Fact):
    """The party's own columns of the batch: numeric (n, k) in [0, 1], categorical (n, c) ids, counted from 0 per column."""

    title = "own columns"

    numeric: Tensor
    categorical: Tensor

    def rows(self, index: Tensor) -> Self:
        return type(self)(self.numeric[index], self.categorical[index])


@dataclass(frozen=True)
class OwnModel(Fact):
    """The attacker's own network as it stands now, which it may ask about its own rows at any time.

    embed: row names (m,) -> layer -> (m, d). Asking changes nothing.
    """

    title = "own network"
    message = Kind.EMBEDDING

    embed: Callable[[Tensor], Mapping[str, Tensor]]

    def named(self, ids_of: Callable[[Tensor], Tensor]) -> Self:
        embed = self.embed
        return type(self)(lambda names: embed(ids_of(names)))


class PeerModel(NamedTuple):
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
    """Every other party's bottom model as it was when it computed the embeddings of the batch. models: party -> copy."""

    title = "peer models"

    models: Mapping[str, PeerModel]


Answerer = Callable[[Tensor, Tensor, torch.Generator], Mapping[str, Tensor]]
"""(numeric (n, k), categorical (n, c), generator of its noise) -> layer -> (n, d) that the party would send."""


@dataclass(frozen=True)
class Queries(Fact):
    """What every other party would send for any features: its model and its defense can be asked but not looked into.

    answer: party -> `Answerer`.
    """

    title = "queries to peers"

    answer: Mapping[str, Answerer]


@dataclass(frozen=True)
class Auxiliary(Fact):
    """Every other party's columns of rows that are not trained on; the run takes them from the test rows.

    columns: party -> its columns, of the same rows for every party.
    """

    title = "auxiliary rows"

    columns: Mapping[str, OwnColumns]


@dataclass(frozen=True)
class Compression(Fact):
    """The rule by which the received embeddings were compressed, without any noise that was added.

    encoded: party -> layer -> the encoded embedding. Layers that crossed uncompressed are not there.
    """

    title = "compression rule"

    encoded: Mapping[str, Mapping[str, Encoded]]

    def rules(self, party: str) -> dict[str, Callable[[Tensor], Tensor]]:
        """Layer -> function: what other embeddings (m, d) of that layer would become by the same rule."""
        return {layer: encoded.compress for layer, encoded in self.encoded.get(party, {}).items()}

    def rows(self, index: Tensor) -> Self:
        return type(self)({p: {layer: e.rows(index) for layer, e in sent.items()} for p, sent in self.encoded.items()})


@dataclass(frozen=True)
class NoiseMean(Fact):
    """The mean of the noise in the received embeddings. Subtracted from them, it leaves the receiver's network input.

    means: party -> layer -> (n, d). Layers without such noise are not there.
    """

    title = "mean of the noise"

    means: Mapping[str, Layers]

    def rows(self, index: Tensor) -> Self:
        return type(self)({party: _rows(means, index) for party, means in self.means.items()})


@dataclass(frozen=True)
class Rules:
    """What every participant of federated training has agreed to.

    parties: participants. rate: of a local step. reduction: of a batch's gradients, sum or mean. batches: local steps a
    round, one a batch. batch_size: rows of one such batch.
    """

    parties: int
    rate: float
    reduction: Literal["sum", "mean"]
    batches: int
    batch_size: int


@dataclass(frozen=True)
class Updates(Fact):
    """One round as a participant of federated training sees it.

    before, own, after: (d,) float64, the model before the round, the update that the participant sent itself, and the model
    that the server sent back, to which the mean of all updates was added.
    """

    title = "updates"
    message = Kind.UPDATE

    rules: Rules
    before: Tensor
    own: Tensor
    after: Tensor

    @property
    def others(self) -> Tensor:
        """(d,) the sum of all other participants' updates: k (after - before) - own."""
        return self.rules.parties * (self.after - self.before) - self.own


@dataclass(frozen=True)
class Predictions(Fact):
    """The model's logits of the batch, as the label party computes them: (n, 1) for two classes, (n, K) for K > 2."""

    title = "predictions"

    logits: Tensor

    def rows(self, index: Tensor) -> Self:
        return type(self)(self.logits[index])


def _rows(layers: Layers, index: Tensor) -> dict[str, Tensor]:
    return {layer: values[index] for layer, values in layers.items()}


def _copied(value: Any) -> Any:
    """Tensors cloned, mappings of them likewise; networks are copied deeply."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, Fact):
        return value.copy()
    return copy.deepcopy(value) if isinstance(value, PeerModel) else value
