"""Federated logistic regression: participants with rows of their own share the steps that they take on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_lowercase
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.data.rows import EncodedRows, TrainTest
from vflbench.data.table import VerticalTable
from vflbench.defenses.base import Context
from vflbench.defenses.chain import Chain, Figures
from vflbench.errors import UserError
from vflbench.messages.facts import Fact, PartyFeatures, Rules, Schema, Updates
from vflbench.messages.threat import PrivateBatch, Role, Round, Training
from vflbench.messages.wire import Kind, Message
from vflbench.options import Count, Range, Rate, Rows, Steps, options
from vflbench.protocols.base import NOTHING, Protocol, Session
from vflbench.protocols.parties import ProtocolSetup

_MOST_COLUMNS = 4096


@dataclass(frozen=True)
class FederatedRounds:
    """The rounds of one epoch: in each, of every participant the next batches, one participant after the other.

    ids_of: of each participant's rows; orders: (n,) places, in which it cuts them. What doesn't fill a round waits for
    another epoch.
    """

    ids_of: Sequence[Tensor]
    orders: Sequence[Tensor]
    batch_size: int

    @property
    def share(self) -> int:
        return self.batch_size // len(self.ids_of)

    def __len__(self) -> int:
        return min(map(len, self.orders)) // self.share

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, len(self) * self.share, self.share):
            places = [order[start : start + self.share] for order in self.orders]
            yield torch.cat([ids[order.to(ids.device)] for ids, order in zip(self.ids_of, places, strict=True)])


def width(table: VerticalTable | EncodedRows, *, intercept: bool) -> int:
    """d: numeric columns, one for each category, and one for the intercept."""
    total = sum(len(columns.numeric) + sum(columns.cardinalities) for columns in table.columns.values()) + intercept
    if total > _MOST_COLUMNS:
        raise UserError(
            f"its columns, categories one-hot, make {total} features, and federated_lr takes {_MOST_COLUMNS} at most; name "
            "fewer of them in dataset.parties, or share rare categories by dataset.min_count",
            key="dataset",
        )
    return total


def schema_of(shares: Sequence[VerticalTable], *, intercept: bool) -> Schema:
    """Of the design that these rows of all participants make: a column of ones first, if there is an intercept.

    A numeric column is binary if no participant has another number than 0 and 1 in it.
    """
    binary, one_hot, column = ([0], [], 1) if intercept else ([], [], 0)
    for party, columns in shares[0].columns.items():
        for j in range(len(columns.numeric)):
            values = [share.features[party].numeric[:, j] for share in shares]
            if all(bool(((part == 0) | (part == 1)).all()) for part in values):
                binary.append(column + j)
        column += len(columns.numeric)
        for size in columns.cardinalities:
            binary.extend(range(column, column + size))
            one_hot.append((column, size))
            column += size
    return Schema(tuple(binary), intercept, tuple(one_hot))


def deal(table: VerticalTable | EncodedRows, parties: int, rng: torch.Generator) -> list[VerticalTable]:
    """Rows of each participant: even shares of a random order."""
    rows = table.all() if isinstance(table, EncodedRows) else table
    order = torch.randperm(len(rows), generator=rng).to(rows.ids.device)
    share = len(rows) // parties
    return [rows.rows(order[i * share : (i + 1) * share]) for i in range(parties)]


def signs(labels: Tensor) -> Tensor:
    """Classes 0 and 1 as -1 and +1, float64."""
    return labels.double() * 2 - 1


Reduction = Literal["sum", "mean"]
AGGREGATOR = "server"
THETA = "theta"
"""The one layer that updates and models are about."""


def taylor_loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(n,) the logistic loss to second order about 0, in nats: log 2 - (1/2) y theta.x + (1/8) (theta.x)^2.

    theta: (d,); x: (n, d); y: (n,) of -1 and +1.

    Source: Hardy et al., "Private federated learning on vertically partitioned data via entity resolution and additively
    homomorphic encryption", 2017.
    """
    z = x @ theta
    return torch.log(torch.tensor(2.0, dtype=z.dtype)) - y * z / 2 + z.square() / 8


def gradient(theta: Tensor, x: Tensor, y: Tensor, reduction: Reduction) -> Tensor:
    """(d,) the gradient of `taylor_loss`, summed over rows or their mean: X^T X theta / 4 - X^T y / 2."""
    total = x.T @ (x @ theta / 4 - y / 2)
    return total if reduction == "sum" else total / len(x)


class Participant:
    """Owns rows, and shares steps. model: (d,) as it knows it. sent: (d,) its last update."""

    def __init__(self, name: str, model: Tensor, rate: float, reduction: Reduction, defense: Chain, rng: torch.Generator):
        self.name, self.model, self.rate, self.reduction = name, model, rate, reduction
        self.defense, self.rng = defense, rng
        self.sent = torch.zeros_like(model)

    def step(self, batches: Sequence[tuple[Tensor, Tensor]], ids: Tensor, epoch: int = 0) -> tuple[Message, float]:
        """One local step a batch, from the model it knows. batches: x (m, d) and y (m,) in {-1, +1}; ids: of their rows.

            theta_(i+1) = theta_i - rate g_i(theta_i);   sent: theta_n - theta_0

        Returns what it sends, and the mean loss of its rows before they were learned from.
        """
        theta, losses = self.model, []
        for x, y in batches:
            losses.append(taylor_loss(theta, x, y).mean())
            theta = theta - self.rate * gradient(theta, x, y, self.reduction)
        rows = torch.cat([x for x, _ in batches])
        columns = PartyFeatures(rows, rows.new_empty((len(rows), 0)))
        self.sent = self.defense.update(theta - self.model, Context(ids, columns, epoch, self.rng))
        empty = torch.empty(0, dtype=torch.int64, device=theta.device)
        return Message(self.name, AGGREGATOR, Kind.UPDATE, empty, {THETA: self.sent}), torch.stack(losses).mean().item()

    def learn(self, message: Message) -> None:
        """The model that everybody goes on from."""
        self.model = message.tensors[THETA]

    def figures(self) -> Figures:
        return Figures(self.name, THETA, str(Kind.UPDATE), self.defense.figures())

    def state(self) -> dict[str, Any]:
        return {"model": self.model, "defense": self.defense.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.model = state["model"].clone()
        self.defense.restore(state["defense"])


_SPARE_ROUNDS = 9


@options
class FederatedLr(Protocol):
    """Horizontal federated logistic regression with the Taylor-approximated loss; one row has one owner.

        l(theta) = log 2 - (1/2) y theta.x + (1/8) (theta.x)^2,   y in {-1, +1}
        u_i = -rate grad,   theta <- theta + (1/k) sum_i u_i

    parties: k participants a, b, c, ...; training rows are dealt out to them evenly, at random. The last one is curious: it
    sees every model and its own updates. batch_size: rows of a batch; `auto`: as many as the dataset states, or 8. mode:
    `synchronous` (one batch a round) or `asynchronous` (`batches` local steps, one a batch, and then the difference is
    sent). reduction: sum or mean of a batch's gradients. intercept: a column of ones before the features. aggregation:
    `sum_only`, where only the sum of all updates can be read (homomorphic or secure aggregation, or a server that all
    trust), so the curious one sees the sum of the others'; `plain`, where it sees the update of each (it is the server, or
    in league with it).

    A participant divides its rows into batches once, and uses each batch once in an epoch. Only the curious one takes new
    batches in each epoch, so that the models of the rounds do not lie on one line. Categorical columns become one-hot. All
    computations are in float64, from theta = 0. The options of model, optimizer and batch_size have no effect.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019.
    """

    roles = frozenset({Role.PARTICIPANT})

    parties: Annotated[Count, Range(2, len(ascii_lowercase))] = 2
    batch_size: Rows | Literal["auto"] = "auto"
    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    batches: Steps = 1
    rate: Rate = 0.1
    reduction: Literal["mean", "sum"] = "mean"
    intercept: bool = False
    aggregation: Literal["sum_only", "plain"] = "sum_only"

    def __post_init__(self) -> None:
        if self.mode == "synchronous" and self.batches != 1:
            problem = "several local batches a round go with protocol.mode=asynchronous"
            raise UserError(problem, key="batches", value=self.batches)

    def offers(self, role: Role) -> frozenset[type[Fact]]:
        return frozenset({Updates, PartyFeatures}) if role is Role.PARTICIPANT else frozenset()

    def round_size(self, wanted: int | Literal["auto"], data: TrainTest) -> int:
        """Rows of a round: of every participant `batches` batches."""
        if wanted != "auto":
            problem = "rows of a batch are set by protocol.batch_size where the protocol is federated_lr"
            raise UserError(problem, key="batch_size", value=wanted)
        size = self.batch_size if self.batch_size != "auto" else data.facts.get("batch_rows", 8)
        need = self.parties * self.batches * size
        if need > len(data.train):
            raise UserError(
                f"{self.parties} participants with {self.batches} batch(es) of {size} rows need {need} training rows, and "
                f"there are {len(data.train)}; take fewer parties, batches or rows a batch, or more data",
                key="protocol.batch_size",
                value=self.batch_size,
            )
        return need

    def choose_epochs(self, wanted: int | Literal["auto"], data: TrainTest) -> int:
        """`auto`: d + 10, a few more than the d + 1 rounds of one batch that recovering alpha and beta takes."""
        return width(data.train, intercept=self.intercept) + 1 + _SPARE_ROUNDS if wanted == "auto" else wanted

    def start(self, setup: ProtocolSetup) -> "FederatedLrSession":
        for name in setup.adversaries:
            raise UserError("it cheats in protocol=split, and no one here has its role", key="adversary", value=name)
        if setup.table.classes != 2:
            raise UserError(
                f"it tells two classes apart, and the labels have {setup.table.classes}; a dataset with the option "
                "`positive` makes two of them",
                key="protocol",
                value="federated_lr",
            )
        return FederatedLrSession(self, setup)


class FederatedLrSession(Session):
    """One round: every participant steps, the server adds the mean of the steps, everybody gets the new model.

    model: (d,) at the server, which owns nothing else.
    """

    def __init__(self, protocol: FederatedLr, setup: ProtocolSetup):
        self.intercept, self.wire, self.rows = protocol.intercept, setup.wire, setup.rows
        self.columns = setup.columns
        self.plain = protocol.aggregation == "plain"
        names = ascii_lowercase[: protocol.parties]
        size = setup.round_size // (protocol.parties * protocol.batches)
        self.model = torch.zeros(width(setup.table, intercept=self.intercept), dtype=torch.float64, device=setup.device)
        rule, draws = (protocol.rate, protocol.reduction), partial(setup.generators.on, setup.device)
        self.participants = [
            Participant(name, self.model, *rule, setup.defense(), draws(f"defense/{name}")) for name in names
        ]
        self._dealt = deal(setup.table, len(names), setup.generators["participants"])
        schema = schema_of(self._dealt, intercept=self.intercept)
        whole = None if (withholds := self.participants[0].defense.withheld()) is None else not withholds
        self.rules = Rules(protocol.parties, protocol.rate, protocol.reduction, protocol.batches, size, schema, whole)

    @property
    def curious(self) -> str:
        return self.participants[-1].name

    def batches(self, table: EncodedRows, batch_size: int, rng: torch.Generator, epoch: int) -> "FederatedRounds":
        orders = []
        for participant, rows in zip(self.participants, self._dealt, strict=True):
            places = torch.arange(len(rows))
            orders.append(participant.defense.order(places, Context(rows.ids, None, epoch, rng)))
        curious = torch.randperm(len(orders[-1]), generator=rng)  # the curious one takes new batches
        return FederatedRounds([rows.ids for rows in self._dealt], [*orders[:-1], curious], batch_size)

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        before, updates, losses = self.model, [], []
        shares = self._shares(ids)
        for participant, rows in zip(self.participants, shares, strict=True):
            x, y = self.design(rows), signs(rows.labels)
            batches = zip(x.split(self.rules.batch_size), y.split(self.rules.batch_size), strict=True)
            message, loss = participant.step(list(batches), rows.ids, epoch)
            updates.append(self.wire.send(message))
            losses.append(loss)
        self.model = before + torch.stack([update.tensors[THETA] for update in updates]).mean(dim=0)
        for participant, update in zip(self.participants, updates, strict=True):
            message = Message(AGGREGATOR, participant.name, Kind.MODEL, update.ids, {THETA: self.model.clone()})
            participant.learn(self.wire.send(message))
        labels = torch.cat([rows.labels for rows in shares])
        training = Training(sum(losses) / len(losses), 0.0, ids, labels)
        known = shares[-1].ids
        if not watch:
            return Round(epoch, step, known, training=training)
        curious = self.participants[-1]
        x = self.design(shares[-1])
        received = {p.name: p.sent.clone() for p in self.participants[:-1]} if self.plain else {}
        facts: dict[type[Fact], Fact] = {
            Updates: Updates(self.rules, before.clone(), curious.sent.clone(), curious.model.clone(), received),
            PartyFeatures: PartyFeatures(x, x.new_empty((len(x), 0))),
        }
        private = self._private(shares) if Updates in watch else None
        return Round(epoch, step, known, facts={curious.name: facts}, training=training, private=private)

    def predict(self, ids: Tensor) -> Tensor:
        return (self.design(self.rows.rows(ids)) @ self.model)[:, None].float()

    def roles(self) -> Mapping[Role, tuple[str, ...]]:
        return {Role.PARTICIPANT: (self.curious,)}

    def cut_layers(self) -> dict[str, tuple[str, ...]]:
        return {participant.name: (THETA,) for participant in self.participants}

    def layers(self) -> dict[str, tuple[str, ...]]:
        return self.cut_layers()

    def _private(self, shares: Sequence[VerticalTable]) -> PrivateBatch:
        """The rows of the others, which an attack tries to rebuild."""
        rows = self.rows.rows(torch.cat([share.ids for share in shares[:-1]]))
        owner = "+".join(participant.name for participant in self.participants[:-1])
        steps = torch.arange(self.rules.batches).repeat_interleave(self.rules.batch_size).repeat(self.rules.parties - 1)
        return PrivateBatch(owner, self.design(rows), signs(rows.labels), steps.to(rows.ids.device))

    def design(self, rows: VerticalTable) -> Tensor:
        """(n, d) float64: a column of ones where asked for, numeric columns, one-hot categorical ones, party by party."""
        parts = [torch.ones(len(rows), int(self.intercept), dtype=torch.float64, device=rows.ids.device)]
        for block in rows.features.values():
            parts.append(block.numeric.double())
            for j, size in enumerate(block.columns.cardinalities):
                parts.append(F.one_hot(block.categorical[:, j].long(), size).double())
        return torch.cat(parts, dim=1)

    def figures(self) -> list[Figures]:
        return [figures for figures in (participant.figures() for participant in self.participants) if figures.values]

    def state(self) -> dict[str, Any]:
        return {AGGREGATOR: self.model, "participants": {p.name: p.state() for p in self.participants}}

    def restore(self, state: dict[str, Any]) -> None:
        self.model = state[AGGREGATOR].clone()
        for participant in self.participants:
            participant.restore(state["participants"][participant.name])

    def _shares(self, ids: Tensor) -> list[VerticalTable]:
        """Each participant's rows of a round, looked up among its own."""
        size = self.rules.batches * self.rules.batch_size
        rows = self.rows.rows(ids)
        return [rows.rows(slice(i * size, (i + 1) * size)) for i in range(self.rules.parties)]
