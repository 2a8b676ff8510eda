"""Facts about what a party itself holds, sends and receives. A new kind is a new class, and code that supplies it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from torch import Tensor

from vflbench.messages.fact import Fact, Layers, Network
from vflbench.messages.message import Kind
from vflbench.options import Count, Positive


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
