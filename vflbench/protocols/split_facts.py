"""What the parties of split learning can compute from a round."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vflbench.data.table import Columns
from vflbench.messages.fact import Fact, Layers
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, OwnModel, Predictions, SummedGradients
from vflbench.messages.label_facts import Labels, OwnTop, TopNetworks
from vflbench.messages.message import Message
from vflbench.messages.peer_facts import Compression, NoiseMean, PeerModel, PeerModels, Queries
from vflbench.models.base import frozen_copy
from vflbench.protocols.label_party import LabelParty, Response
from vflbench.protocols.non_label_party import NonLabelParty

Kinds = frozenset[type[Fact]]


def facts_of_non_label_party(party: NonLabelParty, gradient: Message | None, columns: OwnColumns) -> dict[type[Fact], Fact]:
    """Less if its gradient was withheld. columns: its own, of the batch."""
    received = {} if gradient is None else dict(gradient.tensors)
    layers = {**{layer: g.detach().float() for layer, g in party.layer_gradients.items()}, **received}
    order = party.bottom.layers
    parameters = {} if gradient is None else dict(party.bottom.named_parameters())  # else they keep an earlier round's
    summed = {name: p.grad.detach() for name, p in parameters.items() if p.grad is not None}
    return {
        Embeddings: Embeddings(in_place({layer: h.detach().float() for layer, h in party.activations.items()}, order)),
        Gradients: Gradients(in_place(layers, order)),
        SummedGradients: SummedGradients(summed),
        OwnColumns: columns,
        OwnModel: OwnModel(party.own_layers),
    }


def what_crossed(embedding: Message, gradient: Message | None) -> dict[type[Fact], Fact]:
    """What the label party knows of what a party that lives elsewhere has: what it sent, and what it was sent."""
    facts: dict[type[Fact], Fact] = {Embeddings: Embeddings(dict(embedding.tensors))}
    return facts | ({} if gradient is None else {Gradients: Gradients(dict(gradient.tensors))})


def facts_of_label_party(
    label_party: LabelParty, embeddings: Sequence[Message], response: Response
) -> dict[type[Fact], Fact]:
    own = in_place({layer: h.detach().float() for layer, h in response.activations.items()}, label_party.layers)
    encoded = {message.sender: message.encoded for message in embeddings}
    means = {
        party: {layer: e.values - e.corrected for layer, e in layers_of.items() if e.is_biased}
        for party, layers_of in encoded.items()
    }
    ids = embeddings[0].ids
    return {
        Embeddings: Embeddings(own, {message.sender: dict(message.tensors) for message in embeddings}),
        Compression: Compression(encoded),
        NoiseMean: NoiseMean(means),
        Predictions: Predictions(response.logits),
        Labels: Labels(label_party.labels(ids)),
        OwnColumns: columns_of_label_party(label_party, ids),
    }


def columns_of_label_party(label_party: LabelParty, ids: Tensor) -> OwnColumns:
    """Its own columns; none, (n, 0), where it holds no features."""
    if label_party.rows is None:
        none = torch.empty(len(ids), 0, device=ids.device)
        return OwnColumns(none, none.int())
    columns = label_party.rows(ids)
    return OwnColumns(columns.numeric, columns.categorical)


def networks(
    parties: Sequence[NonLabelParty], label_party: LabelParty, columns: Mapping[str, Columns], watch: Kinds
) -> dict[type[Fact], Fact]:
    """Copies of networks for the label party. Copying takes time, so it is done only if they are watched."""
    facts: dict[type[Fact], Fact] = {}
    if PeerModels in watch:
        facts[PeerModels] = PeerModels(
            {
                party.name: PeerModel(party.bottom.frozen(), columns[party.name].numeric, columns[party.name].cardinalities)
                for party in parties
            }
        )
    if Queries in watch:
        facts[Queries] = Queries({party.name: party.answerer() for party in parties})
    if OwnTop in watch:
        facts[OwnTop] = OwnTop(TopNetworks(FrozenTop(label_party, [party.name for party in parties])))
    return facts


class FrozenTop(nn.Module):
    """A label party's networks as they stand, which no later step changes, and what its defenses make of their logits.

    parties: in the order in which they send.
    """

    def __init__(self, label_party: LabelParty, parties: Sequence[str]):
        super().__init__()
        self._parties = tuple(parties)
        self._networks = frozen_copy(label_party.network, "the label party's networks").eval()
        self._defense = copy.deepcopy(label_party.defense)

    def forward(self, embeddings: Mapping[str, Layers], columns: OwnColumns) -> Tensor:
        logits: Tensor = self._networks([embeddings[party] for party in self._parties], columns)[1]
        return self._defense.prediction(logits)


def in_place(layers: Mapping[str, Tensor], order: Sequence[str]) -> dict[str, Tensor]:
    """The layers of a network in their order, and then what crosses beside them."""
    return {
        layer: layers[layer] for layer in (*order, *(other for other in layers if other not in order)) if layer in layers
    }
