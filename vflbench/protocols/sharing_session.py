"""Parties that share embeddings, ready for rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.chain import Figures
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, OwnColumns, OwnModel, Predictions
from vflbench.messages.label_facts import Labels, OwnTop, TopNetworks
from vflbench.messages.message import Kind, Message
from vflbench.messages.peer_facts import Compression, NoiseMean, PeerArchitectures, PeerModels, Queries
from vflbench.messages.round import Facts, Round, Training
from vflbench.metrics.embedding_privacy import Sent
from vflbench.protocols.base import NOTHING, Seating
from vflbench.protocols.own_embedding import OwnEmbedding
from vflbench.protocols.sharing_party import SentTop, SharingParty, model_message
from vflbench.protocols.split_session import SplitSession, architecture_of, facts_of_label_party, in_place

_BY_THE_TOP = "the top, which every party gets, was trained on the label party's embeddings as they are, without noise"
_COPIED: frozenset[type[Fact]] = frozenset({PeerModels, PeerArchitectures, Queries, OwnTop})


class SharingSession(SplitSession):
    """One round: every party embeds and sends to all others; then each learns for itself, `local_steps` times."""

    parties: list[SharingParty]
    labels_shared = True

    def share(self, local_steps: int, seating: Seating, *, direct: bool) -> None:
        """Give each party a top, and the label party what it takes to send. direct: embeddings go from party to party."""
        self.local_steps, self._direct = local_steps, direct
        for party in self.parties:
            rng = seating.generators.on(torch.device(seating.device), f"model/{party.name}/top/training")
            party.place(self.label_party.top, rng)
        label_party, self.own = self.label_party, None
        if label_party.rows is not None and label_party.bottom is not None:
            self.own = OwnEmbedding(label_party.rows, label_party.bottom, seating.defense, label_party.noise)
        self._own_architecture = None if self.own is None else architecture_of(LABEL_PARTY, self.outputs, seating)
        self._order = [party.name for party in self.parties] + ([] if self.own is None else [LABEL_PARTY])

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        with self._autocast:
            sent = [party.embed(ids, epoch) for party in self.parties]
            arrived = [self.wire.send(message) for message in sent]
            model = model_message(self.label_party.top)
            for party in self.parties:
                party.take(self.wire.send(replace(model, receiver=party.name)))
            copies = self._copies(watch)  # before they learn from this batch
            response = self.label_party.respond(arrived, epoch)
            own = None if self.own is None else self.own.message(response.activations, ids, epoch)
            for party in self.parties:
                received = self._delivered(party.name, sent if self._direct else arrived, own)
                party.work(received, self._order, response.labels, self.local_steps)
            for _ in range(1, self.local_steps):
                self.label_party.respond(arrived, epoch)
        training = Training(response.loss, response.penalty, ids, response.labels, response.notes)
        if not watch:
            return Round(epoch, step, ids, training=training)
        facts: dict[str, Facts] = {
            party.name: {**self._known_to(party, ids), **copies[party.name]} for party in self.parties
        }
        of_label_party = facts_of_label_party(self.label_party, arrived, response)
        facts[LABEL_PARTY] = {**of_label_party, **copies[LABEL_PARTY]}
        wanted = {party: {kind: fact for kind, fact in known.items() if kind in watch} for party, known in facts.items()}
        return Round(epoch, step, ids, facts=wanted, training=training)

    def _delivered(self, receiver: str, messages: Sequence[Message], own: Message | None) -> dict[str, Message]:
        """Party -> its embedding as this one gets it: from that party itself, or passed on by the label party."""
        received = {}
        for message in messages:
            if message.sender != receiver:
                sender = message.sender if self._direct else LABEL_PARTY
                received[message.sender] = self.wire.send(replace(message, sender=sender, receiver=receiver))
        if own is not None:
            received[LABEL_PARTY] = self.wire.send(replace(own, receiver=receiver))
        return received

    def _known_to(self, party: SharingParty, ids: Tensor) -> dict[type[Fact], Fact]:
        """What a party that is not the label party has of the round."""
        columns, encoded = party.rows(ids), {sender: message.encoded for sender, message in party.received.items()}
        means = {
            sender: {layer: e.values - e.corrected for layer, e in layers.items() if e.is_biased}
            for sender, layers in encoded.items()
        }
        received = {sender: dict(message.tensors) for sender, message in party.received.items()}
        logits = torch.empty(0, self.outputs) if party.logits is None else party.logits
        return {
            Embeddings: Embeddings(in_place(party.embedded, party.bottom.layers), received),
            Labels: Labels(self.label_party.labels(ids)),
            OwnColumns: OwnColumns(columns.numeric, columns.categorical),
            OwnModel: OwnModel(party.own_layers),
            Compression: Compression(encoded),
            NoiseMean: NoiseMean(means),
            Predictions: Predictions(logits),
        }

    def _copies(self, watch: frozenset[type[Fact]]) -> dict[str, dict[type[Fact], Fact]]:
        """Party -> copies of networks that are known there."""
        known = {LABEL_PARTY: self._of_networks(watch)}
        own = {} if self.own is None else self.own.copies(self.columns[LABEL_PARTY], watch)
        if self._own_architecture is not None and PeerArchitectures in watch:
            own[PeerArchitectures] = PeerArchitectures({LABEL_PARTY: self._own_architecture})
        for party in self.parties:
            known[party.name] = {kind: _others(fact, own.get(kind), party.name) for kind, fact in known[LABEL_PARTY].items()}
            if OwnTop in watch:
                known[party.name][OwnTop] = OwnTop(TopNetworks(SentTop(party, self._order)))
        return known

    def facts(self, ids: Tensor, watch: frozenset[type[Fact]]) -> Mapping[str, Facts]:
        between, copies = super().facts(ids, watch - _COPIED), self._copies(watch)
        labels: dict[type[Fact], Fact] = {Labels: between[LABEL_PARTY][Labels]} if Labels in watch else {}
        return {name: {**between[name], **labels, **known} for name, known in copies.items()}

    def cut_layers(self) -> dict[str, tuple[str, ...]]:
        return {**super().cut_layers(), **({} if self.own is None else {LABEL_PARTY: self.own.bottom.sends})}

    def claims(self) -> dict[tuple[str, str], Sent]:
        own = {} if self.own is None else self.own.claims(self.outputs)
        return {**super().claims(), **{(LABEL_PARTY, layer): sent.refused(_BY_THE_TOP) for layer, sent in own.items()}}

    def figures(self) -> list[Figures]:
        """Without those of defenses of gradients, since none crosses."""
        of_embeddings = [*super().figures(), *([] if self.own is None else self.own.figures())]
        return [figures for figures in of_embeddings if figures.values and figures.message != str(Kind.GRADIENT)]

    def state(self) -> dict[str, Any]:
        return {**super().state(), **({} if self.own is None else {"own_embedding": self.own.state()})}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        if self.own is not None:
            self.own.restore(state["own_embedding"])


def _others(fact: Fact, own: Fact | None, name: str) -> Fact:
    """What the label party knows of all others, and what others know of it, without the party of that name."""
    if isinstance(fact, PeerModels):
        models = {**fact.models, **(own.models if isinstance(own, PeerModels) else {})}
        return PeerModels({other: model for other, model in models.items() if other != name})
    if isinstance(fact, Queries):
        answer = {**fact.answer, **(own.answer if isinstance(own, Queries) else {})}
        return Queries({other: asked for other, asked in answer.items() if other != name})
    if isinstance(fact, PeerArchitectures):
        peers = {**fact.peers, **(own.peers if isinstance(own, PeerArchitectures) else {})}
        return PeerArchitectures({other: peer for other, peer in peers.items() if other != name})
    return fact
