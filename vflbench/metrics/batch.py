"""Grades the reconstruction of a private batch. The rows of a batch have no order, so they are matched first."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vflbench.metrics.reconstruction import Example, share

CLOSE = 1e-3
"""Largest error at which a real-valued entry counts as right."""


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

    The other arguments are those of an attack's answer. The guess, the same for every row, needs no update.

    exact: 1 if every entry is right once answered rows are matched to true rows. contained: 1 if a candidate equals the
    batch in the binary columns. entries_right: share of right entries, real values within 0.001; the guess replaces missing
    answers. labels_right: share of right labels; among equal rows only the number of positives counts.
    guess_entries_right, guess_labels_right: the same of the guess. columns_told: share of columns with an answer.
    steps_right: share of rows with the right local step.
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
    columns = _matching_columns(binary, x)
    order = matched(rows[:, columns], x[:, columns])
    answer = rows.to(x)[order]
    right = (torch.where(answer.isnan(), guessed, answer) - x).abs() <= CLOSE
    same = [_same_rows(candidate.to(x)[:, columns], x[:, columns]) for candidate in candidates]
    figures |= {
        "exact": float(right.all() and not answer.isnan().any()),
        "contained": float(any(same) or bool((answer == x)[:, columns].all())),
        "entries_right": share(right),
        "columns_told": share(~answer.isnan().any(dim=0)),
    }
    if labels is not None:
        figures["labels_right"] = _labels_right(answer[:, columns], labels.to(x)[order], y, guess_label)
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
    """The batch and the answer, row by row, with the label as 0 or 1 in the last column.

    shares: if several batches fit, the share of them with a 1 in each entry, nan in real-valued columns.
    """
    truth = torch.cat([x, (y[:, None] + 1) / 2], dim=1)
    if rows is None:
        features, answered_labels = guess.to(x).expand_as(x), torch.full_like(y, guess_label)
    else:
        columns = _matching_columns(binary, x)
        order = matched(rows[:, columns], x[:, columns])
        answered_labels = torch.full_like(y, math.nan) if labels is None else labels.to(y)[order]
        likely = rows.to(x) if shares is None else torch.where(shares.to(x).isnan(), rows.to(x), shares.to(x))
        features = likely[order]
    return truth, torch.cat([features, (answered_labels[:, None] + 1) / 2], dim=1)


def matched(rows: Tensor, x: Tensor) -> Tensor:
    """The order of rows (m, d) that is nearest to x (m, d): least sum of |differences|, a nan counting 1."""
    distance = (rows.to(x)[None, :, :] - x[:, None, :]).abs().nan_to_num(nan=1.0).sum(dim=2)
    from scipy.optimize import linear_sum_assignment  # slow to import, and needed by few runs

    return torch.from_numpy(linear_sum_assignment(distance.cpu().numpy())[1]).to(x.device)


def _matching_columns(binary: Tensor | None, x: Tensor) -> Tensor:
    """(d,) bool: the columns by which rows are matched."""
    return torch.ones(x.shape[1], dtype=torch.bool, device=x.device) if binary is None else binary.to(x.device)


def _same_rows(rows: Tensor, x: Tensor) -> bool:
    """Whether both are equal up to the order of rows."""
    return rows.shape == x.shape and sorted(map(tuple, rows.tolist())) == sorted(map(tuple, x.tolist()))


def _labels_right(rows: Tensor, labels: Tensor, y: Tensor, guess_label: float) -> float:
    """Share of right labels. Equal rows are exchangeable, so in each group of them only the number of positives counts."""
    answer = torch.where(labels.isnan(), torch.full_like(labels, guess_label), labels)
    _, group = torch.unique(rows.nan_to_num(nan=2.0), dim=0, return_inverse=True)
    wrong = 0.0
    for number in group.unique():
        members = group == number
        answered, true = ((values[members] + 1).sum() / 2 for values in (answer, y))
        wrong += abs(round(answered.item()) - true.item())
    return 1 - wrong / len(y) if len(y) else math.nan
