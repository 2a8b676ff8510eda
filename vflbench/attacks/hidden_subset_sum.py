"""Hidden subset sum: a whole private batch from a single update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.messages.facts import ClassShares, OwnColumns, Updates
from vflbench.messages.threat import Seat, Threat
from vflbench.messages.view import View
from vflbench.options import options

if TYPE_CHECKING:
    from vflbench.attacks.batch_reconstruction.orthogonal_lattice import OneUpdate


@options
class HiddenSubsetSum(Attack):
    """Rebuild the rows and labels of the others' batch from one update alone, also if every round has a new batch.

        u = X^T s,   s_r = step (y_r / 2 - x_r.theta / 4):   integers w with w.u = 0 that are short have X w = 0,
        and the rows of X are the 0/1 vectors in the lattice orthogonal to them

    It needs binary columns, more columns than rows, at most 16 rows, one local step, complete updates that are exact up to
    rounding, and a model other than 0. With 20 columns it rebuilds up to 12 or 13 rows in float64, and 4 in float32. Its
    answer gives the update. It is not proved that no other batch does. It needs the extra `lattice`.

    Source: Nguyen and Stern, "The Hardness of the Hidden Subset Sum Problem and Its Cryptographic Implications", 1999; its
    use on updates is ours.
    """

    threat = Threat(Seat.PARTICIPANT, {Updates, OwnColumns, ClassShares})

    def __post_init__(self) -> None:
        self._rounds: dict[str, dict[str, Any]] = {}  # of this epoch, by step

    def batch(self, view: View) -> None:
        """Keep the update of this round."""
        updates, columns, positive = view[Updates], view[OwnColumns].numeric.double().cpu(), view[ClassShares].positive
        seen = torch.stack(list(updates.received.values()) or [updates.others])
        values = {"before": updates.before, "after": updates.after, "seen": seen, "shares": columns.mean(dim=0)}
        kept = {name: value.double().cpu() for name, value in values.items()}
        label = 1.0 if positive > 0.5 else -1.0
        self._rounds[str(view.step)] = {"rules": asdict(updates.rules), "label": label, **kept}

    def epoch(self, view: View) -> Sequence[RebuiltBatch]:
        """The batches of the epoch, in the order of rounds."""
        rounds, self._rounds = self._rounds, {}
        return [_rebuilt(step, rounds[str(step)]) for step in sorted(map(int, rounds))]

    def state(self) -> dict[str, Any]:
        """The rounds of an epoch that has not ended."""
        return {"rounds": self._rounds}

    def restore(self, state: dict[str, Any]) -> None:
        self._rounds = {step: dict(kept) for step, kept in state["rounds"].items()}


def _rebuilt(step: int, kept: Mapping[str, Any]) -> RebuiltBatch:
    rules, sources = kept["rules"], len(kept["seen"])
    alone = sources > 1 or rules["parties"] == 2
    rows = rules["batches"] * rules["batch_size"] * (1 if alone else rules["parties"] - 1)
    found = [_solved(kept, update.numpy(), rows) for update in kept["seen"]]
    from vflbench.attacks.batch_reconstruction.best_guess import guesses_by_columns

    guesses = guesses_by_columns(kept["shares"].numpy(), rows * sources, seed=step)
    return _answer(step, found, rows, guesses, kept["shares"], kept["label"])


def _solved(kept: Mapping[str, Any], u: np.ndarray, rows: int) -> OneUpdate:
    """u: (d,), of `rows` rows."""
    from vflbench.attacks.batch_reconstruction.orthogonal_lattice import OneUpdate, rows_of_one_update
    from vflbench.attacks.batch_reconstruction.recovery.affine import rounding_unit  # late: scipy, and flint

    rules, theta, after = kept["rules"], kept["before"].numpy(), kept["after"].numpy()
    if rules["whole"] is False:
        return OneUpdate(refusal="updates are shared in part")
    if rules["batches"] > 1:
        return OneUpdate(refusal="the update is of several local steps")
    if rules["schema"] is not None and len(rules["schema"]["binary"]) < len(theta):
        return OneUpdate(refusal="by the schema some columns are not binary")
    step = rules["rate"] / (rules["batch_size"] if rules["reduction"] == "mean" else 1)
    largest = np.abs(theta).max() + np.abs(after).max() + np.abs(u).max()
    error = 4 * rounding_unit(theta[None], u[None]) * (rules["parties"] * largest + step * rules["batch_size"])
    return rows_of_one_update(u, theta, rows, step, float(error))


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
