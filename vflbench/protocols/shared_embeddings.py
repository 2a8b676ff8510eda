"""Shared embeddings: each party gets the embeddings of all others and the top model, and computes its gradient at home."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.base import LabelDefense, NonLabelDefense, changes
from vflbench.defenses.chain import Figures
from vflbench.errors import UserError
from vflbench.messages.facts import (
    Embeddings,
    Fact,
    Labels,
    Layers,
    LocalModel,
    LocalTop,
    PartyFeatures,
    PeerArchitectures,
    PeerModels,
    Predictions,
    Queries,
    TopNetworks,
)
from vflbench.messages.threat import Facts, Role, Round, Training
from vflbench.messages.wire import Kind, Message
from vflbench.metrics.privacy import Sent
from vflbench.models.base import TopModel, frozen_copy
from vflbench.options import Steps, options
from vflbench.protocols.base import NOTHING
from vflbench.protocols.parties import NonLabelParty, ProtocolSetup, Sender, classification_loss, context_of, deep_and_wide
from vflbench.protocols.split import (
    SplitParties,
    SplitSession,
    compressed,
    facts_of_label_party,
    features_of,
    in_place,
    only,
)


class SharingParty(NonLabelParty):
    """Owns features, holds the labels of the rows, and learns from a gradient that nobody sends.

    top: its copy of the server model, which each round brings up to date. Of the last batch, before the first local step:
    received, party -> what it sent; embedded, layer -> (n, d); logits, (n, outputs).
    """

    top: TopModel
    received: Mapping[str, Message]
    embedded: Mapping[str, Tensor]
    logits: Tensor

    def place(self, top: TopModel, rng: torch.Generator) -> None:
        """Give it a top of the form of the server's. rng: what a top of a user's own draws from, such as for dropout."""
        draws = getattr(top, "rng", None)
        self.top = copy.deepcopy(top, {} if draws is None else {id(draws): rng}).requires_grad_(False)

    def take(self, model: Message) -> None:
        """Bring its top up to date. model: one flat tensor for each parameter and buffer."""
        kept = self.top.state_dict()
        self.top.load_state_dict({**kept, **{name: v.view_as(kept[name]) for name, v in model.tensors.items()}})

    def work(self, received: Mapping[str, Message], order: Sequence[str], y: Tensor, steps: int) -> None:
        """So many local steps on the batch that it embedded last.

            theta_m <- theta_m - step(d loss(top(h_1, .., h_m(theta_m), .., h_M), y) / d theta_m)

        The others' embeddings and the top stay as they were sent; its own is the present one, not compressed. received:
        party -> its message. order: of all parties, in which the top takes them. y: (n,) classes.
        """
        ids, self.received = self._context.ids, received
        self.embedded = {layer: h.detach().float() for layer, h in self.activations.items()}
        sent = {name: message.corrected for name, message in received.items()}
        for step in range(steps):
            if step:  # the same rows in its network as it is now
                columns = self.rows(ids)
                self.activations = self.bottom(columns.numeric, columns.categorical)
            local = {layer: self.activations[layer].detach().float().requires_grad_() for layer in self.bottom.sends}
            logits = logits_of(self.top, [local if name == self.name else sent[name] for name in order])
            if step == 0:
                self.logits = logits.detach()
            loss = classification_loss(logits, y)
            gradients = torch.autograd.grad(loss, list(local.values()), allow_unused=True, materialize_grads=True)
            self.learn(Message(self.name, self.name, Kind.GRADIENT, ids, dict(zip(local, gradients, strict=True))))


class SentTop(nn.Module):
    """A party's own network and the top that it was sent, as they stand. order: of all parties, as the top takes them."""

    def __init__(self, party: SharingParty, order: Sequence[str]):
        super().__init__()
        self._name, self._order = party.name, tuple(order)
        self._bottom, self._top = party.bottom.frozen().eval(), frozen_copy(party.top, "the top").eval()

    def forward(self, embeddings: Mapping[str, Layers], columns: PartyFeatures) -> Tensor:
        """(n, outputs) logits. embeddings: of each other party. columns: the party's own."""
        layers = self._bottom(columns.numeric, columns.categorical)
        local = {layer: layers[layer] for layer in self._bottom.sends}
        return logits_of(self._top, [local if name == self._name else embeddings[name] for name in self._order])


def logits_of(top: TopModel, inputs: Sequence[Layers]) -> Tensor:
    """(n, outputs) float32. inputs: what each party sends, layer -> (n, d), in the order in which the top takes them."""
    logits: Tensor = top(*deep_and_wide(inputs))[1]
    return logits.float()


_BY_THE_TOP = "the top, which every party gets, was trained on the label party's embeddings as they are, without noise"
_COPIED: frozenset[type[Fact]] = frozenset({PeerModels, PeerArchitectures, Queries, LocalTop})


class SharingSession(SplitSession):
    """One round: every party embeds and sends to all others; then each learns for itself, `local_steps` times."""

    parties: list[SharingParty]
    labels_shared = True

    def share(self, local_steps: int, setup: ProtocolSetup, *, direct: bool) -> None:
        """Give each party a top, and the label party what it takes to send. direct: embeddings go from party to party."""
        self.local_steps, self._direct = local_steps, direct
        for party in self.parties:
            rng = setup.generators.on(torch.device(setup.device), f"model/{party.name}/top/training")
            party.place(self.label_party.top, rng)
        label_party, self._label_senders = self.label_party, list[Sender]()
        if label_party.rows is not None and label_party.bottom is not None:
            sender = Sender(LABEL_PARTY, label_party.rows, label_party.bottom, setup)
            self._label_senders.append(sender)
            self._plans.append(LABEL_PARTY)
        self._order = [party.name for party in (*self.parties, *self._label_senders)]

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        with self._autocast:
            sent = [party.embed(ids, epoch) for party in self.parties]
            arrived = [self.wire.send(message) for message in sent]
            kept = self.label_party.top.state_dict().items()
            top = {name: v.detach().clone().flatten() for name, v in kept if isinstance(v, Tensor)}
            for party in self.parties:
                model = Message(LABEL_PARTY, party.name, Kind.MODEL, torch.empty(0, dtype=torch.int64), top)
                party.take(self.wire.send(model))
            copies = self._copies(watch)  # before they learn from this batch
            response = self.label_party.respond(arrived, epoch)
            relayed = [
                p.message(response.activations, context_of(ids, p.rows(ids), epoch, p.noise.training), ids)
                for p in self._label_senders
            ]
            for party in self.parties:
                received = self._delivered(party.name, sent if self._direct else arrived, relayed)
                party.work(received, self._order, response.labels, self.local_steps)
            for _ in range(1, self.local_steps):
                self.label_party.respond(arrived, epoch)
        training = Training(response.loss, response.penalty, ids, response.labels, response.notes, response.evidence)
        if not watch:
            return Round(epoch, step, ids, training=training)
        known = {party.name: self._known_to(party, ids) for party in self.parties}
        known[LABEL_PARTY] = facts_of_label_party(self.label_party, arrived, response)
        facts = {name: {**of_round, **copies[name]} for name, of_round in known.items()}
        return Round(epoch, step, ids, facts=only(watch, facts), training=training)

    def _delivered(self, receiver: str, messages: Sequence[Message], relayed: Sequence[Message]) -> dict[str, Message]:
        """Party -> its embedding as this one gets it: from that party itself, or passed on by the label party."""
        return {
            message.sender: self.wire.send(
                replace(message, sender=message.sender if self._direct else LABEL_PARTY, receiver=receiver)
            )
            for message in (*messages, *relayed)
            if message.sender != receiver
        }

    def _known_to(self, party: SharingParty, ids: Tensor) -> dict[type[Fact], Fact]:
        """What a party that is not the label party has of the round."""
        received = {sender: dict(message.tensors) for sender, message in party.received.items()}
        return {
            Embeddings: Embeddings(in_place(party.embedded, party.bottom.layers), received),
            Labels: Labels(self.label_party.labels(ids)),
            PartyFeatures: features_of(party, ids),
            LocalModel: LocalModel(party.activations_of),
            Predictions: Predictions(party.logits),
            **compressed(party.received),
        }

    def _copies(self, watch: frozenset[type[Fact]]) -> dict[str, dict[type[Fact], Fact]]:
        """Party -> copies of networks that are known there: those of all others, and the top."""
        copies = self._of_networks(watch, [*self._here, *self._label_senders])
        top = copies.pop(LocalTop, None)
        names = [party.name for party in self.parties] + [LABEL_PARTY]
        known = {name: {kind: _without(name, fact) for kind, fact in copies.items()} for name in names}
        if top is not None:
            tops: dict[str, Fact] = {p.name: LocalTop(TopNetworks(SentTop(p, self._order))) for p in self.parties}
            for name, fact in {**tops, LABEL_PARTY: top}.items():
                known[name][LocalTop] = fact
        return known

    def facts(self, ids: Tensor, watch: frozenset[type[Fact]]) -> Mapping[str, Facts]:
        between, copies = super().facts(ids, watch - _COPIED), self._copies(watch)
        labels: dict[type[Fact], Fact] = {Labels: between[LABEL_PARTY][Labels]} if Labels in watch else {}
        return {name: {**between[name], **labels, **known} for name, known in copies.items()}

    def cut_layers(self) -> dict[str, tuple[str, ...]]:
        return {**super().cut_layers(), **{sender.name: sender.bottom.sends for sender in self._label_senders}}

    def claims(self) -> dict[tuple[str, str], Sent]:
        claimed = [claim for sender in self._label_senders for claim in sender.claims(self.outputs).items()]
        return {**super().claims(), **{(LABEL_PARTY, layer): sent.refused(_BY_THE_TOP) for layer, sent in claimed}}

    def figures(self) -> list[Figures]:
        """Without those of defenses of gradients, since none crosses."""
        of_embeddings = [*super().figures(), *(figures for sender in self._label_senders for figures in sender.figures())]
        return [figures for figures in of_embeddings if figures.values and figures.message != str(Kind.GRADIENT)]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "own": [sender.state() for sender in self._label_senders]}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        for sender, kept in zip(self._label_senders, state["own"], strict=True):
            sender.restore(kept)


def _without(name: str, fact: Fact) -> Fact:
    """Of a fact about peers, what it says of all but the party of that name."""
    (peers,) = fields(fact)
    return replace(fact, **{peers.name: {peer: of for peer, of in getattr(fact, peers.name).items() if peer != name}})


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

    def offers(self, role: Role) -> frozenset[type[Fact]]:
        offered = super().offers(Role.LABEL)  # every party has what the label party has
        return {Role.LABEL: offered, Role.NON_LABEL: offered | {LocalModel}}.get(role, frozenset())

    def start(self, setup: ProtocolSetup) -> SharingSession:
        for name in setup.defense().at(LabelDefense):
            problem = "it protects labels and gradients; here every party holds the labels, and no gradient is sent"
            raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        for name, defense in setup.defense().at(NonLabelDefense).items():
            if changes(defense, NonLabelDefense.learns) or changes(defense, NonLabelDefense.arrange):
                problem = "it judges the gradients that a party gets, and here every party computes its own"
                raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        for name in setup.adversaries:
            problem = "it cheats in split learning; here no gradient is sent, and every party holds the labels"
            raise UserError(problem, key="adversary", value=name)
        session: SharingSession = super().start(setup)
        session.share(self.local_steps, setup, direct=self.links == "direct")
        return session

    def session(self, *parts: Any) -> SplitSession:
        return SharingSession(*parts)
