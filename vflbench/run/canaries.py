"""Canaries: training rows whose label is a fair coin, by which a guarantee about labels is tested."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.data.rows import EncodedRows
from vflbench.metrics.canary import Guesses


class Canaries:
    """Some training rows get, before any defense, a label that is class 0 or another class with equal chance.

    Label DP bounds what messages reveal about a row's label given everything else. The data's own labels can't show whether
    attacks stay within that bound, because features predict them too, to any extent, without breaking it. A canary's label
    depends on no feature, so whatever an attack learns about it came through the mechanism. The price: to the model, these
    labels are noise.

    Beside the attacks, one reader sees in each epoch the labels that the label party trains on. All messages are computed
    from these, so no attacker should know more. The reader guesses the class that it saw more often, of the two possible
    ones, and abstains at a tie. A mechanism that leaks the label in another way is left to the attacks.
    """

    def __init__(self, train: EncodedRows, count: int, rng: torch.Generator):
        """train: rows to choose from, spread evenly. count: how many; 0 for none."""
        ids = torch.empty(0, dtype=torch.int64)
        if count:
            candidates = train.sample(count).ids.cpu()
            ids = candidates[torch.randperm(len(candidates), generator=rng)[:count]].sort().values
        is_positive = torch.randint(2, (len(ids),), generator=rng).bool()
        other = torch.randint(1, train.classes, (len(ids),), generator=rng)
        self.ids, self.other = ids.to(train.device), other.to(train.device)
        self.labels = torch.where(is_positive, other, 0).to(train.device)
        self.votes = torch.zeros(len(ids), dtype=torch.int64, device=train.device)

    @classmethod
    def recorded(cls, ids: Tensor, labels: Tensor) -> "Canaries":
        """Those of a recording. ids: (n,); labels: (n,) their coins."""
        canaries = cls.__new__(cls)
        order = ids.argsort()
        canaries.ids, canaries.labels = ids[order], labels[order]
        canaries.other = canaries.labels.clamp_min(1)
        canaries.votes = torch.zeros(len(ids), dtype=torch.int64)
        return canaries

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that a user must not miss."""
        if not len(self):
            return ()
        return (
            f"the labels of {len(self):,} training rows are replaced by fair coins (canaries), to check how much of a label "
            "leaks; audit.canaries=0 trains on all labels as they are, and checks nothing",
        )

    def among(self, ids: Tensor) -> Tensor:
        """(n,) bool: which of these rows are canaries."""
        return self._find(ids)[0]

    def planted(self, ids: Tensor, labels: Tensor) -> Tensor:
        """(n,) labels of these rows, with the coins in place of canaries' own."""
        if not len(self):
            return labels
        is_canary, place = self._find(ids)
        return torch.where(is_canary, self.labels[place], labels)

    def read(self, ids: Tensor, trained_on: Tensor) -> None:
        """The label party trained on these (n,) labels."""
        if len(self):
            is_canary, place = self._find(ids)
            place, seen = place[is_canary], trained_on[is_canary]
            self.votes[place] += (seen == self.other[place]).long() - (seen == 0).long()

    def guesses(self) -> Guesses:
        """The reader's guesses from all epochs so far."""
        high, low, positive = self.votes > 0, self.votes < 0, self.labels != 0
        return Guesses(*(int(rows.sum()) for rows in (high, high & positive, low, low & ~positive)))

    def _find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        if not len(self):
            return torch.zeros_like(ids, dtype=torch.bool), torch.zeros_like(ids)
        place = torch.searchsorted(self.ids, ids).clamp_(max=len(self.ids) - 1)
        return self.ids[place] == ids, place

    def state(self) -> dict[str, Any]:
        return {"votes": self.votes}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.votes.copy_(state["votes"])
