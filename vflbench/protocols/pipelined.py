"""Split learning in which each embedding is asked for one batch early, while the label party works on the one before."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflbench.data.rows import EncodedRows
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError
from vflbench.messages.message import Kind, Message
from vflbench.messages.message_content import Receiving, Sending
from vflbench.protocols.base import Rounds
from vflbench.protocols.remote_party import RemoteParty
from vflbench.protocols.split_session import SplitSession


@dataclass
class Ahead:
    """A batch whose embeddings are on their way. messages: of each party, or what will bring it."""

    ids: Tensor
    messages: list[Message | Future[Message]]

    def arrived(self) -> list[Message]:
        return [message.result() if isinstance(message, Future) else message for message in self.messages]


class Foreseen:
    """The rounds of an epoch; `coming` is the one after that which was taken last, None after the last."""

    def __init__(self, rounds: Rounds):
        self._rounds = rounds
        self.coming: Tensor | None = None

    @property
    def batch_size(self) -> int:
        return self._rounds.batch_size

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[Tensor]:
        rounds = iter(self._rounds)
        self.coming = next(rounds, None)
        while self.coming is not None:
            ids, self.coming = self.coming, next(rounds, None)
            yield ids


class PipelinedSession(SplitSession):
    """One round: the embeddings of the next batch are asked for before any party learns from this one.

        h_t = f(w_{t-1}; x_t),   w_{t+1} = w_t - step(J_f(w_t; x_t)^T dL_t / d h_t)

    w_t: the weights of a bottom when the label party answers batch t; the first batch of an epoch has no delay.
    """

    _foreseen: Foreseen | None = None
    _ahead: Ahead | None = None

    def refuse_unfit(self) -> None:
        """Raises UserError for what needs an answer before the next batch is embedded."""
        guarded = [p.name for p in self.parties if (p.announced.guarded if isinstance(p, RemoteParty) else p.guards.named)]
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
        here, self._ahead = self._ahead or self._asked(ids, epoch), None
        if not torch.equal(here.ids, ids):
            raise RuntimeError("the batch is not the one that was foreseen")
        sent = here.arrived()
        coming = None if self._foreseen is None else self._foreseen.coming
        if coming is not None:
            self._ahead = self._asked(coming, epoch)
        return sent

    def _asked(self, ids: Tensor, epoch: int) -> Ahead:
        return Ahead(ids, [party.embed_ahead(ids, epoch) for party in self.parties])

    def _learn(self, gradients: Mapping[str, Message], *, watched: bool) -> tuple[str, ...]:
        notes: tuple[str, ...] = ()
        for party in self.parties:
            gradient = gradients.get(party.name)
            if isinstance(party, RemoteParty):
                party.learn_behind(gradient, watched=watched)
            else:
                party.catch_up(watched=watched)
                notes += () if gradient is None else party.learn(gradient)
        if watched:
            self._each(lambda party: party.settle(), list(self.remote().values()))
        return notes

    def state(self) -> dict[str, Any]:
        ahead = self._ahead
        kept = None
        if ahead is not None:
            messages: Sequence[Message] = ahead.arrived()
            kept = [ahead.ids, [Sending().content(message) for message in messages]]
        return {**super().state(), "ahead": kept}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._ahead = None
        if state["ahead"] is not None:
            ids, contents = state["ahead"]
            ids = ids.clone().to(self._device)
            messages: list[Message | Future[Message]] = [
                Receiving().message(content, party.name, LABEL_PARTY, Kind.EMBEDDING, ids, _shapes(content))
                for party, content in zip(self.parties, contents, strict=True)
            ]
            self._ahead = Ahead(ids, messages)


def _shapes(content: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Rows and width of each layer of a message that this process has written."""
    packed = {layer: (described["shape"][0], described["width"]) for layer, described in content["encoded"].items()}
    return {layer: packed.get(layer) or tuple(content["tensors"][layer].shape) for layer in content["order"]}
