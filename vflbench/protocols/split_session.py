"""What protocols of a label party with a top, and of others with bottoms, share: how they are seated, and one round."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vflbench.data.rows import AlignedRows
from vflbench.data.table import LABEL_PARTY, non_label_parties
from vflbench.defenses.chain import Figures
from vflbench.errors import UserError
from vflbench.messages.channel import at_once, one_by_one
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, OwnModel, Predictions, SummedGradients
from vflbench.messages.label_facts import Labels, OwnTop
from vflbench.messages.message import Message
from vflbench.messages.peer_facts import Compression, NoiseMean, PeerArchitectures, PeerModels, Queries
from vflbench.messages.round import Facts, Round, Training
from vflbench.messages.threat import Seat
from vflbench.messages.wire import Wire
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.wrapped import as_top, drawing_from
from vflbench.options import options
from vflbench.protocols.adversary import Adversary, by_party
from vflbench.protocols.base import NOTHING, Protocol, Seating, Session
from vflbench.protocols.label_adversary import at_the_label_party, refuse_broken_promise
from vflbench.protocols.label_party import LabelParty
from vflbench.protocols.non_label_party import NonLabelParty
from vflbench.protocols.parties import Lookup
from vflbench.protocols.remote_party import RemoteParty
from vflbench.protocols.split_facts import (
    columns_of_label_party,
    facts_of_label_party,
    facts_of_non_label_party,
    networks,
    what_crossed,
)
from vflbench.protocols.split_networks import architecture_of, bottom_of, noise_of, surroundings_of, training_rng
from vflbench.protocols.together import Mode, Together


@options
class SplitParties(Protocol):
    """Non-label parties hold bottom models, the label party the top. What protocols of such parties share."""

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        offered: dict[Seat, set[type[Fact]]] = {
            Seat.NON_LABEL: {Embeddings, Gradients, SummedGradients, OwnColumns, OwnModel},
            Seat.LABEL: {
                *(Embeddings, PeerModels, PeerArchitectures, Queries, Compression, NoiseMean),
                *(Predictions, Labels, OwnColumns, OwnTop),
            },
        }
        return frozenset(offered.get(seat, set()))

    def start(self, seating: Seating) -> "SplitSession":
        own_defense = seating.defense()
        outputs = own_defense.outputs(1 if seating.classes == 2 else seating.classes)
        names = non_label_parties(seating.columns)
        cheating_with_gradients, others = at_the_label_party(seating.adversaries)
        cheating = by_party(others, names)
        if cheating_with_gradients is not None and seating.remote:
            problem = (
                "it takes rows of all parties' columns, which no process holds where parties live elsewhere; engine=local"
            )
            raise UserError(f"{problem} runs it", key="adversary", value=type(cheating_with_gradients).__name__)
        parties = [
            seating.remote[party]
            if party in seating.remote
            else self.non_label_party(party, seating.rows.parties[party], outputs, seating, cheating.get(party))
            for party in names
        ]
        bottoms = {party: bottom_of(party, outputs, seating) for party in seating.columns if party == LABEL_PARTY}
        own_widths = [bottom.cut_width for bottom in bottoms.values()]
        widths = [*(party.cut_width for party in parties), *own_widths]  # in the order in which the top gets them
        rng = seating.generators[f"model/{LABEL_PARTY}/top"]
        with drawing_from(rng):
            module = seating.model.top_over(widths, outputs, rng)
            top = as_top(module, sum(widths), outputs, training_rng(f"{LABEL_PARTY}/top", seating)).to(seating.device)
            entrance = own_defense.entrance(widths[: len(names)], rng)
        own_rows: Lookup | None = seating.rows.parties[LABEL_PARTY] if LABEL_PARTY in bottoms else None
        label_party = LabelParty(
            seating.rows.labels,
            own_rows,
            top,
            bottoms.get(LABEL_PARTY),
            seating.optimizer,
            seating.defense,
            noise_of(LABEL_PARTY, seating),
            own_defense,
            None if entrance is None else entrance.to(seating.device),
            cheating_with_gradients,
        )
        if cheating_with_gradients is not None:
            refuse_broken_promise(cheating_with_gradients, own_defense.named)
            sends = {party.name: party.sends for party in parties}
            cheating_with_gradients.begin(surroundings_of(sends, outputs, seating))
        return self.session(parties, label_party, outputs, seating, seating.autocast())

    def non_label_party(
        self, name: str, rows: Lookup, outputs: int, seating: Seating, adversary: Adversary | None = None
    ) -> NonLabelParty:
        """The party of that name in this process. rows: looks its columns up. outputs: width of what a linear part sends."""
        bottom, noise = bottom_of(name, outputs, seating), noise_of(name, seating)
        return self.party(name, rows, bottom, seating.optimizer, seating.defense, noise, adversary)

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
        parties: Sequence[NonLabelParty | RemoteParty],
        label_party: LabelParty,
        outputs: int,
        seating: Seating,
        autocast: torch.autocast,
    ):
        self.parties, self.label_party, self.outputs, self._autocast = parties, label_party, outputs, autocast
        self._here = [party for party in parties if isinstance(party, NonLabelParty)]
        self._together: Together | None = None
        self._each = at_once if len(self._here) < len(parties) else one_by_one
        self.rows: AlignedRows = seating.rows
        self.wire: Wire = seating.wire
        self.columns, self._device = seating.columns, seating.device
        self._architectures = {party.name: architecture_of(party.name, outputs, seating) for party in parties}

    def compute_together(self, mode: Mode) -> None:
        """Have parties whose networks are alike computed in one pass, if all of them live in this process."""
        if 1 < len(self._here) == len(self.parties):
            together = Together(self._here, mode)
            self._together = together if together.groups else None

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        with self._autocast:
            sent = self._embedded(ids, epoch, watched=bool(watch))
            embeddings = [self.wire.send(message) for message in sent]
            copies = self._of_networks(watch)  # before they learn from this batch
            response = self.label_party.respond(embeddings, epoch)
            gradients: dict[str, Message] = {}
            for party, answer in zip(self.parties, response.messages, strict=True):
                if answer is not None:
                    gradients[party.name] = self.wire.send(answer)
            notes = self._learn(gradients, watched=bool(watch))
        training = Training(response.loss, response.penalty, ids, response.labels, (*response.notes, *notes))
        if not watch:
            return Round(epoch, step, ids, training=training)
        facts = {
            party.name: what_crossed(message, gradients.get(party.name))
            if isinstance(party, RemoteParty)
            else facts_of_non_label_party(party, gradients.get(party.name), self._own_columns(party, ids))
            for party, message in zip(self.parties, embeddings, strict=True)
        }
        of_label_party = facts_of_label_party(self.label_party, embeddings, response)
        facts[LABEL_PARTY] = {**of_label_party, **copies, **self._made_by_adversary(watch)}
        wanted = {party: {kind: fact for kind, fact in known.items() if kind in watch} for party, known in facts.items()}
        return Round(epoch, step, ids, facts=wanted, training=training)

    def _embedded(self, ids: Tensor, epoch: int, *, watched: bool) -> list[Message]:
        if self._together is not None:
            return self._together.embed(ids, epoch, watched=watched)
        return self._each(lambda party: party.embed(ids, epoch, watched=watched), self.parties)

    def _learn(self, gradients: Mapping[str, Message], *, watched: bool) -> tuple[str, ...]:
        """Returns lines for the log. gradients: of the parties that get one."""
        if self._together is not None:
            return self._together.learn(gradients)
        learning = [party for party in self.parties if party.name in gradients]
        said = self._each(lambda party: party.learn(gradients[party.name]), learning)
        return tuple(note for notes in said for note in notes)

    def facts(self, ids: Tensor, watch: frozenset[type[Fact]]) -> Mapping[str, Facts]:
        copies = {**self._of_networks(watch), **self._made_by_adversary(watch)}
        known: dict[str, dict[type[Fact], Fact]] = {LABEL_PARTY: copies}
        for party in self._here:
            known[party.name] = {OwnModel: OwnModel(party.own_layers)} if OwnModel in watch else {}
            if OwnColumns in watch:
                known[party.name][OwnColumns] = self._own_columns(party, ids)
        if OwnColumns in watch:
            known[LABEL_PARTY][OwnColumns] = columns_of_label_party(self.label_party, ids)
        if Labels in watch:
            known[LABEL_PARTY][Labels] = Labels(self.label_party.labels(ids))
        return known

    def _of_networks(self, watch: frozenset[type[Fact]]) -> dict[type[Fact], Fact]:
        known = networks(self._here, self.label_party, self.columns, watch)
        return known | ({PeerArchitectures: PeerArchitectures(self._architectures)} if PeerArchitectures in watch else {})

    def _made_by_adversary(self, watch: frozenset[type[Fact]]) -> Mapping[type[Fact], Fact]:
        """Facts of the label party's adversary. Copying networks takes time, so it is done only if they are watched."""
        adversary = self.label_party.adversary
        return adversary.facts() if adversary is not None and watch & adversary.facts_made else {}

    def _own_columns(self, party: NonLabelParty, ids: Tensor) -> OwnColumns:
        columns = party.rows(ids)
        return OwnColumns(columns.numeric, columns.categorical)

    def predict(self, ids: Tensor) -> Tensor:
        with self._autocast:
            embeddings = self._each(lambda party: party.predict(ids), self.parties)
            return self.label_party.predict([self.wire.send(message) for message in embeddings])

    def seats(self) -> Mapping[Seat, tuple[str, ...]]:
        return {Seat.NON_LABEL: tuple(party.name for party in self.parties), Seat.LABEL: (LABEL_PARTY,)}

    def cut_layers(self) -> dict[str, tuple[str, ...]]:
        return {party.name: party.sends for party in self.parties}

    def layers(self) -> dict[str, tuple[str, ...]]:
        return {**{party.name: party.layers for party in self.parties}, LABEL_PARTY: self.label_party.layers}

    def remote(self) -> Mapping[str, RemoteParty]:
        return {party.name: party for party in self.parties if isinstance(party, RemoteParty)}

    def claims(self) -> dict[tuple[str, str], Sent]:
        return {(party.name, layer): sent for party in self.parties for layer, sent in party.claims(self.outputs).items()}

    @property
    def stopped(self) -> str:
        return next((f"party {party.name} stopped: {party.stopped}" for party in self.parties if party.stopped), "")

    def figures(self) -> list[Figures]:
        everyone = [*(party.figures() for party in self.parties), self.label_party.figures()]
        return [figures for of_one in everyone for figures in of_one if figures.values]

    @property
    def messages_per_row(self) -> int:
        return max(len(party.sends) for party in self.parties)

    def state(self) -> dict[str, Any]:
        return {"parties": {party.name: party.state() for party in self.parties}, LABEL_PARTY: self.label_party.state()}

    def restore(self, state: dict[str, Any]) -> None:
        for party in self.parties:
            party.restore(state["parties"][party.name])
        self.label_party.restore(state[LABEL_PARTY])
