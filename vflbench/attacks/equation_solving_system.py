"""The linear equations between other parties' columns and the joint model's logits."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from vflbench.attacks.joint_model import FlatModel, one_hot
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns

_PROBES = 64  # points at which it is tested whether the model is affine; half of them are corners
_AFFINE = 1e-9  # relative error of float64 that passes for affine
_MOST = 20_000  # unknown numbers

ROUNDING = 2.0**-24
"""Largest relative error of one operation of float32."""


@dataclass(frozen=True)
class System:
    """Logits of a row as an affine function of what is unknown.

        z_i = offset_i + effects u_i,   u_i = (numeric columns, one-hot vectors of categorical ones)

    effects: (outputs, unknowns) float64. offsets: (n, outputs). numeric: number of numeric columns. cardinalities: of the
    categorical ones. rounding: bound of the error of a float32 logit about this function, for model=logistic.
    """

    effects: Tensor
    offsets: Tensor
    numeric: int
    cardinalities: tuple[int, ...]
    rounding: float

    @classmethod
    def of(cls, model: FlatModel, own: OwnColumns, rng: torch.Generator) -> Self | None:
        """The equations of a model in float64; None if it is not affine at any of 64 random points, half of them corners.

        own: the label party's columns of the rows. Raises UserError if there are more than 20,000 unknowns.
        """
        k, sizes = model.columns, tuple(model.cardinalities)
        if k + sum(sizes) > _MOST:
            problem = (
                f"the other parties hold {k} numeric columns and {sum(sizes)} ids together; it solves for {_MOST} at most"
            )
            raise UserError(problem, key="attack", value="equation_solving")
        device = own.numeric.device
        eye = torch.eye(k, dtype=torch.float64, device=device)
        x = torch.cat([torch.zeros(1, k, dtype=torch.float64, device=device), eye, eye.new_zeros(sum(sizes), k)])
        ids = torch.zeros(len(x), len(sizes), dtype=torch.int32, device=device)
        first = 1 + k
        for j, size in enumerate(sizes):
            ids[first : first + size, j] = torch.arange(size, dtype=torch.int32, device=device)
            first += size
        nothing = torch.zeros(1, dtype=torch.int64, device=device)
        at = model.in_parts(x, ids, own.rows(nothing.expand(len(x))))
        effects = (at[1:] - at[:1]).T
        n = len(own.numeric)
        offsets = model.in_parts(x[:1].expand(n, -1), ids[:1].expand(n, -1), own)
        made = cls(effects, offsets, k, sizes, 0.0)
        if not made._holds(model, own, rng):
            return None
        operations = max(model.numeric, default=0) + own.numeric.shape[1] + len(sizes) + len(model.parties) + 4
        size_of = made.size + offsets.abs().amax() + _own_size(model, own)
        return cls(effects, offsets, k, sizes, float(operations * ROUNDING * size_of))

    def _holds(self, model: FlatModel, own: OwnColumns, rng: torch.Generator) -> bool:
        device = own.numeric.device
        x = torch.rand(_PROBES, self.numeric, generator=rng, device=device, dtype=torch.float64)
        x[_PROBES // 2 :] = x[_PROBES // 2 :].round()
        ids = [torch.randint(size, (_PROBES,), generator=rng, device=device) for size in self.cardinalities]
        drawn = torch.stack(ids, dim=1).int() if ids else torch.empty(_PROBES, 0, dtype=torch.int32, device=device)
        rows = torch.randint(len(own.numeric), (_PROBES,), generator=rng, device=device)
        true = model.in_parts(x, drawn, own.rows(rows))
        affine = self.offsets[rows] + self.unknowns(x, drawn) @ self.effects.T
        return bool((true - affine).abs().amax() <= _AFFINE * (1 + self.size + true.abs().amax()))

    @property
    def size(self) -> Tensor:
        """The largest sum of absolute terms of a logit over the box."""
        blocks = self.effects[:, self.numeric :].split(list(self.cardinalities), dim=1) if self.cardinalities else ()
        largest = self.effects[:, : self.numeric].abs().sum(dim=1)
        return sum((block.abs().amax(dim=1) for block in blocks), largest).amax()

    def unknowns(self, x: Tensor, ids: Tensor) -> Tensor:
        """(n, unknowns) float64 of columns."""
        return torch.cat([x.double(), one_hot(ids, self.cardinalities)], dim=1)

    def free(self, rows: Tensor) -> Tensor:
        """The same equations (r, unknowns) without what follows from the others: the first id of each categorical column,
        whose effect is 0. Their rank is the number of directions that the logits tell.
        """
        keep = torch.ones(rows.shape[1], dtype=torch.bool, device=rows.device)
        first = self.numeric
        for size in self.cardinalities:
            keep[first] = False
            first += size
        return rows[:, keep]

    def sums(self) -> Tensor:
        """(c, unknowns): each one-hot vector adds up to 1."""
        rows = self.effects.new_zeros(len(self.cardinalities), self.effects.shape[1])
        first = self.numeric
        for j, size in enumerate(self.cardinalities):
            rows[j, first : first + size] = 1.0
            first += size
        return rows


def _own_size(model: FlatModel, own: OwnColumns) -> Tensor:
    """The largest sum of absolute terms that the label party's own numeric columns add to a logit."""
    k, device = own.numeric.shape[1], own.numeric.device
    x = torch.zeros(1 + k, model.columns, dtype=torch.float64, device=device)
    ids = torch.zeros(1 + k, len(model.cardinalities), dtype=torch.int32, device=device)
    numeric = torch.cat([own.numeric.new_zeros(1, k), torch.eye(k, dtype=own.numeric.dtype, device=device)])
    at = model.in_parts(x, ids, OwnColumns(numeric, own.categorical[:1].expand(1 + k, -1)))
    return (at[1:] - at[:1]).abs().sum(dim=0).amax() + at[0].abs().amax()
