"""The embedding of the label party's own features, where a protocol has it send one as all other parties do."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY, Columns
from vflbench.defenses.base import Context
from vflbench.defenses.chain import Chain, Figures
from vflbench.messages.facts import Fact, OwnColumns, PeerModel, PeerModels, Queries
from vflbench.messages.message import Kind, Message
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import Bottom
from vflbench.protocols.parties import Lookup, Noise, context_of


class OwnEmbedding:
    """What the label party sends of its own features, after the defenses of embeddings.

    rows: looks its columns up. bottom: its network, which it trains by itself.
    """

    def __init__(self, rows: Lookup, bottom: Bottom, defense: Callable[[], Chain], noise: Noise):
        self.rows, self.bottom, self.noise = rows, bottom, noise
        self.defenses = {layer: defense() for layer in bottom.sends}

    def message(self, activations: Mapping[str, Tensor], ids: Tensor, epoch: int) -> Message:
        """To be addressed. activations: layer -> (n, d) of a training batch."""
        columns = self.rows(ids)
        return self._message(activations, self.defenses, context_of(ids, columns, epoch, self.noise.training))

    def _message(self, activations: Mapping[str, Tensor], defenses: Mapping[str, Chain], context: Context) -> Message:
        sent = {layer: chain.embedding(activations[layer].detach().float(), context) for layer, chain in defenses.items()}
        return Message.of(LABEL_PARTY, LABEL_PARTY, Kind.EMBEDDING, context.ids, sent)

    def answerer(self) -> Callable[[Tensor, Tensor, torch.Generator], dict[str, Tensor]]:
        """As `NonLabelParty.answerer`."""
        bottom, defenses = self.bottom.frozen(), copy.deepcopy(self.defenses)

        def answer(numeric: Tensor, categorical: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
            ids = -1 - torch.arange(len(numeric))  # of no row, so that no row's own noise is told
            context = Context(ids, OwnColumns(numeric, categorical), 0, rng)
            with torch.no_grad():
                activations = bottom(numeric, categorical)
            return dict(self._message(activations, copy.deepcopy(defenses), context).tensors)

        return answer

    def copies(self, columns: Columns, watch: frozenset[type[Fact]]) -> dict[type[Fact], Fact]:
        """Of its network and of what it would send, for other parties that may know them. columns: those that it takes."""
        facts: dict[type[Fact], Fact] = {}
        if PeerModels in watch:
            facts[PeerModels] = PeerModels(
                {LABEL_PARTY: PeerModel(self.bottom.frozen(), columns.numeric, columns.cardinalities)}
            )
        if Queries in watch:
            facts[Queries] = Queries({LABEL_PARTY: self.answerer()})
        return facts

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since the last call."""
        kind = str(Kind.EMBEDDING)
        return [Figures(LABEL_PARTY, layer, kind, defense.figures()) for layer, defense in self.defenses.items()]

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What its defenses claim of each layer that crosses. outputs: width of the linear part's."""
        bottom = self.bottom
        return {
            layer: defense.claims(bottom.cut_width if layer == bottom.cut else outputs)
            for layer, defense in self.defenses.items()
        }

    def state(self) -> dict[str, Any]:
        return {layer: defense.state() for layer, defense in self.defenses.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for layer, defense in self.defenses.items():
            defense.restore(state[layer])
