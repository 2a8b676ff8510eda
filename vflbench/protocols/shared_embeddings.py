"""Shared embeddings: each party gets the embeddings of all others and the top model, and computes its gradient at home."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.base import LabelDefense, NonLabelDefense, changes
from vflbench.defenses.chain import Figures
from vflbench.errors import UserError
from vflbench.messages.facts import (
    Compression,
    Embeddings,
    Fact,
    Facts,
    Labels,
    Layers,
    NoiseMean,
    OwnColumns,
    OwnModel,
    OwnTop,
    PeerArchitectures,
    PeerModels,
    Predictions,
    Queries,
    Round,
    TopNetworks,
    Training,
)
from vflbench.messages.message import Kind, Message
from vflbench.messages.threat import Seat
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import WIDE, TopModel, frozen_copy
from vflbench.options import Steps, options
from vflbench.protocols.base import NOTHING, Seating
from vflbench.protocols.own_embedding import OwnEmbedding
from vflbench.protocols.parties import NonLabelParty, classification_loss
from vflbench.protocols.split import SplitParties, SplitSession, architecture_of, facts_of_label_party, in_place


class SharingParty(NonLabelParty):
    """Owns features, holds the labels of the rows, and learns from a gradient that nobody sends.

    top: its copy of the server model, which each round brings up to date. Of the last batch, before the first local step:
    received, party -> what it sent; embedded, layer -> (n, d); logits, (n, outputs).
    """

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self.top: TopModel | None = None
        self.received: dict[str, Message] = {}
        self.embedded: dict[str, Tensor] = {}
        self.logits: Tensor | None = None

    def place(self, top: TopModel, rng: torch.Generator) -> None:
        """Give it a top of the form of the server's. rng: what a top of a user's own draws from, such as for dropout."""
        draws = getattr(top, "rng", None)
        self.top = copy.deepcopy(top, {} if draws is None else {id(draws): rng}).requires_grad_(False)

    def take(self, model: Message) -> None:
        """Bring its top up to date. model: one flat tensor for each parameter and buffer."""
        if self.top is None:
            raise RuntimeError(f"party {self.name} got a model before it has a top")
        kept = self.top.state_dict()
        self.top.load_state_dict({**kept, **{name: v.view_as(kept[name]) for name, v in model.tensors.items()}})

    def work(self, received: Mapping[str, Message], order: Sequence[str], y: Tensor, steps: int) -> None:
        """So many local steps on the batch that it embedded last.

            theta_m <- theta_m - step(d loss(top(h_1, .., h_m(theta_m), .., h_M), y) / d theta_m)

        The others' embeddings and the top stay as they were sent; its own is the present one, not compressed. received:
        party -> its message. order: of all parties, in which the top takes them. y: (n,) classes.
        """
        self.received = dict(received)
        self.embedded = {layer: h.detach().float() for layer, h in self.activations.items()}
        sent = {name: message.corrected for name, message in received.items()}
        for step in range(steps):
            if step:
                self._embed_again()
            own = {layer: self.activations[layer].detach().float().requires_grad_() for layer in self.bottom.sends}
            logits = self._logits([own if name == self.name else sent[name] for name in order])
            if step == 0:
                self.logits = logits.detach()
            found = torch.autograd.grad(classification_loss(logits, y), list(own.values()), allow_unused=True)
            gradients = {
                layer: torch.zeros_like(h) if g is None else g for (layer, h), g in zip(own.items(), found, strict=True)
            }
            self.learn(Message(self.name, self.name, Kind.GRADIENT, self._ids, gradients))

    @property
    def _ids(self) -> Tensor:
        if self._context is None:
            raise RuntimeError(f"party {self.name} works on a batch before it has embedded one")
        return self._context.ids

    def _embed_again(self) -> None:
        """The same rows in its network as it is now."""
        columns = self.rows(self._ids)
        self.activations = self.bottom(columns.numeric, columns.categorical)

    def _logits(self, inputs: Sequence[Layers]) -> Tensor:
        if self.top is None:
            raise RuntimeError(f"party {self.name} has no top")
        return logits_of(self.top, inputs)


class SentTop(nn.Module):
    """A party's own network and the top that it was sent, as they stand. order: of all parties, as the top takes them."""

    def __init__(self, party: SharingParty, order: Sequence[str]):
        super().__init__()
        if party.top is None:
            raise RuntimeError(f"party {party.name} has no top")
        self._name, self._order = party.name, tuple(order)
        self._bottom, self._top = party.bottom.frozen().eval(), frozen_copy(party.top, "the top").eval()

    def forward(self, embeddings: Mapping[str, Layers], columns: OwnColumns) -> Tensor:
        """(n, outputs) logits. embeddings: of each other party. columns: the party's own."""
        layers = self._bottom(columns.numeric, columns.categorical)
        own = {layer: layers[layer] for layer in self._bottom.sends}
        return logits_of(self._top, [own if name == self._name else embeddings[name] for name in self._order])


def logits_of(top: TopModel, inputs: Sequence[Layers]) -> Tensor:
    """(n, outputs) float32. inputs: what each party sends, layer -> (n, d), in the order in which the top takes them."""
    wide = [tensors[WIDE] for tensors in inputs if WIDE in tensors]
    deep = [next(h for layer, h in tensors.items() if layer != WIDE) for tensors in inputs]
    logits: Tensor = top(deep, wide)[1]
    return logits.float()


def model_message(top: TopModel) -> Message:
    """The server model as it stands, one flat tensor for each parameter and buffer, to be addressed."""
    tensors = {name: v.detach().clone().flatten() for name, v in top.state_dict().items() if isinstance(v, Tensor)}
    return Message(LABEL_PARTY, LABEL_PARTY, Kind.MODEL, torch.empty(0, dtype=torch.int64), tensors)


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


@options
class SharedEmbeddings(SplitParties):
    """Compressed VFL: embeddings go to all parties, and each computes its own gradient with the top model that it is sent.

        h_m = C(f_m(x_m)), sent to all others;  theta_0, the top model, sent to all parties
        Q times:  theta_m <- theta_m - step(d l(theta_0, h_1, .., f_m(x_m), .., h_M; y) / d theta_m)
                  theta_0 <- theta_0 - step(d l(theta_0, h_1, .., h_M; y) / d theta_0)

    Gradients never cross. Every party holds the labels of all rows, as the source assumes. So no label can leak, and
    defenses of labels, adversaries and attacks on labels do not apply.

    local_steps: Q, on the same batch. The others' embeddings and, at the parties, theta_0 stay as they were sent; a party's
    own embedding is its present one, not compressed. With Q = 1 and without compression each weight moves as in
    `protocol=split`. links: `server`, where the label party passes every embedding on, or `direct`, where parties send them
    to each other and the label party sends theta_0 alone. If the label party holds features, it sends their embedding as
    well, and trains their network together with its top. Its own copy of the top is never out of date.

    Source: Castiglia, Das, Wang and Patterson, "Compressed-VFL: Communication-efficient learning with vertically partitioned
    data", ICML 2022 (arXiv 2206.08330), Algorithm 1. The source passes all embeddings on to all parties; here none comes
    back to its sender. Top-k there keeps the coordinates of the largest gradients, here those of the largest values.
    """

    labels_shared = True
    party_type = SharingParty

    local_steps: Steps = 1
    links: Literal["server", "direct"] = "server"

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        offered = super().offers(Seat.LABEL)  # every party has what the label party has
        return {Seat.LABEL: offered, Seat.NON_LABEL: offered | {OwnModel}}.get(seat, frozenset())

    def start(self, seating: Seating) -> SharingSession:
        for name in seating.defense().at(LabelDefense):
            problem = "it protects labels and gradients; here every party holds the labels, and no gradient is sent"
            raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        for name, defense in seating.defense().at(NonLabelDefense).items():
            if changes(defense, NonLabelDefense.learns) or changes(defense, NonLabelDefense.arrange):
                problem = "it judges the gradients that a party gets, and here every party computes its own"
                raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        for name in seating.adversaries:
            problem = (
                "it cheats in split learning; in shared_embeddings no gradient is sent, and every party holds the labels"
            )
            raise UserError(problem, key="adversary", value=name)
        session = super().start(seating)
        if not isinstance(session, SharingSession):
            raise TypeError(f"a session of shared embeddings, not {type(session).__name__}")
        session.share(self.local_steps, seating, direct=self.links == "direct")
        return session

    def session(self, *parts: Any) -> SplitSession:
        return SharingSession(*parts)
