import math

import pytest
import torch

from vflbench.metrics.reconstruction import batch_example, batch_figures, matched

X = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]).double()
Y = torch.tensor([1.0, 1, -1, -1]).double()
GUESS = torch.tensor([1.0, 1, 0, 0])


DEFAULTS = {**dict.fromkeys(("labels", "steps", "binary")), "candidates": (), "guess": GUESS, "guess_label": -1.0}


def figures(rows, labels=None, x=X, y=Y, when=None, **others):
    when = torch.zeros(len(x)) if when is None else when
    return batch_figures(x, y, when, **{**DEFAULTS, "rows": rows, "labels": labels, **others})


def test_rows_have_no_order():
    order = torch.tensor([2, 3, 1, 0])
    result = figures(X[order], Y[order])
    assert result["exact"] == result["entries_right"] == result["labels_right"] == result["contained"] == 1
    assert torch.equal(X[order][matched(X[order], X)], X)


def test_wrong_entries_are_counted_after_the_best_matching():
    wrong = X.flip(0).clone()
    wrong[0, 0] = 0
    result = figures(wrong, candidates=[wrong, X])
    assert result["entries_right"] == 15 / 16
    assert result["exact"] == 0
    assert result["contained"] == 1


def test_among_equal_rows_the_number_of_positives_counts():
    assert figures(X, torch.tensor([1, -1, 1, -1.0]))["labels_right"] == 1  # the equal rows' labels in another order
    assert figures(X, torch.tensor([1, 0, 0, -1.0]))["labels_right"] == 1  # answered as a share
    assert figures(X, torch.tensor([1, -1, -1, -1.0]))["labels_right"] == 0.75
    assert figures(X, torch.tensor([math.nan, 0, 0, -1.0]))["labels_right"] == 0.75  # the guess is -1


def test_without_an_answer_the_guess_is_graded():
    result = figures(None)
    assert result["entries_right"] == result["guess_entries_right"] == ((GUESS == X).sum() / 16).item()
    assert result["labels_right"] == result["guess_labels_right"] == 0.5
    assert result["columns_recovered"] == result["exact"] == 0


def test_a_guess_of_rows_is_graded_as_an_answer_and_claims_nothing():
    order = torch.tensor([2, 3, 1, 0])
    result = figures(None, guessed_rows=X[order])
    assert result["entries_right"] == result["guessed_share"] == 1
    assert result["exact"] == result["contained"] == result["columns_recovered"] == 0
    rows = X[order].clone()
    rows[1:] = math.nan
    half = figures(rows, guessed_rows=X[order])
    assert half["entries_right"] == 1
    assert half["exact"] == half["guessed_share"] == half["columns_recovered"] == 0


def test_the_line_of_comparison_is_matched_as_an_answer_is():
    x, guesses = (torch.rand(32, 12, generator=torch.Generator().manual_seed(k)).round().double() for k in (0, 1))
    unmatched = (guesses == x).double().mean()
    lines = torch.stack([guesses, guesses.flip(0)])
    result = figures(None, x=x, y=torch.ones(32), guess=torch.ones(12), column_guesses=lines)
    assert result["matched_guess_right"] == pytest.approx((guesses[matched(guesses, x)] == x).double().mean().item())
    assert result["matched_guess_right"] > unmatched + 0.1
    assert figures(X)["matched_guess_right"] == figures(X)["guess_entries_right"]


def test_columns_without_an_answer_are_guessed_and_real_ones_must_be_near():
    x = X.clone()
    x[:, 3] = torch.tensor([0.25, 0.5, 0.75, 1.0])
    rows = x.clone()
    rows[:, 2], rows[0, 3] = math.nan, 0.2505
    result = figures(rows, binary=torch.tensor([True, True, False, False]), x=x)
    assert result["columns_recovered"] == 0.75
    assert result["entries_right"] == 15 / 16  # the guess 0 is right in column 2 except once
    assert result["exact"] == 0
    rows[0, 3] = 0.26
    assert figures(rows, binary=torch.tensor([True, True, False, False]), x=x)["entries_right"] == 14 / 16


def test_the_local_steps_of_rows_are_graded():
    when = torch.tensor([0.0, 0, 1, 1])
    assert figures(X, steps=when, when=when)["steps_right"] == 1
    assert figures(X, steps=1 - when, when=when)["steps_right"] == pytest.approx(0)


def test_the_example_shows_rows_beside_rows_and_the_label_last():
    order = torch.tensor([3, 1, 2, 0])
    parts = {"guess": GUESS, "guess_label": -1.0, "binary": None}
    truth, answer = batch_example(X, Y, rows=X[order], labels=Y[order], **parts)
    assert torch.equal(truth, torch.cat([X, (Y[:, None] + 1) / 2], dim=1))
    assert torch.equal(answer[:, :4], X)
    assert torch.equal(batch_example(X, Y, rows=None, labels=None, **parts)[1][0], torch.tensor([1, 1, 0, 0, 0]).double())
