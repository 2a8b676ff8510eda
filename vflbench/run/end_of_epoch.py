"""The rows that attacks are asked about at the end of an epoch, and attacks that could not be asked at all."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vflbench.generators import Generators
from vflbench.messages.threat import Seat
from vflbench.run.canaries import Canaries
from vflbench.run.known_rows import FollowedRows, Lookup, Population
from vflbench.run.posts import Hints, Post

ASKED_ROWS = 20_000
"""Training rows about which an attack is asked at the end of an epoch, if it follows none of its own, at most."""


class RowsAtTheEnd:
    """Rows that attacks follow through the run; and for the others, rows of the audited batches and a sample beside them.

    From each audited batch come its first rows, as many as leave room for the other batches, and then rows of the sample
    until there are `ASKED_ROWS`. ids: (n,) of all of them, the followed ones first.
    """

    def __init__(
        self,
        posts: Sequence[Post],
        train: Population,
        rows: Lookup,
        generators: Generators,
        canaries: Canaries,
        *,
        asks: bool = False,
        samples: bool = True,
    ):
        """asks: choose them even if no attack is asked about them. samples: choose rows of no audited batch as well."""
        most = max((post.attack.follows for post in posts), default=0)
        self.followed = FollowedRows(train, most, generators["followed rows"], canaries)
        self._asks = asks or any(map(asked_about_others, posts))
        sample = FollowedRows(train, ASKED_ROWS if self._asks and samples else 0, generators["sampled rows"], canaries)
        self._sample, self._labels_of = sample.ids, rows.labels
        self._audited = self._sample[:0]
        self._quota = ASKED_ROWS

    def begin_epoch(self, audited: int) -> None:
        """audited: the number of batches that will be audited."""
        self._quota = max(1, ASKED_ROWS // max(1, audited))

    def end_epoch(self) -> None:
        self._audited = self._sample[:0]

    def meet(self, ids: Tensor) -> None:
        """The rows of an audited batch."""
        if self._asks:
            self._audited = torch.cat([self._audited, ids[: self._quota].to(self._audited.device)])

    @property
    def asked(self) -> Tensor:
        """(n,) ids of the rows about which attacks are asked that follow none, each of them once."""
        others = self._sample[~torch.isin(self._sample, self._audited)]
        return torch.cat([_first_of_each(self._audited), others])[:ASKED_ROWS]

    @property
    def ids(self) -> Tensor:
        return torch.cat([self.followed.ids, self.asked])

    def of(self, post: Post) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and labels of the rows that an attack is asked about, and their places in `ids`."""
        first, ids = post.attack.follows, self.followed.ids
        if first:
            is_met = self.followed.is_met[:first]
            return *self.followed.met(first), torch.arange(len(is_met), device=ids.device)[is_met]
        asked = self.asked if asked_about_others(post) else ids[:0]
        labels = self._labels_of(asked) if len(asked) else self.followed.labels[:0]
        return asked, labels, torch.arange(len(asked), device=ids.device) + len(ids)

    def state(self) -> dict[str, Any]:
        return {"met": self.followed.is_met, "audited": self._audited}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.followed.is_met.copy_(state["met"])
        self._audited = state["audited"].clone().to(self._sample.device)


def _first_of_each(ids: Tensor) -> Tensor:
    """The ids in their order, without those that came before: left-over rows of an epoch may come twice."""
    values, order = ids.sort(stable=True)
    is_first = torch.ones_like(values, dtype=torch.bool)
    is_first[1:] = values[1:] != values[:-1]
    return ids[order[is_first].sort().values]


def asked_about_others(post: Post) -> bool:
    """Whether it answers at the end of an epoch and follows no rows; a participant's rows are its own."""
    at_a_party = post.threat.seat in (Seat.NON_LABEL, Seat.LABEL)
    return at_a_party and post.attack.answers_epochs() and not post.attack.follows


class Shortage:
    """Attacks that could not be asked about a batch, because it has too few rows that they could be given the class of."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def note(self, post: Post, hints: Hints) -> None:
        """One more batch, or group of rows."""
        most = max(len(hints.positives), self._counts.get(post.name, (0, 0))[1])
        self._counts[post.name] = (post.threat.hints, most)

    def reasons(self, scored: Collection[str]) -> dict[str, str]:
        """Attack -> why it could not be scored, except for those that were."""
        return {
            name: f"it needs {needed} known positives of each batch or group of rows, and none had more than {most}"
            if needed
            else "it needs a known row of each class in each batch, and no batch had one"
            for name, (needed, most) in self._counts.items()
            if name not in scored
        }

    def state(self) -> dict[str, Any]:
        return {name: list(counts) for name, counts in self._counts.items()}

    def restore(self, state: Mapping[str, Sequence[int]]) -> None:
        self._counts = {name: (needed, most) for name, (needed, most) in state.items()}
