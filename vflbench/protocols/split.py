"""Split learning: embeddings up, gradients down, with or without a batch of delay."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from vflbench.data.rows import AlignedRows, EncodedRows
from vflbench.data.table import LABEL_PARTY, non_label_parties
from vflbench.defenses.chain import Figures
from vflbench.errors import UserError
from vflbench.messages.facts import (
    Architecture,
    Compression,
    Embeddings,
    Fact,
    Gradients,
    Labels,
    Layers,
    LocalModel,
    LocalTop,
    NoiseMean,
    PartyFeatures,
    PeerArchitectures,
    PeerModel,
    PeerModels,
    Predictions,
    Queries,
    SummedGradients,
    TopNetworks,
)
from vflbench.messages.serialize import content_of, message_of
from vflbench.messages.threat import Facts, Role, Round, Training
from vflbench.messages.wire import Kind, Message, Wire
from vflbench.metrics.privacy import Sent
from vflbench.models.base import Bottom, TopModel, frozen_copy
from vflbench.models.torch import as_bottom, as_top, drawing_from
from vflbench.options import Range, options
from vflbench.protocols.adversaries import Adversary, LabelAdversary, Surroundings, by_party, refuse_broken_promise
from vflbench.protocols.base import NOTHING, Protocol, Rounds, Session
from vflbench.protocols.parties import (
    FeatureLookup,
    LabelNetworks,
    LabelParty,
    NonLabelParty,
    PrivateHead,
    ProtocolSetup,
    RemoteParty,
    Response,
    Sender,
    arrived,
)


def bottom_of(party: str, outputs: int, setup: ProtocolSetup) -> Bottom:
    """A party's network, drawn from the generator of its name."""
    return builder_of(party, outputs, setup)(setup.generators[f"model/{party}"], training_rng(party, setup))


def builder_of(party: str, outputs: int, setup: ProtocolSetup) -> Callable[..., Bottom]:
    """What builds a party's network: (generator of its weights, and of what a user's own module draws while it trains, the
    same if left out) -> it. No row can be reached from it.
    """
    columns, model, device = setup.columns[party], setup.model, setup.device
    sizes = columns.numeric, columns.cardinalities, outputs

    def built(rng: torch.Generator, draws: torch.Generator | None = None) -> Bottom:
        with drawing_from(rng):
            return as_bottom(model.bottom_for(*sizes, rng), *sizes, draws or rng).to(device)

    return built


def top_of(widths: Sequence[int], outputs: int, setup: ProtocolSetup, name: str) -> TopModel:
    """A top of the label party, drawn from the generator of its name. widths: of what each party sends."""
    rng = setup.generators[f"model/{LABEL_PARTY}/{name}"]
    with drawing_from(rng):
        module = setup.model.top_over(widths, outputs, rng)
        draws = training_rng(f"{LABEL_PARTY}/{name}", setup)
        return as_top(module, sum(widths), outputs, draws).to(setup.device)


def architecture_of(party: str, outputs: int, setup: ProtocolSetup) -> Architecture:
    """What others may know of a bottom: the network that it builds draws from their own generator."""
    columns, built, device = setup.columns[party], builder_of(party, outputs, setup), setup.device

    def build(rng: torch.Generator) -> Bottom:
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        return built(torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed))

    return Architecture(columns.numeric, columns.cardinalities, build)


def surroundings_of(sends: Mapping[str, tuple[str, ...]], outputs: int, setup: ProtocolSetup) -> Surroundings:
    """What a label party that cheats has around it. sends: party -> the layers that it sends."""
    bottoms = {party: builder_of(party, outputs, setup) for party in sends}
    rng = setup.generators.on(torch.device(setup.device), f"adversary/{LABEL_PARTY}")
    return Surroundings(bottoms, sends, setup.auxiliary, setup.table.classes, rng)


def training_rng(part: str, setup: ProtocolSetup) -> torch.Generator:
    """What a user's own module draws from while it trains, such as for dropout."""
    return setup.generators.on(torch.device(setup.device), f"model/{part}/training")


def facts_of_non_label_party(
    party: NonLabelParty, gradient: Message | None, columns: PartyFeatures
) -> dict[type[Fact], Fact]:
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
        PartyFeatures: columns,
        LocalModel: LocalModel(party.activations_of),
    }


def what_crossed(embedding: Message, gradient: Message | None) -> dict[type[Fact], Fact]:
    """What the label party knows of what a party that lives elsewhere has: what it sent, and what it was sent."""
    facts: dict[type[Fact], Fact] = {Embeddings: Embeddings(dict(embedding.tensors))}
    return facts | ({} if gradient is None else {Gradients: Gradients(dict(gradient.tensors))})


def facts_of_label_party(
    label_party: LabelParty, embeddings: Sequence[Message], response: Response
) -> dict[type[Fact], Fact]:
    layers = in_place({layer: h.detach().float() for layer, h in response.activations.items()}, label_party.layers)
    ids = embeddings[0].ids
    return {
        Embeddings: Embeddings(layers, {message.sender: dict(message.tensors) for message in embeddings}),
        Predictions: Predictions(response.logits),
        Labels: Labels(label_party.labels(ids)),
        PartyFeatures: features_of(label_party, ids),
        **compressed({message.sender: message for message in embeddings}),
    }


def compressed(received: Mapping[str, Message]) -> dict[type[Fact], Fact]:
    """How the embeddings that a party received were compressed. received: party -> its message."""
    encoded = {party: message.encoded for party, message in received.items()}
    means = {
        party: {layer: e.values - e.corrected for layer, e in layers.items() if e.is_biased}
        for party, layers in encoded.items()
    }
    return {Compression: Compression(encoded), NoiseMean: NoiseMean(means)}


def only(watch: frozenset[type[Fact]], facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """Those of these kinds."""
    return {party: {kind: fact for kind, fact in known.items() if kind in watch} for party, known in facts.items()}


def features_of(party: NonLabelParty | LabelParty, ids: Tensor) -> PartyFeatures:
    """A party's columns of these rows; none, (n, 0), where the label party holds no features."""
    if party.rows is None:
        none = torch.empty(len(ids), 0, device=ids.device)
        return PartyFeatures(none, none.int())
    columns = party.rows(ids)
    return PartyFeatures(columns.numeric, columns.categorical)


class FrozenTop(nn.Module):
    """A label party's networks as they stand, which no later step changes, and what its defenses make of their logits.

    parties: in the order in which they send.
    """

    def __init__(self, label_party: LabelParty, parties: Sequence[str]):
        super().__init__()
        self._parties = tuple(parties)
        self._networks = frozen_copy(label_party.network, "the label party's networks").eval()
        self._defense = copy.deepcopy(label_party.defense)

    def forward(self, embeddings: Mapping[str, Layers], columns: PartyFeatures) -> Tensor:
        logits: Tensor = self._networks([embeddings[party] for party in self._parties], columns)[1]
        return self._defense.prediction(logits)


def in_place(layers: Mapping[str, Tensor], order: Sequence[str]) -> dict[str, Tensor]:
    """The layers of a network in their order, and then what crosses beside them."""
    return {
        layer: layers[layer] for layer in (*order, *(other for other in layers if other not in order)) if layer in layers
    }


@options
class SplitParties(Protocol):
    """Non-label parties hold bottom models, the label party the top. What protocols of such parties share."""

    party_type: ClassVar[type[NonLabelParty]] = NonLabelParty

    def offers(self, role: Role) -> frozenset[type[Fact]]:
        offered: dict[Role, set[type[Fact]]] = {
            Role.NON_LABEL: {Embeddings, Gradients, SummedGradients, PartyFeatures, LocalModel},
            Role.LABEL: {
                *(Embeddings, PeerModels, PeerArchitectures, Queries, Compression, NoiseMean),
                *(Predictions, Labels, PartyFeatures, LocalTop),
            },
        }
        return frozenset(offered.get(role, set()))

    def start(self, setup: ProtocolSetup) -> Any:
        """A `SplitSession`."""
        label_defense = setup.defense()
        outputs = label_defense.outputs(1 if setup.table.classes == 2 else setup.table.classes)
        names = non_label_parties(setup.columns)
        cheating = by_party(setup.adversaries, names)
        cheating_with_gradients = next((one for one in cheating.values() if isinstance(one, LabelAdversary)), None)
        if cheating_with_gradients is not None and setup.remote:
            problem = "it takes rows of all parties' columns, which no process holds here; engine=local runs it"
            raise UserError(problem, key="adversary", value=type(cheating_with_gradients).__name__)
        parties = [
            setup.remote[party]
            if party in setup.remote
            else self.non_label_party(party, setup.rows.parties[party], outputs, setup, cheating.get(party))
            for party in names
        ]
        bottom = bottom_of(LABEL_PARTY, outputs, setup) if LABEL_PARTY in setup.columns else None
        widths = [one.cut_width for one in (*parties, bottom) if one is not None]  # in the order in which the top gets them
        rng = setup.generators[f"model/{LABEL_PARTY}/top"]
        top = top_of(widths, outputs, setup, "top")
        with drawing_from(rng):
            entrance = label_defense.entrance(widths[: len(names)], rng)
        network, head = LabelNetworks(top, bottom, entrance).to(setup.device), self.private_head_of(widths, setup)
        label_party = LabelParty(setup, network, label_defense, cheating_with_gradients, head)
        if cheating_with_gradients is not None:
            refuse_broken_promise(cheating_with_gradients, label_defense.named)
            sends = {party.name: party.sends for party in parties}
            cheating_with_gradients.begin(surroundings_of(sends, outputs, setup))
        return self.session(parties, label_party, outputs, setup)

    def non_label_party(
        self, name: str, rows: FeatureLookup, outputs: int, setup: ProtocolSetup, adversary: Adversary | None = None
    ) -> NonLabelParty:
        """The party of that name in this process. rows: looks its columns up. outputs: width of what a linear part sends."""
        return self.party_type(name, rows, bottom_of(name, outputs, setup), setup, adversary)

    def private_head_of(self, widths: Sequence[int], setup: ProtocolSetup) -> PrivateHead | None:
        """What predicts in place of the top; None if the top does. widths: of what each party sends."""
        return None

    def session(self, *parts: Any) -> "SplitSession":
        """The session of these parties. parts: what `SplitSession` takes."""
        raise NotImplementedError


class SplitSession(Session):
    """One round: every non-label party embeds, the label party answers, every non-label party learns."""

    def __init__(
        self, parties: Sequence[NonLabelParty | RemoteParty], label_party: LabelParty, outputs: int, setup: ProtocolSetup
    ):
        self.parties, self.label_party, self.outputs, self._autocast = parties, label_party, outputs, setup.autocast()
        self._here = [party for party in parties if isinstance(party, NonLabelParty)]
        self.rows: AlignedRows = setup.rows
        self.wire: Wire = setup.wire
        self.columns, self._device = setup.columns, setup.device
        self._setup, self._plans = setup, [party.name for party in parties]

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        with self._autocast:
            sent = self._embedded(ids, epoch, watched=bool(watch))
            embeddings = [self.wire.send(message) for message in sent]
            copies = self._of_networks(watch, self._here)  # before they learn from this batch
            response = self.label_party.respond(embeddings, epoch)
            gradients: dict[str, Message] = {}
            for party, answer in zip(self.parties, response.messages, strict=True):
                if answer is not None:
                    gradients[party.name] = self.wire.send(answer)
            notes = (*response.notes, *self._learn(gradients, watched=bool(watch)))
        training = Training(response.loss, response.penalty, ids, response.labels, notes, response.evidence)
        if not watch:
            return Round(epoch, step, ids, training=training)
        facts = {
            party.name: what_crossed(message, gradients.get(party.name))
            if isinstance(party, RemoteParty)
            else facts_of_non_label_party(party, gradients.get(party.name), features_of(party, ids))
            for party, message in zip(self.parties, embeddings, strict=True)
        }
        of_label_party = facts_of_label_party(self.label_party, embeddings, response)
        facts[LABEL_PARTY] = {**of_label_party, **copies, **self._made_by_adversary(watch)}
        return Round(epoch, step, ids, facts=only(watch, facts), training=training)

    def _embedded(self, ids: Tensor, epoch: int, *, watched: bool) -> list[Message]:
        return arrived([party.embed(ids, epoch, watched=watched) for party in self.parties])

    def _learn(self, gradients: Mapping[str, Message], *, watched: bool) -> tuple[str, ...]:
        """Returns lines for the log. gradients: of the parties that get one."""
        learning = [party for party in self.parties if party.name in gradients]
        said = arrived([party.learn(gradients[party.name]) for party in learning])
        return tuple(note for notes in said for note in notes)

    def facts(self, ids: Tensor, watch: frozenset[type[Fact]]) -> Mapping[str, Facts]:
        copies = {**self._of_networks(watch, self._here), **self._made_by_adversary(watch)}
        known: dict[str, dict[type[Fact], Fact]] = {LABEL_PARTY: copies}
        for party in self._here:
            known[party.name] = {LocalModel: LocalModel(party.activations_of)} if LocalModel in watch else {}
            if PartyFeatures in watch:
                known[party.name][PartyFeatures] = features_of(party, ids)
        if PartyFeatures in watch:
            known[LABEL_PARTY][PartyFeatures] = features_of(self.label_party, ids)
        if Labels in watch:
            known[LABEL_PARTY][Labels] = Labels(self.label_party.labels(ids))
        return known

    def _of_networks(self, watch: frozenset[type[Fact]], senders: Sequence[Sender]) -> dict[type[Fact], Fact]:
        """Copies of networks of these parties, and of the top: only if they are watched, as copying takes time."""
        facts: dict[type[Fact], Fact] = {}
        if PeerModels in watch:
            columns = {party.name: self.columns[party.name] for party in senders}
            copies = [PeerModel(p.bottom.frozen(), columns[p.name].numeric, columns[p.name].cardinalities) for p in senders]
            facts[PeerModels] = PeerModels(dict(zip(columns, copies, strict=True)))
        if Queries in watch:
            facts[Queries] = Queries({party.name: party.answerer() for party in senders})
        if LocalTop in watch:
            facts[LocalTop] = LocalTop(TopNetworks(FrozenTop(self.label_party, [party.name for party in self._here])))
        if PeerArchitectures in watch:
            plans = {party: architecture_of(party, self.outputs, self._setup) for party in self._plans}
            facts[PeerArchitectures] = PeerArchitectures(plans)
        return facts

    def _made_by_adversary(self, watch: frozenset[type[Fact]]) -> Mapping[type[Fact], Fact]:
        """Facts of the label party's adversary. Copying networks takes time, so it is done only if they are watched."""
        adversary = self.label_party.adversary
        return adversary.facts() if adversary is not None and watch & adversary.facts_made else {}

    def predict(self, ids: Tensor) -> Tensor:
        with self._autocast:
            embeddings = arrived([party.predict(ids) for party in self.parties])
            return self.label_party.predict([self.wire.send(message) for message in embeddings])

    def roles(self) -> Mapping[Role, tuple[str, ...]]:
        return {Role.NON_LABEL: tuple(party.name for party in self.parties), Role.LABEL: (LABEL_PARTY,)}

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


@options
class Split(SplitParties):
    """Non-label parties hold bottom models, and the label party holds the top. A round has one batch, and for each party one
    message in each direction.

    staleness: 1 asks for the embeddings of the next batch while the label party works on the current one. So they come from
    networks that have not yet learned from the current batch (see `PipelinedSession`). 0 waits.
    private_head: the label party trains a second top on true labels, which sends nothing and predicts (`PrivateHead`).

    Source: Vepakomma et al., "Split learning for health: Distributed deep learning without sharing raw patient data", 2018.
    The delay is that of pipelines, as in Harlap et al., "PipeDream: Fast and efficient pipeline parallel DNN training",
    2018, without keeping old weights: the gradient goes back through the network as it is when it arrives.
    """

    staleness: Annotated[int, Range(0, 1)] = 0
    private_head: bool = False

    def private_head_of(self, widths: Sequence[int], setup: ProtocolSetup) -> PrivateHead | None:
        if not self.private_head:
            return None
        outputs = 1 if setup.table.classes == 2 else setup.table.classes
        bottom = None
        if LABEL_PARTY in setup.columns:
            rng = setup.generators[f"model/{LABEL_PARTY}/head bottom"]
            bottom = builder_of(LABEL_PARTY, outputs, setup)(rng, training_rng(f"{LABEL_PARTY}/head bottom", setup))
        top = top_of(widths, outputs, setup, "head")
        drawn = [getattr(part, "rng", None) for part in (top, bottom)]
        draws = {id(one): one for one in drawn if one is not None}  # not copied: all generators are saved
        network = copy.deepcopy(LabelNetworks(top, bottom, None), draws)  # of its own, where a model hands out one module
        return PrivateHead(network, setup.optimizer)

    def session(self, *parts: Any) -> SplitSession:
        return (PipelinedSession if self.staleness else SplitSession)(*parts)


@dataclass
class Foreseen:
    """The rounds of an epoch; `coming` is the one after that which was taken last, None after the last."""

    rounds: Rounds
    coming: Tensor | None = None

    @property
    def batch_size(self) -> int:
        return self.rounds.batch_size

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[Tensor]:
        for ids, coming in pairwise(chain(self.rounds, [None])):
            self.coming = coming
            if ids is not None:
                yield ids


class PipelinedSession(SplitSession):
    """One round: the embeddings of the next batch are asked for before any party learns from this one.

        h_t = f(w_{t-1}; x_t),   w_{t+1} = w_t - step(J_f(w_t; x_t)^T dL_t / d h_t)

    w_t: the weights of a bottom when the label party answers batch t; the first batch of an epoch has no delay.
    """

    _foreseen: Foreseen | None = None
    _ahead: tuple[Tensor, Sequence[Message | Future[Message]]] | None = None  # ids of a batch, and what the parties send
    _learning: Sequence[object | Future[object]] = ()  # what parties do that live elsewhere, while this one goes on

    def __init__(self, *parts: Any):
        """Raises UserError for what needs an answer before the next batch is embedded. parts: as of `SplitSession`."""
        super().__init__(*parts)
        guarded = [p.name for p in self.parties if (p.announced.guarded if isinstance(p, RemoteParty) else p.guards.guards)]
        if guarded:
            problem = f"a defense of party {guarded[0]} decides by each answer whether it goes on; set protocol.staleness=0"
            raise UserError(problem, key="protocol.staleness", value=1)
        if self.label_party.adversary is not None or any(party.adversary is not None for party in self._here):
            problem = "a party cheats, and adversaries are made for the order without delay; set protocol.staleness=0"
            raise UserError(problem, key="protocol.staleness", value=1)

    def batches(self, table: EncodedRows, batch_size: int, rng: torch.Generator, epoch: int) -> Rounds:
        self._foreseen = Foreseen(super().batches(table, batch_size, rng, epoch))
        return self._foreseen

    def _embedded(self, ids: Tensor, epoch: int, *, watched: bool) -> list[Message]:
        of, sent = self._ahead or self._asked(ids, epoch)
        if not torch.equal(of, ids):
            raise RuntimeError("the batch is not the one that was foreseen")
        messages = arrived(sent)
        coming = None if self._foreseen is None else self._foreseen.coming
        self._ahead = None if coming is None else self._asked(coming, epoch)
        return messages

    def _asked(self, ids: Tensor, epoch: int) -> tuple[Tensor, Sequence[Message | Future[Message]]]:
        return ids, [party.embed_ahead(ids, epoch) for party in self.parties]

    def _learn(self, gradients: Mapping[str, Message], *, watched: bool) -> tuple[str, ...]:
        before = self._learning
        self._learning = [party.learn_behind(gradients.get(party.name), watched=watched) for party in self.parties]
        arrived(before)
        return ()  # only defenses that need each answer at once say anything

    def state(self) -> dict[str, Any]:
        arrived(self._learning)
        ids, sent = self._ahead or (None, [])
        kept = None if ids is None else [ids, [content_of(message) for message in arrived(sent)]]
        return {**super().state(), "ahead": kept}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._ahead, self._learning = None, ()
        if state["ahead"] is not None:
            ids = state["ahead"][0].clone().to(self._device)
            messages = [
                message_of(content, party.name, LABEL_PARTY, Kind.EMBEDDING, ids, party.widths(self.outputs))
                for party, content in zip(self.parties, state["ahead"][1], strict=True)
            ]
            self._ahead = ids, messages
