"""A private batch and what an attack takes it for: rows have no order, so they are matched first."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vflbench.metrics.reconstruction import Example, share

CLOSE = 1e-3
"""A real-valued entry counts as right if it is so near."""


def batch_figures(
    x: Tensor,
    y: Tensor,
    when: Tensor,
    *,
    rows: Tensor | None,
    labels: Tensor | None,
    candidates: Sequence[Tensor],
    guess: Tensor,
    guess_label: float,
    steps: Tensor | None,
    binary: Tensor | None,
) -> dict[str, float]:
    """Figures of one batch x (m, d), y (m,) in {-1, +1}, and when (m,), the local step of each row.

    The other arguments are those of an attack's answer.

    exact: 1 if every entry is right after rows were matched to rows so that most are. contained: 1 if one of the candidates
    is the batch, in the columns that were taken for binary. entries_right: share of entries that are right, real-valued ones
    within 0.001; where there is no answer, of the guess. labels_right: share of labels; where the answer is how many of some
    equal rows are positive, of the best that can be said with it. guess_entries_right, guess_labels_right: of the same guess
    for every row, which takes no update. columns_told: share of the columns that it has an answer for. steps_right: share of
    rows whose local step is right.
    """
    guessed = guess.to(x).expand_as(x)
    figures = {
        "exact": 0.0,
        "contained": 0.0,
        "entries_right": share(guessed == x),
        "labels_right": share(y == guess_label),
        "guess_entries_right": share(guessed == x),
        "guess_labels_right": share(y == guess_label),
        "columns_told": 0.0,
    }
    if rows is None:
        return figures
    taken = _taken(binary, x)
    order = matched(rows[:, taken], x[:, taken])
    told = rows.to(x)[order]
    right = (torch.where(told.isnan(), guessed, told) - x).abs() <= CLOSE
    same = [_same_rows(candidate.to(x)[:, taken], x[:, taken]) for candidate in candidates]
    figures |= {
        "exact": float(right.all() and not told.isnan().any()),
        "contained": float(any(same) or bool((told == x)[:, taken].all())),
        "entries_right": share(right),
        "columns_told": share(~told.isnan().any(dim=0)),
    }
    if labels is not None:
        figures["labels_right"] = _labels_right(told[:, taken], labels.to(x)[order], y, guess_label)
    if steps is not None:
        figures["steps_right"] = share(steps.to(x)[order] == when)
    return figures


def batch_example(
    x: Tensor,
    y: Tensor,
    *,
    rows: Tensor | None,
    labels: Tensor | None,
    guess: Tensor,
    guess_label: float,
    binary: Tensor | None,
    shares: Tensor | None = None,
    **_: object,
) -> Example:
    """The batch and the answer, row by row, the label as 0 or 1 in the last column; where several batches fit, how many of
    them have a 1, and real-valued columns as they were solved for.
    """
    truth = torch.cat([x, (y[:, None] + 1) / 2], dim=1)
    if rows is None:
        known = guess.to(x).expand_as(x), torch.full_like(y, guess_label)
    else:
        taken = _taken(binary, x)
        order = matched(rows[:, taken], x[:, taken])
        told = torch.full_like(y, math.nan) if labels is None else labels.to(y)[order]
        likely = rows.to(x) if shares is None else torch.where(shares.to(x).isnan(), rows.to(x), shares.to(x))
        known = likely[order], told
    return truth, torch.cat([known[0], (known[1][:, None] + 1) / 2], dim=1)


def matched(rows: Tensor, x: Tensor) -> Tensor:
    """The order of the rows (m, d) that agrees best with x (m, d): least sum of |differences|, a nan counting 1."""
    distance = (rows.to(x)[None, :, :] - x[:, None, :]).abs().nan_to_num(nan=1.0).sum(dim=2)
    from scipy.optimize import linear_sum_assignment  # takes a while to import, which runs without batches needn't wait

    return torch.from_numpy(linear_sum_assignment(distance.cpu().numpy())[1]).to(x.device)


def _taken(binary: Tensor | None, x: Tensor) -> Tensor:
    """(d,) bool: the columns by which rows are matched."""
    return torch.ones(x.shape[1], dtype=torch.bool, device=x.device) if binary is None else binary.to(x.device)


def _same_rows(rows: Tensor, x: Tensor) -> bool:
    """Whether both are the same up to the order of rows."""
    return rows.shape == x.shape and sorted(map(tuple, rows.tolist())) == sorted(map(tuple, x.tolist()))


def _labels_right(rows: Tensor, labels: Tensor, y: Tensor, guess_label: float) -> float:
    """Equal rows are exchangeable: of each group the number of positives is what is told, by the mean of its labels."""
    known = torch.where(labels.isnan(), torch.full_like(labels, guess_label), labels)
    _, group = torch.unique(rows.nan_to_num(nan=2.0), dim=0, return_inverse=True)
    wrong = 0.0
    for number in group.unique():
        members = group == number
        told, true = ((values[members] + 1).sum() / 2 for values in (known, y))
        wrong += abs(round(told.item()) - true.item())
    return 1 - wrong / len(y) if len(y) else math.nan
