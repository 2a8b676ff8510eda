"""Parties whose attacks are asked at desks of their own: what each desk and the auditor has is what its process would have."""

from collections.abc import Mapping
from typing import Any

import torch

from vflbench.attacks.base import Attack
from vflbench.generators import Generators
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.protocols.split import Split, SplitSession
from vflbench.protocols.split_facts import facts_of_non_label_party
from vflbench.run.party_desk import PartyDesk

_PLAIN = (type(None), bool, int, float, str)


def copied(value: Any) -> Any:
    """As a message between processes: only plain values, and tensors in memory of their own."""
    if type(value) is torch.Tensor:
        assert value.device.type == "cpu" and not value.requires_grad
        return value.clone()
    if isinstance(value, Mapping):
        assert all(type(name) is str for name in value)
        return {name: copied(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [copied(part) for part in value]
    assert type(value) in _PLAIN, value
    return value


class Facts:
    """The facts of one party, as its process has them."""

    def __init__(self, session: SplitSession, name: str):
        self._session, self._party = session, next(party for party in session.parties if party.name == name)
        self.ids, self.gradient = None, None

    def facts_of_round(self, kinds):
        columns = self._session._own_columns(self._party, self.ids)
        known = facts_of_non_label_party(self._party, self.gradient, columns)
        return {kind: fact for kind, fact in known.items() if kind in kinds}

    def facts_between(self, ids, kinds):
        facts = self._session._facts_here(ids, kinds)[self._party.name]
        return {kind: fact for kind, fact in facts.items() if kind in kinds}


class ApartSession(SplitSession):
    """Facts of the parties that live apart stay at their desks, but for what crosses. calls: party -> requests, replies."""

    def live_apart(self, protocol: "Apart", generators: Generators) -> None:
        self.facts_of, self.at, self.calls = {}, {}, {}
        for party in self.parties:
            if protocol.parties is None or party.name in protocol.parties:
                self.facts_of[party.name] = facts = Facts(self, party.name)
                cheats = party.adversary is not None
                self.at[party.name] = PartyDesk(
                    party.name, protocol.attacks, Generators(generators.seed), facts, cheats=cheats
                )
                self.calls[party.name] = []

    def desks(self):
        def call(party, method, content):
            assert method == "ask"
            request = copied(content)
            reply = copied(self.at[party].handle(request))
            self.calls[party].append((request, reply))
            return self.meddle(party, reply)

        return {party: (lambda *said, party=party: call(party, *said)) for party in self.at}

    def meddle(self, party, reply):
        return reply

    def round(self, ids, *, epoch=0, step=0, watch=frozenset()):
        round_ = super().round(ids, epoch=epoch, step=step, watch=watch)
        for name, own in self.facts_of.items():
            facts = dict(round_.facts.get(name, {}))
            own.ids, own.gradient = ids, self.last[name]
            cut = {layer: h for layer, h in self.cut_layers().items() if layer == name}[name]
            crossed = {
                kind: kind({layer: fact.layers[layer] for layer in cut if layer in fact.layers})
                for kind, fact in facts.items()
                if kind in (Embeddings, Gradients)
            }
            if name in round_.facts:
                round_.facts[name] = crossed
        return round_

    def _facts_here(self, ids, watch):
        return super().facts(ids, watch)

    def facts(self, ids, watch):
        return {party: facts for party, facts in super().facts(ids, watch).items() if party not in self.at}

    def state(self):
        return {**super().state(), "desks": {party: desk.state() for party, desk in self.at.items()}}

    def restore(self, state):
        super().restore(state)
        for party, desk in self.at.items():
            desk.restore(state["desks"][party])


class Apart(Split):
    """Split learning with the attacks of these parties, or of all, at desks of their own."""

    made = ApartSession

    def __init__(self, attacks: Mapping[str, Attack], parties=None):
        self.attacks, self.parties = attacks, parties

    def session(self, parties, label_party, outputs, seating, autocast):
        made = self.made(parties, label_party, outputs, seating, autocast)
        made.live_apart(self, seating.generators)
        made.last = {party.name: None for party in parties}
        for party in parties:
            self._note(party, made.last)
        self.started = made
        return made

    def _note(self, party, last):
        learn, embed = party.learn, party.embed

        def noting(gradient):
            last[party.name] = gradient
            return learn(gradient)

        def begun(*args, **options):
            last[party.name] = None
            return embed(*args, **options)

        party.learn, party.embed = noting, begun
