"""Federated logistic regression: participants with rows of their own share the steps that they take on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from vflbench.data.rows import EncodedRows, TrainTest
from vflbench.data.table import VerticalTable, join
from vflbench.defenses.base import Figures
from vflbench.errors import UserError
from vflbench.messages.transcript import Knowledge, OwnFeatures, Rules, Seat, Transcript, Updates
from vflbench.options import Count, Positive, options
from vflbench.protocols.base import Outcome, Private, Protocol, Rounds, Session, Setting
from vflbench.protocols.logistic import SERVER, Participant, Server

_MOST_COLUMNS = 4096
_SPARE_ROUNDS = 9


@options
class FederatedLr(Protocol):
    """Horizontal federated logistic regression with the Taylor-approximated loss; one row has one owner.

        l(theta) = log 2 - (1/2) y theta.x + (1/8) (theta.x)^2,   y in {-1, +1}
        u_i = -rate grad,   theta <- theta + (1/k) sum_i u_i

    parties: k participants a, b, c, ...; training rows are dealt out to them evenly, at random. The last one is curious: it
    sees every model and its own updates. batch_size: rows of a batch, `auto` as many as the dataset says, or 8. mode:
    `synchronous` (one batch a round) or `asynchronous` (`batches` local steps, one a batch, and then the difference is
    sent). reduction: of a batch's gradients. intercept: a column of ones before the features.

    A participant cuts its rows into batches once, and meets each of them once an epoch; only the curious one takes new
    batches in each epoch, which keeps the models of the rounds from lying on one line. Categorical columns become one-hot.
    All in float64, from theta = 0. The options of model, optimizer and batch_size play no part.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019.
    """

    hooks = ("order", "update")

    parties: Annotated[int, Field(ge=2, le=len(ascii_lowercase))] = 2
    batch_size: Count | Literal["auto"] = "auto"
    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    batches: Count = 1
    rate: Positive = 0.1
    reduction: Literal["mean", "sum"] = "mean"
    intercept: bool = False

    def __post_init__(self) -> None:
        if self.mode == "synchronous" and self.batches != 1:
            problem = "several local batches a round go with protocol.mode=asynchronous"
            raise UserError(problem, key="batches", value=self.batches)

    def offers(self, seat: Seat) -> frozenset[Knowledge]:
        known = {Knowledge.UPDATES, Knowledge.FEATURES, Knowledge.PRIOR}
        return frozenset(known) if seat is Seat.PARTICIPANT else frozenset()

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

    def start(self, setting: Setting) -> Session:
        if setting.table.classes != 2:
            raise UserError(
                f"it tells two classes apart, and the labels have {setting.table.classes}; a dataset with the option "
                "`positive` makes two of them",
                key="protocol",
                value="federated_lr",
            )
        return FederatedLrSession(self, setting)


class FederatedLrSession(Session):
    """One round: every participant steps, the server adds the mean of the steps, everybody gets the new model."""

    def __init__(self, protocol: FederatedLr, setting: Setting):
        self.intercept, self.wire = protocol.intercept, setting.wire
        names = ascii_lowercase[: protocol.parties]
        size = setting.round_size // (protocol.parties * protocol.batches)
        self.rules = Rules(protocol.parties, protocol.rate, protocol.reduction, protocol.batches, size)
        theta = torch.zeros(width(setting.table, intercept=self.intercept), dtype=torch.float64, device=setting.device)
        self.server = Server(theta)
        self.participants = [
            Participant(
                name,
                theta,
                protocol.rate,
                protocol.reduction,
                setting.defense(),
                setting.generators.on(setting.device, f"defense/{name}"),
            )
            for name in names
        ]
        self._rows = _dealt(setting.table, len(names), setting.generators["participants"])

    @property
    def curious(self) -> str:
        return self.participants[-1].name

    def batches(self, table: EncodedRows, batch_size: int, rng: torch.Generator) -> "FederatedRounds":
        orders = [
            p.defense.order(torch.arange(len(rows)), rng) for p, rows in zip(self.participants, self._rows, strict=True)
        ]
        own = torch.randperm(len(orders[-1]), generator=rng)  # the curious one takes new batches
        return FederatedRounds(self._rows, [*orders[:-1], own], batch_size)

    def round(self, batch: VerticalTable, transcript: Transcript | None) -> Outcome:
        before, updates, losses = self.server.model, [], []
        shares = self._shares(batch)
        for participant, rows in zip(self.participants, shares, strict=True):
            x, y = self.design(rows), _signs(rows.labels)
            batches = zip(x.split(self.rules.batch_size), y.split(self.rules.batch_size), strict=True)
            message, loss = participant.step(list(batches))
            updates.append(self.wire.send(message))
            losses.append(loss)
        for participant, message in zip(self.participants, self.server.aggregate(updates, self.wire.send), strict=True):
            participant.learn(message)
        if transcript is not None:
            curious = self.participants[-1]
            transcript.exchanged(
                curious.name, Updates(self.rules, before.clone(), curious.own.clone(), curious.model.clone())
            )
            x = self.design(shares[-1])
            transcript.held(curious.name, OwnFeatures(x, x.new_empty((len(x), 0))))
        return Outcome(sum(losses) / len(losses), 0.0, batch.labels)

    def predict(self, batch: VerticalTable) -> Tensor:
        return (self.design(batch) @ self.server.model)[:, None].float()

    def seats(self, seat: Seat) -> tuple[str, ...]:
        return (self.curious,) if seat is Seat.PARTICIPANT else ()

    def known_ids(self, batch: VerticalTable) -> Tensor:
        return self._shares(batch)[-1].ids

    def private(self, batch: VerticalTable) -> Private:
        rows = join(self._shares(batch)[:-1])
        owner = "+".join(participant.name for participant in self.participants[:-1])
        steps = torch.arange(self.rules.batches).repeat_interleave(self.rules.batch_size).repeat(self.rules.parties - 1)
        return Private(owner, self.design(rows), _signs(rows.labels), steps.to(rows.ids.device))

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
        return {SERVER: self.server.model, "participants": {p.name: p.state() for p in self.participants}}

    def restore(self, state: dict[str, Any]) -> None:
        self.server.model = state[SERVER].clone()
        for participant in self.participants:
            participant.restore(state["participants"][participant.name])

    def _shares(self, batch: VerticalTable) -> list[VerticalTable]:
        """Each participant's rows of a round."""
        size = self.rules.batches * self.rules.batch_size
        return [batch.rows(slice(i * size, (i + 1) * size)) for i in range(self.rules.parties)]


@dataclass(frozen=True)
class FederatedRounds(Rounds):
    """The rounds of one epoch: in each, of every participant the next batches, one participant after the other.

    rows: of each participant; orders: (n,) places, in which it cuts them. What doesn't fill a round waits for another epoch.
    """

    rows_of: Sequence[VerticalTable]
    orders: Sequence[Tensor]
    batch_size: int

    @property
    def share(self) -> int:
        return self.batch_size // len(self.rows_of)

    def __len__(self) -> int:
        return min(map(len, self.orders)) // self.share

    def __iter__(self) -> Iterator[VerticalTable]:
        for start in range(0, len(self) * self.share, self.share):
            places = [order[start : start + self.share] for order in self.orders]
            yield join([rows.rows(own.to(rows.ids.device)) for rows, own in zip(self.rows_of, places, strict=True)])


def width(table: VerticalTable | EncodedRows, *, intercept: bool) -> int:
    """d: numeric columns, one for each category, and one for the intercept."""
    found = sum(len(columns.numeric) + sum(columns.cardinalities) for columns in table.columns.values()) + intercept
    if found > _MOST_COLUMNS:
        raise UserError(
            f"its columns, categories one-hot, make {found} features, and federated_lr takes {_MOST_COLUMNS} at most; name "
            "fewer of them in dataset.parties, or share rare categories by dataset.min_count",
            key="dataset",
        )
    return found


def _dealt(table: VerticalTable | EncodedRows, parties: int, rng: torch.Generator) -> list[VerticalTable]:
    """Rows of each participant: even shares of a random order."""
    rows = table.all() if isinstance(table, EncodedRows) else table
    order = torch.randperm(len(rows), generator=rng).to(rows.ids.device)
    share = len(rows) // parties
    return [rows.rows(order[i * share : (i + 1) * share]) for i in range(parties)]


def _signs(labels: Tensor) -> Tensor:
    """Classes 0 and 1 as -1 and +1, float64."""
    return labels.double() * 2 - 1
