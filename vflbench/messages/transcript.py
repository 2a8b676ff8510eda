"""What each party saw of one audited batch, and the View of it that an attack declared it may see."""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.messages.wire import Kind, Message


class Knowledge(StrEnum):
    """What an attack may declare it knows beside the row ids of the batch."""

    EMBEDDINGS = "embeddings"
    """Activations of every layer of its own network, the cut layer among them."""
    GRADIENTS = "gradients"
    """The cut-layer gradient it was sent, and what its own network makes of it layer by layer."""
    PRIOR = "prior"
    """The share of every class among the training rows."""
    HINTS = "hints"
    """Some rows of the batch whose class is known, positives or one of each class, as the attack asks; chosen by the run."""
    FEATURES = "features"
    """Its own columns of the batch, encoded as its network gets them; of a participant, its own rows."""
    UPDATES = "updates"
    """The rules of federated training, the model before the round, the update it sent, and the model that came back."""
    PEER_MODEL = "peer models"
    """Every other party's bottom model, as it was when it made the embeddings of the batch."""
    QUERIES = "queries"
    """What every other party would send of any features: its model and its defense, to be asked and not looked into."""
    AUXILIARY = "auxiliary rows"
    """Every other party's columns of rows that are not trained on; the run takes them from the test rows."""
    COMPRESSION = "compression"
    """By what rule the embeddings that it was sent were compressed; not what noise was added."""
    NOISE_MEAN = "noise mean"
    """The mean of the noise that the embeddings that it was sent still have."""


class Seat(StrEnum):
    """The party whose view an attack has."""

    NON_LABEL = "non-label party"
    LABEL = "label party"
    PARTICIPANT = "participant"


class UndeclaredKnowledgeError(UserError):
    """An attack read what it did not declare."""


class OwnFeatures(NamedTuple):
    """A party's own columns of some rows: numeric (n, k) float in [0, 1], categorical (n, c) ids, from 0 in each column."""

    numeric: Tensor
    categorical: Tensor

    def rows(self, index: Tensor) -> "OwnFeatures":
        """Copies of these rows."""
        return OwnFeatures(self.numeric[index], self.categorical[index])


class PeerModel(NamedTuple):
    """Another party's bottom model, and the columns that it takes.

    network: (numeric (n, k), categorical (n, c)) -> layer -> (n, d), differentiable in the numeric columns; it also has
    `tables()` and `from_vectors(numeric, vectors)` for categorical ones, as in `vflbench.models.base.Bottom`.
    numeric: names of the numeric columns. cardinalities: of the categorical ones.
    """

    network: Callable[[Tensor, Tensor], Mapping[str, Tensor]]
    numeric: tuple[str, ...]
    cardinalities: tuple[int, ...]


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


class Updates(NamedTuple):
    """One round as a participant sees it. before, own, after: (d,) float64, the model, the update it sent itself, and the
    model with the mean of all updates added, which the server sent back.
    """

    rules: Rules
    before: Tensor
    own: Tensor
    after: Tensor

    @property
    def others(self) -> Tensor:
        """(d,) the sum of all other participants' updates: k (after - before) - own."""
        return self.rules.parties * (self.after - self.before) - self.own


@dataclass(frozen=True)
class View:
    """One party's view of one batch, restricted to `knows`; what was not declared can't be read.

    party: whose view. epoch, step: when. ids: (n,) row ids, the same in every epoch; they tell nothing of a row's place in
    the file. rng: the attack's own generator, on the device of the values. Tensors are copies, and the attack's to change.
    visible: False for a layer of the label party, which no attacker sees; such views serve the cost-of-privacy figures.
    """

    party: str
    epoch: int
    step: int
    ids: Tensor
    knows: frozenset[Knowledge]
    visible: bool
    rng: torch.Generator
    _values: Mapping[Kind, Mapping[str, Tensor]]
    _class_ratios: tuple[float, ...] | None
    _hints: Tensor | None
    _class_hints: Tensor | None = None
    _features: OwnFeatures | None = None
    _updates: Updates | None = None
    _of_peers: Mapping[Knowledge, Mapping[str, Any]] = field(default_factory=dict)
    _encoded: Mapping[str, Encoded] = field(default_factory=dict)

    @property
    def embeddings(self) -> Mapping[str, Tensor]:
        """Layer -> activations (n, d)."""
        self._require(Knowledge.EMBEDDINGS)
        return self._values[Kind.EMBEDDING]

    @property
    def gradients(self) -> Mapping[str, Tensor]:
        """Layer -> gradient of the loss by that layer's activations, (n, d)."""
        self._require(Knowledge.GRADIENTS)
        return self._values[Kind.GRADIENT]

    def layers(self, kind: Kind) -> Mapping[str, Tensor]:
        """The embeddings or the gradients."""
        return self.embeddings if kind is Kind.EMBEDDING else self.gradients

    @property
    def prior(self) -> float:
        """The share of training rows whose class is not 0."""
        return sum(self.class_ratios[1:])

    @property
    def class_ratios(self) -> tuple[float, ...]:
        """The share of each of the K classes among the training rows."""
        self._require(Knowledge.PRIOR)
        return self._class_ratios

    @property
    def hints(self) -> Tensor:
        """(k,) places in the batch of rows that are known to be positive; they are not scored."""
        self._require(Knowledge.HINTS)
        return self._hints

    @property
    def class_hints(self) -> Tensor:
        """(K,) the place in the batch of one row that is known to be of class 0, of class 1, ...; they are not scored."""
        self._require(Knowledge.HINTS)
        return self._class_hints

    @property
    def features(self) -> OwnFeatures:
        """The party's own columns of the batch."""
        self._require(Knowledge.FEATURES)
        return self._features

    @property
    def updates(self) -> Updates:
        """The round as this participant saw it."""
        self._require(Knowledge.UPDATES)
        return self._updates

    @property
    def peer_models(self) -> Mapping[str, PeerModel]:
        """Party -> its model when it made these embeddings; a copy."""
        return self._about_peers(Knowledge.PEER_MODEL)

    @property
    def queries(self) -> Mapping[str, Callable[[Tensor, Tensor, torch.Generator], Mapping[str, Tensor]]]:
        """Party -> (numeric (n, k), categorical (n, c), generator of its noise) -> layer -> (n, d) that it would send."""
        return self._about_peers(Knowledge.QUERIES)

    @property
    def auxiliary(self) -> Mapping[str, OwnFeatures]:
        """Party -> its columns of rows that are not trained on, the same rows for every party."""
        return self._about_peers(Knowledge.AUXILIARY)

    def _about_peers(self, knowledge: Knowledge) -> Mapping[str, Any]:
        self._require(knowledge)
        return self._of_peers.get(knowledge, {})

    @property
    def compression(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """Layer -> what other embeddings (m, d) of it would become by the rule that these were compressed by, without noise.

        Layers that cross uncompressed are not there.
        """
        self._require(Knowledge.COMPRESSION)
        return {layer: encoded.compress for layer, encoded in self._encoded.items()}

    @property
    def noise_means(self) -> Mapping[str, Tensor]:
        """Layer -> (n, d), the mean of the noise that `embeddings` have: subtracted, it leaves what the network got.

        Layers without such noise are not there.
        """
        self._require(Knowledge.NOISE_MEAN)
        return {layer: e.values - e.corrected for layer, e in self._encoded.items() if e.is_biased}

    def holding(self, knows: frozenset[Knowledge], gradients: Mapping[str, Tensor]) -> Self:
        """The same rows with other gradients, which an attack has made of what it saw, for another one to look at."""
        for knowledge in knows:
            self._require(knowledge)
        return replace(self, knows=knows, _values={Kind.GRADIENT: gradients})

    def _require(self, knowledge: Knowledge) -> None:
        if knowledge not in self.knows:
            declared = ", ".join(sorted(self.knows)) or "nothing"
            raise UndeclaredKnowledgeError(f"the attack reads the {knowledge} but declares that it knows {declared}")


_KNOWLEDGE_OF = {Kind.EMBEDDING: Knowledge.EMBEDDINGS, Kind.GRADIENT: Knowledge.GRADIENTS}


class Transcript:
    """One batch as it was seen.

    Values are kept per (party that saw them, kind) under the layer's name, prefixed by its owner where that is another
    party: the label party sees `a.f5`, party a sees `f5`. class_ratios: the share of each class among the training rows.
    For attacks that know some rows, hints: (k,) places of rows whose label is positive; class_hints: (K,) the place of one
    row of each class, or empty. features: what each party holds of these rows, for attacks that look at it. wanted: what
    the attacks declare they know; what costs something to tell is told only if it is among that.
    """

    def __init__(
        self,
        ids: Tensor,
        epoch: int,
        step: int,
        class_ratios: Sequence[float],
        hints: Tensor | None = None,
        class_hints: Tensor | None = None,
        features: Mapping[str, OwnFeatures] | None = None,
        wanted: frozenset[Knowledge] = frozenset(),
    ):
        self.wanted = wanted
        self._of_peers: dict[Knowledge, dict[str, Any]] = defaultdict(dict)
        self.ids, self.epoch, self.step, self.class_ratios = ids, epoch, step, tuple(class_ratios)
        self.hints = torch.empty(0, dtype=torch.int64) if hints is None else hints
        self.class_hints = torch.empty(0, dtype=torch.int64) if class_hints is None else class_hints
        self._features = features or {}
        self._seen: dict[tuple[str, Kind], dict[str, Tensor]] = defaultdict(dict)
        self._updates: dict[str, Updates] = {}
        self._encoded: dict[str, dict[str, Encoded]] = defaultdict(dict)

    def received(self, message: Message) -> None:
        """A message reached its receiver: an embedding or an update is about the sender's layers, else about its own."""
        owner = message.sender if message.kind in (Kind.EMBEDDING, Kind.UPDATE) else message.receiver
        for layer, values in message.tensors.items():
            name = layer if owner == message.receiver else f"{owner}.{layer}"
            self._seen[message.receiver, message.kind][name] = values
            if layer in message.encoded:
                self._encoded[message.receiver][name] = message.encoded[layer]

    def computed(self, party: str, kind: Kind, layers: Mapping[str, Tensor]) -> None:
        """What a party worked out by itself: activations of its layers, gradients inside its network."""
        for layer, values in layers.items():
            self._seen[party, kind].setdefault(layer, values.detach().float())

    def exchanged(self, party: str, updates: Updates) -> None:
        """What a participant knows of a round of federated training."""
        self._updates[party] = updates

    def held(self, party: str, features: OwnFeatures) -> None:
        """Rows of its own that a participant trained on."""
        self._features = {**self._features, party: features}

    def tell(self, party: str, knowledge: Knowledge, value: Any) -> None:
        """Something about a party that attackers elsewhere may declare they know."""
        if knowledge in self.wanted:
            self._of_peers[knowledge][party] = value

    def view(
        self,
        party: str,
        knows: frozenset[Knowledge],
        rng: torch.Generator,
        *,
        visible: bool = True,
        hints: int = 0,
        rows: Tensor | None = None,
    ) -> View:
        """The party's view, holding what is declared in `knows`; with visible=False only the layers of its own network.

        hints: how many of the known positives. rows: places of the rows it is about, without hints; all if left out.
        """
        values = {}
        for kind, knowledge in _KNOWLEDGE_OF.items():
            if knowledge in knows:
                seen = self._seen[party, kind]
                names = [name for name in sorted(seen, key=_layer_order) if visible or "." not in name]
                values[kind] = {name: seen[name].clone() if rows is None else seen[name][rows] for name in names}
        told = Knowledge.HINTS in knows and rows is None
        features = self._features.get(party) if Knowledge.FEATURES in knows else None
        encoded = self._encoded[party] if visible and knows & {Knowledge.COMPRESSION, Knowledge.NOISE_MEAN} else {}
        return View(
            party=party,
            epoch=self.epoch,
            step=self.step,
            ids=self.ids.clone() if rows is None else self.ids[rows],
            knows=knows,
            visible=visible,
            rng=rng,
            _values=values,
            _class_ratios=self.class_ratios if Knowledge.PRIOR in knows else None,
            _hints=self.hints[:hints].clone() if told else None,
            _class_hints=self.class_hints.clone() if told else None,
            _features=None if features is None else _some(features, rows),
            _updates=self._updates.get(party) if Knowledge.UPDATES in knows else None,
            _of_peers={known: copy.deepcopy(about) for known, about in self._of_peers.items() if known in knows},
            _encoded={layer: e if rows is None else e.rows(rows) for layer, e in encoded.items()},
        )

    def layers(self, party: str, kind: Kind | None) -> tuple[str, ...]:
        """The layers of which the party saw that kind of values; `features` for what is about no message."""
        return ("features",) if kind is None else tuple(sorted(self._seen[party, kind], key=_layer_order))


def _some(features: OwnFeatures, rows: Tensor | None) -> OwnFeatures:
    """Copies of these rows, or of all."""
    everyone = torch.arange(len(features.numeric), device=features.numeric.device)
    return features.rows(everyone if rows is None else rows)


def _layer_order(name: str) -> tuple[str, int, str]:
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :]
    return letters, int(digits or 0), name
