"""The rows that attacks are asked about at the end of an epoch, and attacks that could not be asked at all."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vflbench.generators import Generators
from vflbench.messages.threat import Seat
from vflbench.run.canaries import Canaries
from vflbench.run.known_rows import FollowedRows, Population
from vflbench.run.posts import Hints, Post

SAMPLED_ROWS = 4096
"""Training rows, spread evenly, about which an attack is asked at the end of an epoch, if it follows none of its own."""


class RowsAtTheEnd:
    """Rows that attacks follow through the run, and a sample for attacks that answer at the end without following any.

    ids: (n,) of all of them, the followed ones first.
    """

    def __init__(self, posts: Sequence[Post], train: Population, generators: Generators, canaries: Canaries):
        most = max((post.attack.follows for post in posts), default=0)
        self.followed = FollowedRows(train, most, generators["followed rows"], canaries)
        count = SAMPLED_ROWS if any(map(asked_about_a_sample, posts)) else 0
        self.sample = FollowedRows(train, count, generators["sampled rows"], canaries)
        self.ids = torch.cat([self.followed.ids, self.sample.ids])

    def of(self, post: Post) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and labels of the rows that an attack is asked about, and their places in `ids`."""
        places = torch.arange(len(self.ids), device=self.ids.device)
        first = post.attack.follows
        if first:
            is_met = self.followed.is_met[:first]
            return *self.followed.met(first), places[: len(is_met)][is_met]
        if asked_about_a_sample(post):
            return self.sample.ids, self.sample.labels, places[len(self.followed.ids) :]
        return self.ids[:0], self.sample.labels[:0], places[:0]


def asked_about_a_sample(post: Post) -> bool:
    """Whether it answers at the end of an epoch and follows no rows; a participant's rows are its own."""
    at_a_party = post.threat.seat in (Seat.NON_LABEL, Seat.LABEL)
    return at_a_party and post.attack.answers_epochs() and not post.attack.follows


def unanswered(attacks: Sequence[str], scored: Collection[str]) -> dict[str, str]:
    """Attack -> why it has no score, for those that were asked and have none."""
    reason = "it gave no answer that counts: none at all, or about rows that are known, are canaries or are of one class"
    return dict.fromkeys((name for name in attacks if name not in scored), reason)


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
