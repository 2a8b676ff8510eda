"""What is guessed of other parties' columns before any equation is solved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflbench.attacks.joint_model import FlatModel, one_hot
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.messages.label_facts import Labels
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.view import View

SPREAD = 12**-0.5
"""Standard deviation of a number of which nothing is known but that it lies in [0, 1]."""

_SHRINK = 1e-2  # of the mean variance, added to a covariance
_MOST = 3000  # numbers with a covariance


@dataclass(frozen=True)
class Guess:
    """mean: (n, u) float64, of each row. covariance: (u, u), or None where all numbers count alike."""

    mean: Tensor
    covariance: Tensor | None = None

    def rows(self, index: Tensor) -> Guess:
        """Of these rows."""
        return Guess(self.mean[index], self.covariance)

    def columns(self, count: int) -> Guess:
        """Of the first so many unknowns."""
        return Guess(self.mean[:, :count], None if self.covariance is None else self.covariance[:count, :count])

    def times(self, rows: Tensor) -> Tensor:
        """covariance rows^T, (..., u, r); rows: (..., r, u)."""
        return rows.mT if self.covariance is None else self.covariance @ rows.mT

    @property
    def spread(self) -> float:
        """By which distances are to be multiplied, to be in the units of a column."""
        return SPREAD if self.covariance is None else 1.0


def guess_of(prior: str, model: FlatModel, own: OwnColumns, view: View, rows: int) -> Guess:
    """A guess of each row.

    zero; middle: 1/2, and of a categorical column the same share for each id; mean of auxiliary rows; class_mean: of
    those of its class; normal: their mean given the own columns and the class, by a linear regression, and the covariance
    about it.

    own: of the rows that are guessed. rows: of the auxiliary ones, at most.
    """
    sizes, n = model.cardinalities, len(own.numeric)
    if prior in ("zero", "middle"):
        is_half = float(prior == "middle")
        parts = [own.numeric.new_full((n, model.columns), is_half / 2, dtype=torch.float64)]
        parts += [own.numeric.new_full((n, size), is_half / size, dtype=torch.float64) for size in sizes]
        return Guess(torch.cat(parts, dim=1))
    known = view[Auxiliary]
    numeric, ids = model.joined(known.columns)
    x = torch.cat([numeric[:rows].double(), one_hot(ids[:rows], sizes)], dim=1)
    if not len(x):
        raise UserError("there are no auxiliary rows", key="attack.equation_solving.prior", value=prior)
    mean = x.mean(dim=0)
    if prior == "mean":
        return Guess(mean.expand(n, -1))
    classes, theirs = view[Labels].classes[:n].long(), known.labels[:rows].long().to(x.device)
    if prior == "class_mean":
        means = {k: x[theirs == k] for k in classes.unique().tolist()}
        return Guess(torch.stack([means[k].mean(dim=0) if len(means[k]) else mean for k in classes.tolist()]))
    if x.shape[1] > _MOST:
        problem = f"a covariance of {x.shape[1]} columns and ids is too large; {_MOST} at most"
        raise UserError(problem, key="attack.equation_solving.prior", value=prior)
    count = int(torch.cat([classes, theirs]).max()) + 1
    others = [columns.numeric[:rows].double() for party, columns in known.columns.items() if party not in model.parties]
    given = torch.cat([*others, one_hot(theirs[:, None], [count])], dim=1)
    mine = torch.cat([*([own.numeric.double()] if others else []), one_hot(classes[:, None], [count])], dim=1)
    left, right = x - mean, given - given.mean(dim=0)
    slope = torch.linalg.solve(_raised(right.T @ right), right.T @ left)  # (given, u)
    left = left - right @ slope
    return Guess(mean + (mine - given.mean(dim=0)) @ slope, _raised(left.T @ left / len(x)))


def _raised(matrix: Tensor) -> Tensor:
    """With a hundredth of its mean diagonal entry added to the diagonal."""
    diagonal = matrix.diagonal()
    return matrix + torch.diag_embed((_SHRINK * diagonal.mean() + 1e-9).expand(len(diagonal)))
