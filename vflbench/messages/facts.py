"""Facts: what a party holds, sends, receives and knows of others; and a round, as the facts that came of it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from vflbench.messages.codec import Encoded
from vflbench.messages.message import Kind
from vflbench.options import Count, Positive

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
    round, one a batch. batch_size: rows of one such batch. schema: of their columns, or None if it is not known. whole:
    whether every coordinate of an update is sent, or None if it is not known.
    """

    parties: Count
    rate: Positive
    reduction: Literal["sum", "mean"]
    batches: Count
    batch_size: Count
    schema: Schema | None = None
    whole: bool | None = None


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
        return type(self)(
            rows_of(self.layers, index), {party: rows_of(sent, index) for party, sent in self.received.items()}
        )


@dataclass(frozen=True)
class Gradients(Fact):
    """Gradients per example: the cut-layer gradient as the party received it, and those of the loss by the activations of
    each of its own layers that follow from it. layers: layer -> (n, d).
    """

    title = "gradients"
    message = Kind.GRADIENT

    layers: Layers

    def rows(self, index: Tensor) -> Self:
        return type(self)(rows_of(self.layers, index))


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
class KnownColumn(Fact):
    """Rows of which the attacker knows one column of another party during the whole run. They are drawn as those of `Known`
    are, and are never scored. party, column: whose, and its name. ids: (k,) row names. values: (k,) 0 .. count - 1, the
    category, or whether the number is above a cut.
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


@dataclass(frozen=True)
class Updates(Fact):
    """One round as a participant of federated training sees it.

    before, sent, after: (d,) float64, the model before the round, the update that the participant sent itself, and the model
    that the server sent back, to which the mean of all updates was added. received: participant -> (d,), the updates of the
    others where they can be seen one by one; empty where only sums are seen.
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
    """The model's logits of the batch, as the label party computes them: (n, 1) for two classes, (n, K) for K > 2."""

    title = "predictions"
    message = Kind.PREDICTION

    logits: Tensor

    def rows(self, index: Tensor) -> Self:
        return type(self)(self.logits[index])


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
    """Every other party's bottom model as it was when it computed the embeddings of the batch. models: party -> copy."""

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
    """The architecture of every other party's bottom model, without weights. peers: party -> `Architecture`."""

    title = "peer architectures"

    peers: Mapping[str, Architecture]


Answerer = Callable[["Tensor", "Tensor", "torch.Generator"], Mapping[str, "Tensor"]]
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
    """All parties' columns of rows that are not trained on, and their classes; the run takes them from the test rows.

    columns: party -> its columns, of the same rows for every party. labels: (m,) classes of these rows.
    """

    title = "auxiliary rows"

    columns: Mapping[str, OwnColumns]
    labels: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


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
        return type(self)({party: rows_of(means, index) for party, means in self.means.items()})


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
    def __call__(self, received: Layers) -> OwnColumns:
        """received: layer -> (n, d)."""
        z = torch.cat([received[layer].float() for layer in self.layers], dim=1)
        numeric, *logits = self.network(z / self.scale).split([self.numeric, *map(len, self.ids)], dim=1)
        found = [ids[scores.argmax(dim=1)] for ids, scores in zip(self.ids, logits, strict=True)]
        categorical = torch.stack(found, dim=1) if found else torch.empty(len(z), 0, device=z.device)
        return OwnColumns(torch.sigmoid(numeric), categorical.int())


@dataclass(frozen=True)
class OwnDecoder(Fact):
    """The decoders of a label party that hijacks, as they stood when it had answered the batch. of: party -> its decoder."""

    title = "the decoder of adversary=hijack"

    of: Mapping[str, PeerDecoder]


Facts = Mapping[type[Fact], Fact]


@dataclass(frozen=True)
class Training:
    """What the label side reports about the step itself; no attacker sees it.

    loss: mean classification loss of the batch. penalty: what defenses added to it. ids: (n,) all rows that were trained on.
    labels: (n,) the classes that were trained on. notes: lines for the log.
    """

    loss: float
    penalty: float
    ids: Tensor
    labels: Tensor
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrivateBatch:
    """The rows that an attack on a whole batch tries to rebuild: the truth that its answer is graded against.

    owner: names of the parties that own the rows. x: (m, d). y: (m,) in {-1, +1}. steps: (m,) the local step of each row.
    """

    owner: str
    x: Tensor
    y: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Round:
    """One round of training. It reads the same from memory and from disk.

    epoch, step: when. phase: `train`. ids: (n,) row ids that attackers know. facts: party -> kind of fact -> fact; empty
    where the round was not watched. training: of the step itself; None in a recording. private: only where a whole batch is
    to be rebuilt.
    """

    epoch: int
    step: int
    ids: Tensor
    phase: str = "train"
    facts: Mapping[str, Facts] = field(default_factory=dict)
    training: Training | None = None
    private: PrivateBatch | None = None

    def layers(self, party: str, kind: Kind | None) -> tuple[str, ...]:
        """The layers of a party for which it has values of that kind of message; `features` where no message is read."""
        if kind is None:
            return ("features",)
        facts = (fact for fact in self.facts.get(party, {}).values() if fact.message is kind)
        return next((tuple(fact.layers) for fact in facts if hasattr(fact, "layers")), ())
