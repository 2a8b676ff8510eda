"""Participants, who train one logistic regression on rows of their own each, and the server between them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context
from vflbench.defenses.chain import Chain, Figures
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind, Message

SERVER = "server"
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


def gradient(theta: Tensor, x: Tensor, y: Tensor, reduction: Literal["sum", "mean"]) -> Tensor:
    """(d,) the gradient of `taylor_loss`, summed over rows or their mean: X^T X theta / 4 - X^T y / 2."""
    total = x.T @ (x @ theta / 4 - y / 2)
    return total if reduction == "sum" else total / len(x)


class Participant:
    """Owns rows, and shares steps. model: (d,) as it knows it. sent: (d,) its last update."""

    def __init__(
        self,
        name: str,
        model: Tensor,
        rate: float,
        reduction: Literal["sum", "mean"],
        defense: Chain,
        rng: torch.Generator,
    ):
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
        columns = OwnColumns(rows, rows.new_empty((len(rows), 0)))
        self.sent = self.defense.update(theta - self.model, Context(ids, columns, epoch, self.rng))
        empty = torch.empty(0, dtype=torch.int64, device=theta.device)
        return Message(self.name, SERVER, Kind.UPDATE, empty, {THETA: self.sent}), torch.stack(losses).mean().item()

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


class Server:
    """Owns nothing but the model; adds the mean of what the participants send."""

    def __init__(self, model: Tensor):
        self.model = model

    def aggregate(self, updates: Sequence[Message], send: Callable[[Message], Message]) -> list[Message]:
        """theta <- theta + (1/k) sum_i u_i, to every participant. Returns what each one gets."""
        self.model = self.model + torch.stack([update.tensors[THETA] for update in updates]).mean(dim=0)
        ids = updates[0].ids
        return [send(Message(SERVER, u.sender, Kind.MODEL, ids, {THETA: self.model.clone()})) for u in updates]
