"""Split learning: embeddings up, gradients down."""

from typing import Any

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY, VerticalTable, non_label_parties
from vflbench.defenses.base import Figures
from vflbench.messages.transcript import Knowledge, PeerModel, Seat, Transcript
from vflbench.messages.wire import Kind, Wire
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import Bottom
from vflbench.options import options
from vflbench.protocols.base import Outcome, Protocol, Session, Setting
from vflbench.protocols.parties import LabelParty, Noise, NonLabelParty


@options
class Split(Protocol):
    """Non-label parties hold bottom models, the label party the top: one batch a round, one message each way a party.

    Source: Vepakomma et al., "Split learning for health: Distributed deep learning without sharing raw patient data", 2018.
    """

    def offers(self, seat: Seat) -> frozenset[Knowledge]:
        everywhere = frozenset({Knowledge.EMBEDDINGS, Knowledge.PRIOR})
        more = {Knowledge.GRADIENTS, Knowledge.HINTS, Knowledge.FEATURES}
        of_peers = {Knowledge.PEER_MODEL, Knowledge.QUERIES, Knowledge.AUXILIARY}
        of_messages = {Knowledge.COMPRESSION, Knowledge.NOISE_MEAN}
        return everywhere | (more if seat is Seat.NON_LABEL else of_peers | of_messages)

    def start(self, setting: Setting) -> Session:
        outputs = 1 if setting.table.classes == 2 else setting.table.classes
        bottoms = {party: _bottom(party, outputs, setting) for party in setting.table.columns}
        parties = [
            NonLabelParty(party, bottoms[party], setting.optimizer, setting.defense, _noise(party, setting))
            for party in non_label_parties(setting.table.columns)
        ]
        inputs = sum(bottom.cut_width for bottom in bottoms.values())
        top = setting.model.top(inputs, outputs, setting.generators[f"model/{LABEL_PARTY}/top"]).to(setting.device)
        label_party = LabelParty(
            top,
            bottoms.get(LABEL_PARTY),
            setting.optimizer,
            setting.defense,
            _noise(LABEL_PARTY, setting),
        )
        autocast = torch.autocast(setting.device.type, torch.bfloat16, enabled=setting.precision == "bf16")
        return SplitSession(parties, label_party, setting.wire, autocast)


class SplitSession(Session):
    """One round: every non-label party embeds, the label party answers, every non-label party learns."""

    def __init__(self, parties: list[NonLabelParty], label_party: LabelParty, wire: Wire, autocast: torch.autocast):
        self.parties, self.label_party, self.wire, self._autocast = parties, label_party, wire, autocast

    def round(self, batch: VerticalTable, transcript: Transcript | None) -> Outcome:
        with self._autocast:
            return self._round(batch, transcript)

    def _round(self, batch: VerticalTable, transcript: Transcript | None) -> Outcome:
        watched = transcript is not None
        self.wire.tap = transcript.received if watched else None
        embeddings = [
            self.wire.send(party.embed(batch.features[party.name], batch.ids, watched=watched)) for party in self.parties
        ]
        if transcript is not None:
            self._tell_of_parties(transcript, batch)  # as they are before this batch teaches them
        response = self.label_party.respond(embeddings, batch.features.get(LABEL_PARTY), batch.labels)
        for party, message in zip(self.parties, response.messages, strict=True):
            if message is not None:
                party.learn(self.wire.send(message))
        self.wire.tap = None
        if transcript is not None:
            transcript.computed(LABEL_PARTY, Kind.EMBEDDING, response.activations)
            for party in self.parties:
                transcript.computed(party.name, Kind.EMBEDDING, party.activations)
                transcript.computed(party.name, Kind.GRADIENT, party.layer_gradients)
        return Outcome(response.loss, response.penalty, response.labels, response.notes)

    def _tell_of_parties(self, transcript: Transcript, batch: VerticalTable) -> None:
        for party in self.parties:
            if Knowledge.PEER_MODEL in transcript.wanted:
                columns = batch.features[party.name].columns
                model = PeerModel(party.bottom.frozen(), columns.numeric, columns.cardinalities)
                transcript.tell(party.name, Knowledge.PEER_MODEL, model)
            if Knowledge.QUERIES in transcript.wanted:
                transcript.tell(party.name, Knowledge.QUERIES, party.answerer())

    def predict(self, batch: VerticalTable) -> Tensor:
        with self._autocast:
            embeddings = [self.wire.send(party.predict(batch.features[party.name], batch.ids)) for party in self.parties]
            return self.label_party.predict(embeddings, batch.features.get(LABEL_PARTY))

    def seats(self, seat: Seat) -> tuple[str, ...]:
        return tuple(party.name for party in self.parties) if seat is Seat.NON_LABEL else (LABEL_PARTY,)

    def claims(self) -> dict[tuple[str, str], Sent]:
        outputs = self.label_party.top.output.out_features
        return {(party.name, layer): sent for party in self.parties for layer, sent in party.claims(outputs).items()}

    def figures(self) -> list[Figures]:
        return [figures for party in (*self.parties, self.label_party) for figures in party.figures() if figures.values]

    @property
    def messages_per_row(self) -> int:
        return max(len(party.bottom.sends) for party in self.parties)

    def state(self) -> dict[str, Any]:
        return {"parties": {party.name: party.state() for party in self.parties}, LABEL_PARTY: self.label_party.state()}

    def restore(self, state: dict[str, Any]) -> None:
        for party in self.parties:
            party.restore(state["parties"][party.name])
        self.label_party.restore(state[LABEL_PARTY])


def _bottom(party: str, outputs: int, setting: Setting) -> Bottom:
    columns = setting.table.columns[party]
    rng = setting.generators[f"model/{party}"]
    return setting.model.bottom(columns.numeric, columns.cardinalities, outputs, rng).to(setting.device)


def _noise(party: str, setting: Setting) -> Noise:
    names = (f"defense/{party}", f"defense/{party}/predicting")
    return Noise(*(setting.generators.on(torch.device(setting.device), name) for name in names))
