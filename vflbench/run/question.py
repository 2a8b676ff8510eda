"""The rows that an attack is asked about."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vflbench.errors import UserError


@dataclass(frozen=True)
class Question:
    """The rows that an attack was asked about, and what must not count.

    ids, names, labels: (n,). known: (n,) bool, rows whose label the attacker was given. canary: (n,) bool. is_batch: whether
    a whole batch was asked about, whose classes can be counted.
    """

    ids: Tensor
    names: Tensor
    labels: Tensor
    known: Tensor
    canary: Tensor
    is_batch: bool = True

    def group(self, places: Tensor) -> "Question":
        """These rows of it."""
        ids, names, labels = self.ids[places], self.names[places], self.labels[places]
        return Question(ids, names, labels, self.known[places], self.canary[places], self.is_batch)

    def places(self, names: Tensor, attack: str) -> Tensor | None:
        """Places of the rows with these names; None for all of them in order. Raises UserError, about this attack, for a
        name that was not asked about or that comes twice.
        """
        return places_of(names, self.names, attack)


def places_of(names: Tensor, asked: Tensor, attack: str) -> Tensor | None:
    """As `Question.places`. asked: (n,) names."""
    if not isinstance(names, Tensor):
        raise UserError("the ids of its answer must be a tensor of names from view.ids", key="attack", value=attack)
    if names.shape == asked.shape and torch.equal(names.to(asked.device), asked):
        return None
    ordered, order = asked.sort()
    if names.ndim == 1 and names.dtype == ordered.dtype and len(ordered):
        names = names.to(ordered.device)
        place = torch.searchsorted(ordered, names).clamp_(max=len(ordered) - 1)
        if torch.equal(ordered[place], names) and len(names.unique()) == len(names):
            return order[place]
    problem = "an answer must be about rows of the view: ids from view.ids, in any order, each of them once"
    raise UserError(problem, key="attack", value=attack)
