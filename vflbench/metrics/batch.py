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
    guessed_rows: Tensor | None = None,
    column_guesses: Tensor | None = None,
) -> dict[str, float]:
    """Figures of one batch x (m, d), y (m,) in {-1, +1}, and when (m,), the local step of each row.

    The other arguments are those of an attack's answer. The guess, the same for every row, needs no update.

    exact: 1 if every entry is right once answered rows are matched to true rows. contained: 1 if a candidate equals the
    batch in the binary columns. entries_right: share of right entries, real values within 0.001; where there is no answer,
    the attack's own guess of the batch counts, and rows are matched by its columns, too; then the guess. labels_right: share
    of right labels, likewise; among equal rows only the number of positives counts. guess_entries_right,
    guess_labels_right: the same of the guess. matched_guess_right: of batches that follow from the attacker's columns alone,
    matched like an answer, their mean: the line that entries_right is to be held against. guessed_share: 1 if the attack
    found no row. columns_told: share of columns with an answer. steps_right: share of rows with the right local step.
    """
    guessed = guess.to(x).expand_as(x)
    constant = share((guessed - x).abs() <= CLOSE)
    figures = {
        "exact": 0.0,
        "contained": 0.0,
        "entries_right": constant,
        "labels_right": share(y == guess_label),
        "guess_entries_right": constant,
        "guess_labels_right": share(y == guess_label),
        "matched_guess_right": _matched_right(column_guesses, x, constant),
        "guessed_share": float(rows is None or bool(rows.isnan().all())),
        "columns_told": 0.0,
    }
    answer = _filled(rows, guessed_rows)
    if answer is None:
        return figures
    columns = _matching_columns(binary, x)
    order = matched(answer[:, columns], x[:, columns])
    answer = answer.to(x)
    right = _right(answer[order], x, guessed)
    figures["entries_right"] = share(right)
    if not columns.all() and guessed_rows is not None:
        figures["entries_right"] = share(_right(answer[matched(answer, x)], x, guessed))
    answer = answer[order]
    if labels is not None:
        figures["labels_right"] = _labels_right(answer[:, columns], labels.to(x)[order], y, guess_label)
    if rows is None:
        return figures
    known = ~rows.to(x.device)[order].isnan()
    same = [_same_rows(candidate.to(x)[:, columns], x[:, columns]) for candidate in candidates]
    figures |= {
        "exact": float(right.all() and bool(known.all())),
        "contained": float(any(same) or bool((known & (answer == x))[:, columns].all())),
        "columns_told": share(known.all(dim=0)),
    }
    if steps is not None:
        figures["steps_right"] = share(steps.to(x)[order] == when)
    return figures


def _right(answer: Tensor, x: Tensor, guessed: Tensor) -> Tensor:
    """(m, d) bool, of matched rows; the guess counts where there is no answer."""
    return (torch.where(answer.isnan(), guessed, answer) - x).abs() <= CLOSE


def _filled(known: Tensor | None, guessed: Tensor | None) -> Tensor | None:
    """The guess where nothing is known."""
    if known is None or guessed is None:
        return guessed if known is None else known
    return torch.where(known.isnan(), guessed.to(known), known)


def _matched_right(guesses: Tensor | None, x: Tensor, constant: float) -> float:
    """The mean share of right entries of these batches (g, m, d), each matched to x; `constant` without any."""
    if guesses is None or guesses.shape[1:] != x.shape:
        return constant
    return sum(share((guess[matched(guess, x)] - x).abs() <= CLOSE) for guess in guesses.to(x)) / len(guesses)


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
    guessed_rows: Tensor | None = None,
    **_: object,
) -> Example:
    """The batch and the answer, row by row, with the label as 0 or 1 in the last column.

    shares: if several batches fit, the share of them with a 1 in each entry, nan in real-valued columns. Where there is no
    answer, the attack's own guess of the batch is shown, then the guess.
    """
    truth = torch.cat([x, (y[:, None] + 1) / 2], dim=1)
    answer = _filled(rows, guessed_rows)
    if answer is None:
        features, answered_labels = guess.to(x).expand_as(x), torch.full_like(y, guess_label)
    else:
        columns = _matching_columns(binary, x)
        order = matched(answer[:, columns], x[:, columns])
        nothing = math.nan if rows is not None else guess_label
        answered_labels = torch.full_like(y, nothing) if labels is None else labels.to(y)[order]
        answer = answer.to(x)
        likely = answer if shares is None else torch.where(shares.to(x).isnan(), answer, shares.to(x))
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
