"""Hidden subset sum: a whole private batch from a single update."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.attacks.batch_reconstruction.best_guess import guesses_by_columns
from vflbench.attacks.batch_reconstruction.orthogonal_lattice import OneUpdate, rows_of_one_update
from vflbench.attacks.batch_reconstruction.recovery.affine import rounding_unit
from vflbench.messages.facts import ClassShares, OwnColumns, Updates
from vflbench.messages.threat import Seat, Threat
from vflbench.messages.view import View
from vflbench.options import options


@options
class HiddenSubsetSum(Attack):
    """Rebuild the rows and labels of the others' batch from one update alone: new batches in each round don't hide from it.

        u = X^T s,   s_r = step (y_r / 2 - x_r.theta / 4):   integers w with w.u = 0 that are short have X w = 0,
        and the rows of X are the 0/1 vectors in the lattice orthogonal to them

    It takes binary columns, more columns than rows, at most 16 rows, one local step, updates that are whole and exact to
    rounding, and a model other than 0: of 20 columns up to 12 or 13 rows in float64, 4 in float32. What it answers gives the
    update; that no other batch does is not proved. It needs the extra `lattice`.

    Source: Nguyen and Stern, "The Hardness of the Hidden Subset Sum Problem and Its Cryptographic Implications", 1999; its
    use on updates is ours.
    """

    threat = Threat(Seat.PARTICIPANT, {Updates, OwnColumns, ClassShares})

    def __post_init__(self) -> None:
        self._answers: dict[int, RebuiltBatch] = {}

    def batch(self, view: View) -> None:
        """Solve the update of this round."""
        updates, columns, positive = view[Updates], view[OwnColumns].numeric.double().cpu(), view[ClassShares].positive
        shares, label = columns.mean(dim=0), 1.0 if positive > 0.5 else -1.0
        sources = list(updates.received.values()) or [updates.others]
        found = [_solved(updates, source) for source in sources]
        rows, step = _rows(updates), int(view.step or 0)
        guesses = guesses_by_columns(shares.numpy(), rows * len(sources), seed=step)
        self._answers[step] = _answer(step, found, rows, guesses, shares, label)

    def epoch(self, view: View) -> Sequence[RebuiltBatch]:
        """The batches of the epoch, in the order of rounds."""
        answers, self._answers = self._answers, {}
        return [answers[step] for step in sorted(answers)]

    def state(self) -> dict[str, Any]:
        """Nothing is kept from one epoch to the next."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        self._answers = {}


def _rows(updates: Updates) -> int:
    """Of the batch behind one update that is seen."""
    rules = updates.rules
    return rules.batches * rules.batch_size * (1 if updates.received else rules.parties - 1)


def _solved(updates: Updates, update: Tensor) -> OneUpdate:
    rules, theta, u = updates.rules, updates.before.double().cpu().numpy(), update.double().cpu().numpy()
    if rules.whole is False:
        return OneUpdate(refusal="updates are shared in part")
    if rules.batches > 1:
        return OneUpdate(refusal="the update is of several local steps")
    if rules.schema is not None and len(rules.schema.binary) < len(theta):
        return OneUpdate(refusal="by the schema some columns are not binary")
    step = rules.rate / (rules.batch_size if rules.reduction == "mean" else 1)
    largest = np.abs(theta).max() + np.abs(updates.after.double().cpu().numpy()).max() + np.abs(u).max()
    unit = rounding_unit(theta[None], u[None])
    error = 4 * unit * (rules.parties * largest + step * rules.batch_size)
    return rows_of_one_update(u, theta, _rows(updates), step, float(error))


def _answer(
    step: int, found: Sequence[OneUpdate], rows: int, column_guesses: np.ndarray, shares: Tensor, label: float
) -> RebuiltBatch:
    """Side by side what each update gave; rows that none gave are unknown."""
    d = len(shares)
    x = np.vstack([np.full((rows, d), np.nan) if part.x is None else part.x for part in found])
    y = np.concatenate([np.full(rows, np.nan) if part.y is None else part.y for part in found])
    y[(x == 0).all(axis=1)] = np.nan  # a row of zeros has no label that the update tells
    known = [part for part in found if part.x is not None]
    guesses = torch.from_numpy(column_guesses).double()
    return RebuiltBatch(
        step,
        (shares > 0.5).double(),
        label,
        rows=torch.from_numpy(x) if known else None,
        labels=torch.from_numpy(y) if known else None,
        candidates=(torch.from_numpy(x),) if len(known) == len(found) else (),
        guessed_rows=guesses[0],
        column_guesses=guesses,
        figures={
            "explained": len(known) / len(found),
            "row_candidates_count": float(np.mean([part.candidates for part in found])),
        },
        note="; ".join(dict.fromkeys(part.refusal for part in found if part.refusal)),
    )
