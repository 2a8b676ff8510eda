"""The two kinds of parties, and what they are built from.

The non-label party owns features, sends embeddings and learns from the gradients that come back, here or in another process;
the label party owns the labels and the top model, and answers embeddings with gradients.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.data.rows import AlignedRows, EncodedRows
from vflbench.data.table import LABEL_PARTY, Columns, Features, VerticalTable
from vflbench.defenses.base import Context, WithheldError
from vflbench.defenses.chain import Chain, Figures
from vflbench.generators import Generators
from vflbench.messages.codec import Encoded
from vflbench.messages.facts import Answerer, Auxiliary, PartyFeatures, copied
from vflbench.messages.serialize import Channel, Content, PartyError, content_of, message_of, threads_like_this
from vflbench.messages.wire import Kind, Message, Wire
from vflbench.metrics.privacy import Sent
from vflbench.models.base import WIDE, Bottom, ColumnEmbedding, CutModel, TopModel, evaluating
from vflbench.models.optimizers import Optimizer, Stepper, attach, load_state
from vflbench.numerics.optim import backward
from vflbench.numerics.system import in_full_precision
from vflbench.options import options, restore_state, state_of
from vflbench.protocols.adversaries import Adversary, LabelAdversary, usable

FeatureLookup = Callable[[Tensor], Features]
"""Row ids (n,) -> the party's own columns of these rows."""


@dataclass(frozen=True)
class ProtocolSetup:
    """What a protocol needs to build its parties.

    table: the training rows. rows: all rows by id, where each party looks up what it owns. defense: returns a
    fresh instance at each call. device: of tables and networks. precision: of the products of the networks' layers.
    round_size: rows of a round. adversaries: parties that cheat, by the name under which they were chosen. auxiliary:
    returns at most so many rows that are not trained on, for adversaries that need rows of their own. remote: parties that
    live elsewhere, in the order in which the top takes them.
    """

    table: VerticalTable | EncodedRows
    rows: AlignedRows
    model: CutModel
    optimizer: Optimizer
    wire: Wire
    defense: Callable[[], Chain]
    generators: Generators
    device: torch.device
    precision: Literal["float32", "bf16"] = "float32"
    round_size: int = 0
    adversaries: Mapping[str, Adversary] = field(default_factory=dict)
    auxiliary: Callable[[int], Auxiliary] = lambda _: Auxiliary({})
    remote: Mapping[str, RemoteParty] = field(default_factory=dict)

    @property
    def columns(self) -> Mapping[str, Columns]:
        return {**{name: party.announced.columns for name, party in self.remote.items()}, **self.table.columns}

    def autocast(self) -> torch.autocast:
        """Inside, products of networks' layers have the precision that is wanted."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")


@dataclass(frozen=True)
class PartyNoise:
    """A party's generators: what its defense draws from while training, and while predicting.

    They are two so that predicting more or less often never changes what training draws.
    """

    training: torch.Generator
    predicting: torch.Generator

    @classmethod
    def of(cls, party: str, setup: ProtocolSetup) -> PartyNoise:
        names = (f"defense/{party}", f"defense/{party}/predicting")
        return cls(*(setup.generators.on(setup.device, name) for name in names))


def context_of(ids: Tensor, columns: Features | None, epoch: int, rng: torch.Generator) -> Context:
    """What a defense of a party with these columns gets beside the values."""
    return Context(ids.clone(), None if columns is None else PartyFeatures(columns.numeric, columns.categorical), epoch, rng)


def first_gradient(network: nn.Module) -> Tensor:
    """(p,) of the batch, by the parameters of the first layer: those of the module that holds the network's first."""
    for module in network.modules():
        gradients = [p.grad.flatten() for p in module.parameters(recurse=False) if p.grad is not None]
        if gradients and not isinstance(module, ColumnEmbedding):
            return torch.cat(gradients).detach().float()
    return torch.empty(0)


def learned(network: nn.Module, optimizer: Stepper) -> dict[str, Any]:
    """The weights of a party, and the state of its optimiser."""
    return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}


def relearn(network: nn.Module, optimizer: Stepper, state: Mapping[str, Any]) -> None:
    """Restore what `learned` returned. All tensors are copied."""
    network.load_state_dict(state["network"])
    load_state(optimizer, state["optimizer"])


class Sender:
    """Owns features, and sends the embeddings of its rows after its defenses.

    rows: looks its own columns up.
    """

    def __init__(self, name: str, rows: FeatureLookup, bottom: Bottom, setup: ProtocolSetup):
        self.name, self.rows, self.bottom, self.noise = name, rows, bottom, PartyNoise.of(name, setup)
        self.defenses = {layer: setup.defense() for layer in bottom.sends}

    def message(
        self, activations: Mapping[str, Tensor], context: Context, ids: Tensor, defenses: Mapping[str, Chain] | None = None
    ) -> Message:
        """activations: layer -> (n, d). defenses: in place of its own."""
        chains = self.defenses if defenses is None else defenses
        sent = {layer: chain.embedding(activations[layer].detach().float(), context) for layer, chain in chains.items()}
        return Message.of(self.name, LABEL_PARTY, Kind.EMBEDDING, ids, sent)

    def widths(self, outputs: int) -> dict[str, int]:
        """Of each layer that crosses. outputs: width of the linear part's."""
        bottom = self.bottom
        return {layer: bottom.cut_width if layer == bottom.cut else outputs for layer in bottom.sends}

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What its defenses claim of each layer that crosses."""
        return {layer: self.defenses[layer].claims(width) for layer, width in self.widths(outputs).items()}

    def answerer(self) -> Answerer:
        """What this party, as it is now, would send for any features, with noise from the given generator. Calling it
        changes nothing.
        """
        bottom, defenses = self.bottom.frozen(), copy.deepcopy(self.defenses)

        def answer(numeric: Tensor, categorical: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
            with torch.no_grad():
                ids = -1 - torch.arange(len(numeric))  # of no row, so that no row's own noise is told
                context = Context(ids, PartyFeatures(numeric, categorical), 0, rng)
                return dict(self.message(bottom(numeric, categorical), context, ids, copy.deepcopy(defenses)).tensors)

        return answer

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since the last call."""
        kind = str(Kind.EMBEDDING)
        return [Figures(self.name, layer, kind, defense.figures()) for layer, defense in self.defenses.items()]

    def state(self) -> dict[str, Any]:
        """Of its defenses. Generators are saved with all others."""
        return {"defenses": {layer: defense.state() for layer, defense in self.defenses.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        for layer, defense in self.defenses.items():
            defense.restore(state["defenses"][layer])


class NonLabelParty(Sender):
    """Owns features, never sees a label.

    adversary: how it cheats, if it does. activations, layer_gradients: name -> (n, d) of the last batch that it learned from
    while `watched` was set; they are what an attacker at this party can compute by itself.
    """

    _context: Context  # of the batch that it embedded last

    def __init__(self, name: str, rows: FeatureLookup, bottom: Bottom, setup: ProtocolSetup, adversary: Adversary | None):
        super().__init__(name, rows, bottom, setup)
        self.layers, self.sends, self.cut_width = bottom.layers, bottom.sends, bottom.cut_width
        self.guards = self.defenses[bottom.cut]
        self.adversary = adversary
        agreed = setup.optimizer
        self.optimizer = attach(agreed, bottom) if adversary is None else adversary.attach(bottom, agreed)
        self.activations: dict[str, Tensor] = {}
        self._ahead: list[tuple[Tensor, int, Tensor | None]] = []  # batches sent before it learned from those before them
        self._draws: torch.Generator | None = getattr(bottom, "rng", None)  # of a user's own module, while it trains

    def embed(self, ids: Tensor, epoch: int = 0, *, watched: bool = False) -> Message:
        """The embedding of a training batch, after which `learn` is called. watched: keep gradients of every layer."""
        context = self._forward(ids, epoch, watched=watched)
        message = self.message(self.activations, context, ids)
        return message if self.adversary is None else self._cheat(self.adversary, message, context)

    def _forward(self, ids: Tensor, epoch: int, *, watched: bool) -> Context:
        """Compute its layers of a training batch, whose rows come in another order where a defense arranges them."""
        order = self.guards.arrange(context_of(ids, None, epoch, self.noise.training))
        taken = ids if order is None else ids[order.to(ids.device)]
        columns = self.rows(taken)
        self._context = context_of(taken, columns, epoch, self.noise.training)
        self.activations = self.bottom(columns.numeric, columns.categorical)
        if watched:
            for values in self.activations.values():
                if values.requires_grad:
                    values.retain_grad()
        return self._context

    def embed_ahead(self, ids: Tensor, epoch: int = 0) -> Message:
        """The embedding of a training batch before `learn` is called for those before it: `learn_behind` belongs to each, in
        order. Its gradient goes back through the network as it is then.
        """
        self._ahead.append((ids, epoch, None if self._draws is None else self._draws.get_state()))
        columns = self.rows(ids)
        with torch.no_grad():
            activations = self.bottom(columns.numeric, columns.categorical)
        return self.message(activations, context_of(ids, columns, epoch, self.noise.training), ids)

    def catch_up(self, *, watched: bool = False) -> tuple[Tensor, int]:
        """Compute the oldest batch that was embedded ahead again, so that it can be learned from: its ids (n,) and epoch."""
        (ids, epoch, drawn), draws = self._ahead.pop(0), self._draws
        if draws is None or drawn is None:
            self._forward(ids, epoch, watched=watched)
        else:
            now = draws.get_state()
            draws.set_state(drawn)  # the same dropout
            self._forward(ids, epoch, watched=watched)
            draws.set_state(now)
        return ids, epoch

    def learn_behind(self, gradient: Message | None, *, watched: bool) -> tuple[str, ...]:
        """Learn from the oldest batch that was embedded ahead. gradient: None where it was withheld."""
        self.catch_up(watched=watched)
        return () if gradient is None else self.learn(gradient)

    def learn(self, gradient: Message) -> tuple[str, ...]:
        """One optimiser step from the gradients of what was sent last. They pass straight through compression. Returns lines
        for the log.
        """
        self.optimizer.zero_grad(set_to_none=True)
        layers = [layer for layer in self.bottom.sends if self.activations[layer].requires_grad]
        taken = [self._learned_from(layer, gradient.tensors[layer], self._context) for layer in layers]
        if taken:
            backward([self.activations[layer] for layer in layers], taken)
        if not self.guards.guards or self.guards.learns(first_gradient(self.bottom), self._context):
            self.optimizer.step()
        return tuple(f"party {self.name}: {note}" for note in self.guards.notes())

    @property
    def stopped(self) -> str:
        """Why it takes no further part in training; empty if it does."""
        return self.guards.stopped

    def _learned_from(self, layer: str, g: Tensor, context: Context) -> Tensor:
        h = self.activations[layer]
        if self.defenses[layer].named:
            g = self.defenses[layer].received(g.clone(), h.detach().clone(), context)
        if self.adversary is not None:
            g = usable(self.adversary, "gradient", self.adversary.gradient(layer, g.clone(), h.detach().clone(), context), g)
        return g.to(h.dtype)

    @property
    def layer_gradients(self) -> dict[str, Tensor]:
        return {layer: values.grad for layer, values in self.activations.items() if values.grad is not None}

    @torch.no_grad()
    def predict(self, ids: Tensor) -> Message:
        """The embedding of rows that are only predicted. Neither the network nor the defenses learn from it."""
        columns = self.rows(ids)
        context = context_of(ids, columns, 0, self.noise.predicting)
        with evaluating(self.bottom):
            activations = self.bottom(columns.numeric, columns.categorical)
        return self.message(activations, context, ids, copy.deepcopy(self.defenses))

    def _cheat(self, adversary: Adversary, message: Message, context: Context) -> Message:
        honest: dict[str, Tensor | Encoded] = {**message.tensors, **message.encoded}
        sent = {layer: adversary.embedding(layer, copied(h), context) for layer, h in honest.items()}
        usable_ones = {layer: usable(adversary, "embedding", h, message.tensors[layer]) for layer, h in sent.items()}
        plain = {layer: h if isinstance(h, Encoded) else h.float() for layer, h in usable_ones.items()}
        return Message.of(self.name, LABEL_PARTY, Kind.EMBEDDING, message.ids, plain)

    @torch.no_grad()
    def activations_of(self, ids: Tensor) -> dict[str, Tensor]:
        """Layer -> activations (n, d) of its own rows, in its network as it is now. Calling it changes nothing."""
        columns = self.rows(ids)
        with evaluating(self.bottom):
            activations = self.bottom(columns.numeric, columns.categorical)
        return {layer: values.float() for layer, values in activations.items()}

    def state(self) -> dict[str, Any]:
        """Its weights, its optimiser and its defenses. Generators are saved with all others."""
        cheating = {} if self.adversary is None else {"adversary": state_of(self.adversary)}
        return {**learned(self.bottom, self.optimizer), **super().state(), "ahead": [*map(list, self._ahead)], **cheating}

    def restore(self, state: Mapping[str, Any]) -> None:
        relearn(self.bottom, self.optimizer, state)
        super().restore(state)
        self._ahead = [(ids, epoch, drawn) for ids, epoch, drawn in copy.deepcopy(state["ahead"])]
        if self.adversary is not None:
            restore_state(self.adversary, state["adversary"])


_Name = Annotated[str, Field(max_length=200, pattern=r"^[^\p{C}\p{Zl}\p{Zp}=+\-@][^\p{C}\p{Zl}\p{Zp}]*$")]
"""Without control characters, and no formula where a table is opened."""
_Names = Annotated[list[_Name], Field(max_length=100_000)]
_Size = Annotated[int, Field(ge=1, lt=2**31)]
_FIGURES = TypeAdapter(dict[str, dict[_Name, int | Annotated[float, Field(gt=-1e300, lt=1e300)]]])


@options
class Announced:
    """What a party says of itself before the run: names and sizes, and nothing of a row.

    layers, sends: of its network. widths: of each layer that it sends. guarded: whether a defense decides if it learns from
    an answer. rows: how many it holds.
    """

    numeric: _Names
    categorical: _Names
    cardinalities: list[_Size]
    layers: Annotated[_Names, Field(min_length=1)]
    sends: _Names
    widths: list[_Size]
    guarded: bool
    rows: _Size

    def __post_init__(self) -> None:
        if any(len({*names}) < len(names) for names in ([*self.numeric, *self.categorical], self.layers, self.sends)):
            raise ValueError("it announces a name twice")
        counts = (len(self.sends), len(self.categorical)), (len(self.widths), len(self.cardinalities))
        if counts[0] != counts[1] or self.layers[-1] not in self.sends:
            raise ValueError("it announces columns or layers that don't fit together")

    @property
    def columns(self) -> Columns:
        return Columns(tuple(self.numeric), tuple(self.categorical), tuple(self.cardinalities))


class RemoteParty:
    """Has what a session needs of a `NonLabelParty`; rows, network, optimiser and defenses are elsewhere.

    Its calls wait in a line, one after the other, while this process goes on: `embed`, `learn` and `predict` return what
    will bring the answer. stopped: why it takes no further part.
    """

    stopped = ""

    def __init__(self, channel: Channel, announced: Announced, defense: Callable[[], Chain]):
        self.name, self.channel, self.announced, self._defense = channel.party, channel, announced, defense
        self.layers, self.sends = tuple(announced.layers), tuple(announced.sends)
        self._widths = dict(zip(announced.sends, announced.widths, strict=True))
        self._line = threads_like_this(1)

    @property
    def cut_width(self) -> int:
        return self._widths[self.layers[-1]]

    def widths(self, outputs: int) -> dict[str, int]:
        return self._widths

    def embed(self, ids: Tensor, epoch: int = 0, *, watched: bool = False) -> Future[Message]:
        return self._message("embed", ids, {"epoch": epoch, "watched": watched})

    embed_ahead = embed  # the party knows whether it has learned from the batch before

    def learn(self, gradient: Message | None, *, watched: bool = False) -> Future[tuple[str, ...]]:
        """Brings lines for the log."""
        content = {"gradient": None if gradient is None else content_of(gradient), "watched": watched}
        return self._line.submit(self._learned, content)

    learn_behind = learn

    def predict(self, ids: Tensor) -> Future[Message]:
        return self._message("predict", ids, {})

    def call(self, method: str, content: Content) -> Content:
        """Once all earlier calls are answered."""
        return self._line.submit(self.channel.call, method, content).result()

    def _learned(self, content: Content) -> tuple[str, ...]:
        reply = self.channel.call("learn", content)
        notes, stopped = reply.get("notes"), reply.get("stopped")
        if type(notes) is not list or not all(type(note) is str for note in notes) or type(stopped) is not str:
            raise PartyError(self.name, "it answers what is no answer to a batch")
        self.stopped = stopped
        return tuple(notes)

    def _message(self, method: str, ids: Tensor, request: Content) -> Future[Message]:
        """Raises PartyError for anything but the layers, rows and widths that were agreed."""

        def ask(content: Content) -> Message:
            reply = self.channel.call(method, content)
            try:
                return message_of(reply.get("message"), self.name, LABEL_PARTY, Kind.EMBEDDING, ids, self._widths)
            except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, IndexError) as error:
                raise PartyError(self.name, f"it sends no embedding as agreed: {type(error).__name__}: {error}") from error

        return self._line.submit(ask, {"ids": ids.cpu(), **request})

    def claims(self, outputs: int) -> dict[str, Sent]:
        """What the defenses that it was asked to use claim of each layer that crosses."""
        return {layer: self._defense().claims(width) for layer, width in self._widths.items()}

    def figures(self) -> list[Figures]:
        """What it says that its defenses counted and measured since the last call."""
        try:
            said = _FIGURES.validate_python(self.call("figures", {}).get("figures"), strict=True)
        except ValueError as error:
            raise PartyError(self.name, f"it says figures that are none: {error}") from error
        if not set(said) <= set(self.sends):
            raise PartyError(self.name, "it says figures of no layer that it sends")
        return [Figures(self.name, layer, str(Kind.EMBEDDING), values) for layer, values in said.items()]

    def state(self) -> dict[str, Any]:
        """It keeps its state itself; this is the name under which it does."""
        mark = self.call("save", {}).get("mark")
        if type(mark) is not str or len(mark) > 200:
            raise PartyError(self.name, "it doesn't say under which name it keeps its state")
        return {"kept_as": mark}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises PartyError where it has not kept what this session was saved with."""
        self.call("resume", {"mark": str(state["kept_as"])})


_T = TypeVar("_T")


def arrived(answers: Sequence[_T | Future[_T]]) -> list[_T]:
    """What all of them answer, those in other processes at the same time."""
    return [answer.result() if isinstance(answer, Future) else answer for answer in answers]


@dataclass(frozen=True)
class Response:
    """The label party's answer to one batch.

    messages: a gradient a party, None where a defense withheld it. loss: the classification loss, without `penalty`.
    labels: (n,) classes that it trained on. logits: of the batch, before the step. activations: layer -> (n, d), of its own
    networks. notes: why something was withheld. evidence: see `LabelDefense`.
    """

    messages: tuple[Message | None, ...]
    loss: float
    penalty: float
    labels: Tensor
    logits: Tensor
    activations: Mapping[str, Tensor]
    notes: tuple[str, ...]
    evidence: Tensor | None


def deep_and_wide(inputs: Sequence[Mapping[str, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """What a top takes: the deep part that each party sends, and the linear parts. inputs: layer -> (n, d) of each party."""
    wide = [tensors[WIDE] for tensors in inputs if WIDE in tensors]
    return [next(h for layer, h in tensors.items() if layer != WIDE) for tensors in inputs], wide


class LabelNetworks(nn.Module):
    """The networks of the label party: its top, a bottom where it has features, and what stands before the top.

    forward(received, columns): what each non-label party sent, layer -> (n, d) each, and its own columns. Returns its
    activations, layer -> (n, width), and the logits.
    """

    def __init__(self, top: TopModel, bottom: Bottom | None, entrance: nn.Module | None):
        super().__init__()
        self.top, self.bottom, self.entrance = top, bottom, entrance

    def forward(
        self, received: Sequence[Mapping[str, Tensor]], columns: Features | PartyFeatures | None
    ) -> tuple[dict[str, Tensor], Tensor]:
        local_layers, inputs = {}, list(received)
        if self.bottom is not None and columns is not None:
            computed = self.bottom(columns.numeric, columns.categorical)
            local_layers = {layer: h.float() if h.dtype is torch.float64 else h for layer, h in computed.items()}
            inputs.append({layer: local_layers[layer] for layer in self.bottom.sends})
        deep, wide = deep_and_wide(inputs)
        if self.entrance is not None:
            deep[: len(received)] = self.entrance(deep[: len(received)])
        activations, logits = self.top(deep, wide)
        return {**local_layers, **activations}, logits


class PrivateHead:
    """Networks that the label party keeps to itself: they learn from true labels over the embeddings as they arrived, and
    predict in place of its top.

    Nothing flows back from them, so that all messages are those of the same run without it, bit for bit (unless a top of
    one's own draws from another generator than torch's, which then stands elsewhere). What is predicted depends on true
    labels: a promise about messages says nothing of predictions that are shown to others.

    Source: after Wan et al., "PSLF: Defending Against Label Leakage in Split Learning", CIKM 2023.
    """

    def __init__(self, network: LabelNetworks, optimizer: Optimizer):
        self.network, self.optimizer = network, attach(optimizer, network)

    def learn(self, received: Sequence[Mapping[str, Tensor]], columns: Features | None, y: Tensor) -> None:
        """One optimiser step. received: as `LabelNetworks` takes it; y: (n,) true classes."""
        logits = self.network([{layer: h.detach() for layer, h in layers.items()} for layers in received], columns)[1]
        self.optimizer.zero_grad(set_to_none=True)
        classification_loss(logits.float(), y).backward()
        self.optimizer.step()


class LabelParty:
    """Owns the labels, the top model and, where the dataset says so, features with a bottom of its own.

    labels: row ids (n,) -> (n,) classes. rows: looks its own columns up; None where it has none. defense: of labels, loss
    and penalty. adversary: how it cheats, if it does. head: what predicts in place of the top, if it isn't the top.
    """

    def __init__(
        self,
        setup: ProtocolSetup,
        network: LabelNetworks,
        defense: Chain,
        adversary: LabelAdversary | None,
        head: PrivateHead | None,
    ):
        self.network, self.top, self.bottom, self.entrance = network, network.top, network.bottom, network.entrance
        self.labels, self.rows = setup.rows.labels, None if self.bottom is None else setup.rows.parties[LABEL_PARTY]
        self.layers: tuple[str, ...] = () if self.bottom is None else self.bottom.layers
        self.layers += tuple(getattr(self.top, "layers", ()))
        self._gradient_defenses: dict[tuple[str, str], Chain] = defaultdict(setup.defense)  # by party and layer
        self.noise, self.defense, self.adversary, self.head = PartyNoise.of(LABEL_PARTY, setup), defense, adversary, head
        self.optimizer = attach(setup.optimizer, network)

    def respond(self, embeddings: Sequence[Message], epoch: int = 0) -> Response:
        """One optimiser step, and the gradients to send back.

            L = loss(logits, y) + penalty(embeddings, y);   g = dL / d embedding, defended

        embeddings: one message a non-label party, in the same order at each call.
        """
        ids = embeddings[0].ids
        columns = None if self.rows is None else self.rows(ids)
        context = context_of(ids, columns, epoch, self.noise.training)
        received = [{layer: h.detach().requires_grad_() for layer, h in m.corrected.items()} for m in embeddings]
        activations, logits = self.network(received, columns)
        logits = logits.float()
        y = self.defense.labels(self.labels(ids), logits.detach(), context)
        loss = self.defense.loss(logits, y)
        if loss is None:
            loss = classification_loss(logits, y)
        whole = [torch.cat(list(tensors.values()), dim=1) for tensors in received] if self.defense.named else []
        penalty = torch.as_tensor(self.defense.penalty(whole, y))
        self.optimizer.zero_grad(set_to_none=True)
        with in_full_precision():  # a penalty of a defense has products of its own
            (loss + penalty).backward()
        if self.adversary is None or self.adversary.trains_top:
            self.optimizer.step()
        messages: list[Message | None] = []
        notes: list[str] = []
        for message, tensors in zip(embeddings, received, strict=True):
            gradients = {layer: torch.zeros_like(h) if h.grad is None else h.grad for layer, h in tensors.items()}
            try:
                defenses = {layer: self._gradient_defenses[message.sender, layer] for layer in gradients}
                defended = {layer: defenses[layer].gradient(g, y, context) for layer, g in gradients.items()}
                messages.append(Message.of(LABEL_PARTY, message.sender, Kind.GRADIENT, ids, defended))
            except WithheldError as reason:
                messages.append(None)
                notes.append(f"no gradient is sent to party {message.sender}: {reason}")
        if self.adversary is not None:
            messages = self._cheat(self.adversary, received, embeddings, messages, y)
        if self.head is not None:
            self.head.learn(received, columns, self.labels(ids))
        local_layers = {name: values.detach() for name, values in activations.items()}
        predicted = self.defense.prediction(logits.detach())
        losses, evidence = (loss.item(), penalty.item()), self.defense.evidence()
        return Response(tuple(messages), *losses, y, predicted, local_layers, tuple(notes), evidence)

    def _cheat(
        self,
        adversary: LabelAdversary,
        received: Sequence[Mapping[str, Tensor]],
        embeddings: Sequence[Message],
        messages: Sequence[Message | None],
        y: Tensor,
    ) -> list[Message | None]:
        """What the adversary sends in place of these gradients, as plain numbers, to every party."""
        pairs = zip([m.sender for m in embeddings], received, strict=True)
        held = {party: {layer: h.detach().clone() for layer, h in layers.items()} for party, layers in pairs}
        honest = {party: {layer: torch.zeros_like(h) for layer, h in layers.items()} for party, layers in held.items()}
        honest |= {m.receiver: {layer: g.clone() for layer, g in m.tensors.items()} for m in messages if m is not None}
        adversary.meets(embeddings[0].ids.clone(), held)
        answers = adversary.answer(held, honest, y.clone())
        gradients = {
            party: {layer: usable(adversary, "answer", answers.get(party, {}).get(layer), g) for layer, g in layers.items()}
            for party, layers in honest.items()
        }
        return [Message(LABEL_PARTY, m.sender, Kind.GRADIENT, m.ids, gradients[m.sender], {}) for m in embeddings]

    @torch.no_grad()
    def predict(self, embeddings: Sequence[Message]) -> Tensor:
        """Logits (n, 1) for two classes, (n, K) for K > 2."""
        columns = None if self.rows is None else self.rows(embeddings[0].ids)
        network = self.network if self.head is None else self.head.network
        with evaluating(network):
            logits: Tensor = network([message.corrected for message in embeddings], columns)[1].float()
        return self.defense.prediction(logits) if self.head is None else logits

    def figures(self) -> list[Figures]:
        """What its defenses counted and measured since the last call."""
        at_slots = [Figures(*slot, str(Kind.GRADIENT), d.figures()) for slot, d in self._gradient_defenses.items()]
        return [Figures(LABEL_PARTY, "", "", self.defense.figures()), *at_slots]

    def state(self) -> dict[str, Any]:
        """Its weights, its optimiser and its defenses. Generators are saved with all others."""
        slots = [[party, layer, defense.state()] for (party, layer), defense in self._gradient_defenses.items()]
        cheating = {} if self.adversary is None else {"adversary": state_of(self.adversary)}
        defenses = {"defense": self.defense.state(), "gradient_defenses": slots}
        head = {} if self.head is None else {"head": learned(self.head.network, self.head.optimizer)}
        return {**learned(self.network, self.optimizer), **defenses, **cheating, **head}

    def restore(self, state: Mapping[str, Any]) -> None:
        relearn(self.network, self.optimizer, state)
        self.defense.restore(state["defense"])
        for party, layer, saved in state["gradient_defenses"]:
            self._gradient_defenses[party, layer].restore(saved)
        if self.adversary is not None:
            restore_state(self.adversary, state["adversary"])
        if self.head is not None:
            relearn(self.head.network, self.head.optimizer, state["head"])


def classification_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy in nats. logits (n, 1): logistic loss of class 1; (n, K): softmax. y: (n,) classes."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype))
    return F.cross_entropy(logits, y)
