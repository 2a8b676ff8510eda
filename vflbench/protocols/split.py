"""Split learning: embeddings up, gradients down."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflbench.data.aligned import AlignedRows
from vflbench.data.table import LABEL_PARTY, non_label_parties
from vflbench.defenses.chain import Figures
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, OwnModel, Predictions, SummedGradients
from vflbench.messages.message import Message
from vflbench.messages.peer_facts import Compression, NoiseMean, PeerModel, PeerModels, Queries
from vflbench.messages.round import Facts, Round, Training
from vflbench.messages.threat import Seat
from vflbench.messages.wire import Wire
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import Bottom
from vflbench.models.wrapped import as_bottom, as_top, drawing_from
from vflbench.options import options
from vflbench.protocols.adversary import by_party
from vflbench.protocols.base import NOTHING, Protocol, Seating, Session
from vflbench.protocols.label_party import LabelParty, Response
from vflbench.protocols.non_label_party import NonLabelParty
from vflbench.protocols.parties import Lookup, Noise


@options
class Split(Protocol):
    """Non-label parties hold bottom models, the label party the top: one batch a round, one message each way a party.

    Source: Vepakomma et al., "Split learning for health: Distributed deep learning without sharing raw patient data", 2018.
    """

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        offered: dict[Seat, set[type[Fact]]] = {
            Seat.NON_LABEL: {Embeddings, Gradients, SummedGradients, OwnColumns, OwnModel},
            Seat.LABEL: {Embeddings, PeerModels, Queries, Compression, NoiseMean, Predictions},
        }
        return frozenset(offered.get(seat, set()))

    def start(self, seating: Seating) -> "SplitSession":
        own_defense = seating.defense()
        outputs = own_defense.outputs(1 if seating.classes == 2 else seating.classes)
        names = non_label_parties(seating.columns)
        cheating = by_party(seating.adversaries, names)
        bottoms = {party: _bottom(party, outputs, seating) for party in seating.columns}
        parties = [
            self.party(
                party,
                partial(seating.rows.features, party),
                bottoms[party],
                seating.optimizer,
                seating.defense,
                _noise(party, seating),
                cheating.get(party),
            )
            for party in names
        ]
        order = [*names, *(party for party in bottoms if party not in names)]  # in which the top gets them
        widths = [bottoms[party].cut_width for party in order]
        rng = seating.generators[f"model/{LABEL_PARTY}/top"]
        with drawing_from(rng):
            module = seating.model.top_over(widths, outputs, rng)
            top = as_top(module, sum(widths), outputs, _training_rng(f"{LABEL_PARTY}/top", seating)).to(seating.device)
            entrance = own_defense.entrance([bottoms[party].cut_width for party in names], rng)
        own_rows: Lookup | None = partial(seating.rows.features, LABEL_PARTY) if LABEL_PARTY in bottoms else None
        label_party = LabelParty(
            seating.rows.labels,
            own_rows,
            top,
            bottoms.get(LABEL_PARTY),
            seating.optimizer,
            seating.defense,
            _noise(LABEL_PARTY, seating),
            own_defense,
            None if entrance is None else entrance.to(seating.device),
        )
        autocast = torch.autocast(seating.device.type, torch.bfloat16, enabled=seating.precision == "bf16")
        return self.session(parties, label_party, outputs, seating, autocast)

    def party(self, *parts: Any) -> NonLabelParty:
        """A non-label party. parts: what `NonLabelParty` takes."""
        return NonLabelParty(*parts)

    def session(self, *parts: Any) -> "SplitSession":
        """The session of these parties. parts: what `SplitSession` takes."""
        return SplitSession(*parts)


class SplitSession(Session):
    """One round: every non-label party embeds, the label party answers, every non-label party learns."""

    def __init__(
        self,
        parties: list[NonLabelParty],
        label_party: LabelParty,
        outputs: int,
        seating: Seating,
        autocast: torch.autocast,
    ):
        self.parties, self.label_party, self.outputs, self._autocast = parties, label_party, outputs, autocast
        self.rows: AlignedRows = seating.rows
        self.wire: Wire = seating.wire
        self._columns = seating.columns

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        with self._autocast:
            embeddings = [self.wire.send(party.embed(ids, epoch, watched=bool(watch))) for party in self.parties]
            of_peers = self._models_of_peers(watch)  # before they learn from this batch
            response = self.label_party.respond(embeddings, epoch)
            gradients: dict[str, Message] = {}
            for party, message in zip(self.parties, response.messages, strict=True):
                if message is not None:
                    gradients[party.name] = self.wire.send(message)
                    party.learn(gradients[party.name])
        training = Training(response.loss, response.penalty, ids, response.labels, response.notes)
        if not watch:
            return Round(epoch, step, ids, training=training)
        facts = {party.name: self._facts_of(party, gradients.get(party.name), ids) for party in self.parties}
        facts[LABEL_PARTY] = {**facts_of_label_party(embeddings, response, self.layers()[LABEL_PARTY]), **of_peers}
        wanted = {party: {kind: fact for kind, fact in known.items() if kind in watch} for party, known in facts.items()}
        return Round(epoch, step, ids, facts=wanted, training=training)

    def _facts_of(self, party: NonLabelParty, gradient: Message | None, ids: Tensor) -> dict[type[Fact], Fact]:
        """What a non-label party can compute from the round; less if its gradient was withheld."""
        received = {} if gradient is None else dict(gradient.tensors)
        layers = {**{layer: g.detach().float() for layer, g in party.layer_gradients.items()}, **received}
        columns, order = self.rows.features(party.name, ids), party.bottom.layers
        parameters = {} if gradient is None else dict(party.bottom.named_parameters())  # else they keep an earlier round's
        summed = {name: p.grad.detach() for name, p in parameters.items() if p.grad is not None}
        return {
            Embeddings: Embeddings(in_place({layer: h.detach().float() for layer, h in party.activations.items()}, order)),
            Gradients: Gradients(in_place(layers, order)),
            SummedGradients: SummedGradients(summed),
            OwnColumns: OwnColumns(columns.numeric, columns.categorical),
            OwnModel: OwnModel(party.own_layers),
        }

    def _models_of_peers(self, watch: frozenset[type[Fact]]) -> dict[type[Fact], Fact]:
        """Copies of networks. Copying takes time, so it is done only if they are watched."""
        facts: dict[type[Fact], Fact] = {}
        if PeerModels in watch:
            columns = {party.name: self._columns[party.name] for party in self.parties}
            facts[PeerModels] = PeerModels(
                {
                    party.name: PeerModel(
                        party.bottom.frozen(), columns[party.name].numeric, columns[party.name].cardinalities
                    )
                    for party in self.parties
                }
            )
        if Queries in watch:
            facts[Queries] = Queries({party.name: party.answerer() for party in self.parties})
        return facts

    def facts(self, ids: Tensor, watch: frozenset[type[Fact]]) -> Mapping[str, Facts]:
        known: dict[str, dict[type[Fact], Fact]] = {LABEL_PARTY: self._models_of_peers(watch)}
        for party in self.parties:
            known[party.name] = {OwnModel: OwnModel(party.own_layers)} if OwnModel in watch else {}
            if OwnColumns in watch:
                columns = self.rows.features(party.name, ids)
                known[party.name][OwnColumns] = OwnColumns(columns.numeric, columns.categorical)
        return known

    def predict(self, ids: Tensor) -> Tensor:
        with self._autocast:
            return self.label_party.predict([self.wire.send(party.predict(ids)) for party in self.parties])

    def seats(self) -> Mapping[Seat, tuple[str, ...]]:
        return {Seat.NON_LABEL: tuple(party.name for party in self.parties), Seat.LABEL: (LABEL_PARTY,)}

    def cut_layers(self) -> dict[str, tuple[str, ...]]:
        return {party.name: party.bottom.sends for party in self.parties}

    def layers(self) -> dict[str, tuple[str, ...]]:
        bottom = self.label_party.bottom
        of_label_party = (*(() if bottom is None else bottom.layers), *_layers(self.label_party))
        return {**{party.name: party.bottom.layers for party in self.parties}, LABEL_PARTY: of_label_party}

    def claims(self) -> dict[tuple[str, str], Sent]:
        return {(party.name, layer): sent for party in self.parties for layer, sent in party.claims(self.outputs).items()}

    def figures(self) -> list[Figures]:
        everyone = [*(party.figures() for party in self.parties), self.label_party.figures()]
        return [figures for of_one in everyone for figures in of_one if figures.values]

    @property
    def messages_per_row(self) -> int:
        return max(len(party.bottom.sends) for party in self.parties)

    def state(self) -> dict[str, Any]:
        return {"parties": {party.name: party.state() for party in self.parties}, LABEL_PARTY: self.label_party.state()}

    def restore(self, state: dict[str, Any]) -> None:
        for party in self.parties:
            party.restore(state["parties"][party.name])
        self.label_party.restore(state[LABEL_PARTY])


def facts_of_label_party(embeddings: list[Message], response: Response, order: Sequence[str]) -> dict[type[Fact], Fact]:
    """order: of its layers in its network."""
    own = in_place({layer: h.detach().float() for layer, h in response.activations.items()}, order)
    encoded = {message.sender: message.encoded for message in embeddings}
    means = {
        party: {layer: e.values - e.corrected for layer, e in layers_of.items() if e.is_biased}
        for party, layers_of in encoded.items()
    }
    return {
        Embeddings: Embeddings(own, {message.sender: dict(message.tensors) for message in embeddings}),
        Compression: Compression(encoded),
        NoiseMean: NoiseMean(means),
        Predictions: Predictions(response.logits),
    }


def in_place(layers: Mapping[str, Tensor], order: Sequence[str]) -> dict[str, Tensor]:
    """The layers of a network in their order, and then what crosses beside them."""
    return {
        layer: layers[layer] for layer in (*order, *(other for other in layers if other not in order)) if layer in layers
    }


def _layers(label_party: LabelParty) -> tuple[str, ...]:
    return tuple(getattr(label_party.top, "layers", ()))


def _bottom(party: str, outputs: int, seating: Seating) -> Bottom:
    columns = seating.columns[party]
    rng = seating.generators[f"model/{party}"]
    with drawing_from(rng):
        module = seating.model.bottom_for(columns.numeric, columns.cardinalities, outputs, rng)
        draws = _training_rng(party, seating)
        return as_bottom(module, columns.numeric, columns.cardinalities, outputs, draws).to(seating.device)


def _training_rng(part: str, seating: Seating) -> torch.Generator:
    """What a user's own module draws from while it trains, such as for dropout."""
    return seating.generators.on(torch.device(seating.device), f"model/{part}/training")


def _noise(party: str, seating: Seating) -> Noise:
    names = (f"defense/{party}", f"defense/{party}/predicting")
    return Noise(*(seating.generators.on(torch.device(seating.device), name) for name in names))
