"""What is guessed of other parties' columns before any equation is solved."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflbench.attacks.joint_model import FlatModel, one_hot
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
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

    def rows(self, index: Tensor) -> "Guess":
        """Of these rows."""
        return Guess(self.mean[index], self.covariance)

    def columns(self, count: int) -> "Guess":
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
    """zero, middle (1/2, and of a categorical column the same share for each id), mean of auxiliary rows, or normal: their
    mean given the own columns, by a linear regression, and the covariance about it.

    own: of the rows that are guessed. rows: of the auxiliary ones, at most.
    """
    sizes, n = model.cardinalities, len(own.numeric)
    if prior in ("zero", "middle"):
        is_half = float(prior == "middle")
        parts = [own.numeric.new_full((n, model.columns), is_half / 2, dtype=torch.float64)]
        parts += [own.numeric.new_full((n, size), is_half / size, dtype=torch.float64) for size in sizes]
        return Guess(torch.cat(parts, dim=1))
    known = view[Auxiliary].columns
    numeric, ids = model.joined(known)
    x = torch.cat([numeric[:rows].double(), one_hot(ids[:rows], sizes)], dim=1)
    if not len(x):
        raise UserError("there are no auxiliary rows", key="attack.equation_solving.prior", value=prior)
    mean = x.mean(dim=0)
    if prior == "mean":
        return Guess(mean.expand(n, -1))
    if x.shape[1] > _MOST:
        problem = f"a covariance of {x.shape[1]} columns and ids is too large; {_MOST} at most"
        raise UserError(problem, key="attack.equation_solving.prior", value=prior)
    given = _own_of_known(known, model.parties, len(x))
    left, right = x - mean, given - given.mean(dim=0)
    gram = right.T @ right
    if gram.numel():
        slope = torch.linalg.solve(_raised(gram), right.T @ left)  # (own, u)
        left = left - right @ slope
        mean = mean + (own.numeric.double() - given.mean(dim=0)) @ slope
    return Guess(mean.expand(n, -1), _raised(left.T @ left / len(x)))


def _own_of_known(known: dict[str, OwnColumns] | object, parties: Sequence[str], rows: int) -> Tensor:
    """The label party's own numeric columns of the auxiliary rows, (m, k); none where it has none."""
    others = [columns for party, columns in known.items() if party not in parties]  # type: ignore[attr-defined]
    blocks = [columns.numeric[:rows].double() for columns in others]
    return torch.cat(blocks, dim=1) if blocks else torch.empty(rows, 0, dtype=torch.float64)


def _raised(matrix: Tensor) -> Tensor:
    """With a hundredth of its mean diagonal entry added to the diagonal."""
    diagonal = matrix.diagonal()
    return matrix + torch.diag_embed((_SHRINK * diagonal.mean() + 1e-9).expand(len(diagonal)))
