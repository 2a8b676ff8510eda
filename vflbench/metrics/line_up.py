"""Is a rebuilt row nearer to its own true row than to other rows of the same class? Knowing the class doesn't help there."""

from collections.abc import Callable

import torch
from torch import Tensor

CANDIDATES = 20
"""Rows in a line-up: the true one and others of its class. By chance, a row is identified with probability 1/20."""


class LineUp:
    """For each row, its own true row among other rows of the same class, drawn at random.

        identified_i = [d(answer_i, true_i) < min_j d(answer_i, other_ij)],   other_ij of the class of i

    t candidates that share the first place count as 1/t. The true row and the others are drawn alike. So whatever is
    answered without information on the row beyond its class, however well it knows the data and this judge, is identified
    with probability 1/m among m candidates. For that, the others come from the training rows, as the true row does.

    own: (n,) ids of the true rows. labels: (n,). pool_ids, pool_labels: (p,). eligible: (n, p) bool, who may stand beside
    whom; None for all. most: the first so many rows have a line-up.
    """

    def __init__(
        self,
        own: tuple[Tensor, Tensor],
        pool: tuple[Tensor, Tensor],
        rng: torch.Generator,
        eligible: Tensor | None = None,
        most: int = 128,
    ):
        self.others: list[Tensor] = []
        """Of each row: places of the others in the pool."""
        for row, (name, label) in enumerate(zip(own[0][:most], own[1], strict=False)):
            may = (pool[1] == label) & (pool[0] != name)
            there = (may if eligible is None else may & eligible[row]).nonzero()[:, 0]
            chosen = torch.randperm(len(there), generator=rng)[: CANDIDATES - 1]
            self.others.append(there[chosen.to(there.device)])
        self.others += [torch.empty(0, dtype=torch.int64)] * (len(own[0]) - len(self.others))

    @property
    def chance(self) -> Tensor:
        """(n,) probability of being identified without any message; nan for a row with nobody beside it."""
        sizes = torch.tensor([len(others) + 1.0 for others in self.others], dtype=torch.float64)
        return torch.where(sizes > 1, 1 / sizes, torch.nan)

    def identified(self, distances: Callable[[int], Tensor]) -> Tensor:
        """(n,) 1 where the true row is nearest, a part of 1 where it shares that place, else 0; nan with nobody beside it.

        distances: row -> (1 + m,), of its answer from the true row and then from the others, 0 at least.
        """
        found = torch.full((len(self.others),), torch.nan, dtype=torch.float64)
        for row, places in enumerate(self.others):
            if len(places):
                apart = distances(row).double()
                is_nearest = apart <= apart.min() * (1 + 1e-9) + 1e-18
                found[row] = is_nearest[0].double() / is_nearest.sum()
        return found
