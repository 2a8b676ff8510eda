"""What each party saw of one audited batch, and the View of it that an attack declared it may see."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.wire import Kind, Message


class Knowledge(StrEnum):
    """What an attack may declare it knows beside the row ids of the batch."""

    EMBEDDINGS = "embeddings"
    """Activations of every layer of its own network, the cut layer among them."""
    GRADIENTS = "gradients"
    """The cut-layer gradient it was sent, and what its own network makes of it layer by layer."""
    PRIOR = "prior"
    """The share of rows whose class is not 0, among the training rows."""
    HINTS = "hints"
    """Some rows of the batch that are known to be positive: as many as the attack says it needs, chosen by the run."""


class Seat(StrEnum):
    """The party whose view an attack has."""

    NON_LABEL = "non-label party"
    LABEL = "label party"


class UndeclaredKnowledgeError(UserError):
    """An attack read what it did not declare."""


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
    _prior: float | None
    _hints: Tensor | None

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

    @property
    def prior(self) -> float:
        self._require(Knowledge.PRIOR)
        return self._prior

    @property
    def hints(self) -> Tensor:
        """(k,) places in the batch of rows that are known to be positive; they are not scored."""
        self._require(Knowledge.HINTS)
        return self._hints

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
    party: the label party sees `a.f5`, party a sees `f5`. hints: (k,) places of rows whose label is positive, for attacks
    that know some.
    """

    def __init__(self, ids: Tensor, epoch: int, step: int, prior: float, hints: Tensor | None = None):
        self.ids, self.epoch, self.step, self.prior = ids, epoch, step, prior
        self.hints = torch.empty(0, dtype=torch.int64) if hints is None else hints
        self._seen: dict[tuple[str, Kind], dict[str, Tensor]] = defaultdict(dict)

    def received(self, message: Message) -> None:
        """A message reached its receiver: a gradient is about the receiver's layers, an embedding about the sender's."""
        owner = message.sender if message.kind is Kind.EMBEDDING else message.receiver
        for layer, values in message.tensors.items():
            name = layer if owner == message.receiver else f"{owner}.{layer}"
            self._seen[message.receiver, message.kind][name] = values

    def computed(self, party: str, kind: Kind, layers: Mapping[str, Tensor]) -> None:
        """What a party worked out by itself: activations of its layers, gradients inside its network."""
        for layer, values in layers.items():
            self._seen[party, kind].setdefault(layer, values.detach().float())

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
        ids = self.ids.clone() if rows is None else self.ids[rows]
        prior = self.prior if Knowledge.PRIOR in knows else None
        known = self.hints[:hints].clone() if Knowledge.HINTS in knows and rows is None else None
        return View(party, self.epoch, self.step, ids, knows, visible, rng, values, prior, known)

    def layers(self, party: str, kind: Kind) -> tuple[str, ...]:
        """The layers of which the party saw that kind of values."""
        return tuple(sorted(self._seen[party, kind], key=_layer_order))


def _layer_order(name: str) -> tuple[str, int, str]:
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :]
    return letters, int(digits or 0), name
