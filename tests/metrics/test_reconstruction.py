import math

import numpy as np
import pytest
import torch

from vflbench.metrics.reconstruction import ReconstructionTable, batch_example, batch_figures, matched

KEY = ("inversion", "embedding", "a", "f2", True)


def entry(*batches, **values):
    """What is made of the figures of batches, of which the last has values of rows."""
    table = ReconstructionTable()
    for figures in batches:
        table.add(KEY, figures, **(values if figures is batches[-1] else {}))
    return table.entries()[0]


def test_figures_are_means_over_the_batches_in_which_they_are_defined():
    inversion = entry({"mse": 0.1, "psnr": 10.0}, {"mse": 0.3, "psnr": math.nan})
    assert (inversion.attack, inversion.party, inversion.batches) == ("inversion", "a", 2)
    assert inversion.figures["mse"].mean == pytest.approx(0.2)
    assert inversion.figures["psnr"].mean == 10
    assert math.isnan(inversion.figures["psnr"].low)


def test_the_first_example_is_kept_and_all_of_it_is_put_back():
    table = ReconstructionTable()
    for first in (torch.zeros(2, 3), torch.ones(2, 3)):
        table.add(KEY, {"mse": 0.0}, (first, torch.ones(2, 3)))
    arrays = table.examples()
    assert set(arrays) == {"inversion/a/f2/truth", "inversion/a/f2/answer"}
    assert np.array_equal(arrays["inversion/a/f2/truth"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="rebuilt as"):
        ReconstructionTable().add(KEY, {}, (torch.zeros(2, 3), torch.zeros(3)))


def test_figures_with_values_of_rows_have_intervals_over_rows():
    """Also of a single batch. Shares have Wilson's, which has a width where every row is a hit."""
    values = {"mse": torch.tensor([0.1, 0.2, 0.3, 0.2]), "recognised": torch.ones(4)}
    rebuilt = entry({"mse": 0.2, "psnr": 6.99, "recognised": 1.0, "other": 3.0}, rows=values)
    mse, recognised = rebuilt.figures["mse"], rebuilt.figures["recognised"]
    assert (mse.mean, mse.high) == pytest.approx((0.2, 0.2 + 3.1824 * 0.08165 / 2), abs=1e-4)
    assert mse.low == pytest.approx(0.4 - mse.high)
    assert (recognised.mean, recognised.high, recognised.low) == (1, 1, pytest.approx(4 / (4 + 1.959964**2)))
    assert rebuilt.figures["psnr"].low == pytest.approx(-10 * math.log10(mse.high))
    assert math.isnan(rebuilt.figures["other"].low)
    assert (rebuilt.rows, rebuilt.beats_every_guess) == (4, None)


def identified(hits, chance):
    return {"identified": (torch.arange(32) < hits).double(), "chance": torch.full((32,), chance)}


def answer(hits, *margins, chance=0.05):
    of_guesses = {f"guess_{i}": torch.linspace(-0.1, 0.1, 32) + margin for i, margin in enumerate(margins)}
    return entry({"identified": hits / 32}, rows=identified(hits, chance), margins=of_guesses)


def test_every_guess_must_be_beaten_and_rows_be_told_from_others():
    assert answer(32, 0.05, 0.1).beats_every_guess is True
    assert answer(32, 0.05, 0.01).beats_every_guess is False  # its margin's interval has 0
    assert [margin.beats for margin in answer(32, 0.05, 0.01).beats_guesses.values()] == [True, False]
    assert answer(2, 0.05).beats_every_guess is False  # by error alone: 2 of 32 are identified by chance
    assert [answer(hits, 0.05).distinguished for hits in (4, 5)] == [False, True]  # P(>= 5) = 0.020, P(>= 4) = 0.074
    assert answer(32, 0.05, chance=math.nan).beats_every_guess is True  # could not be tested


@pytest.mark.parametrize(("hits_of_truth", "distinguished", "beats"), [(3, None, True), (30, False, False)])
def test_where_true_rows_cant_be_told_from_others_neither_need_answers(hits_of_truth, distinguished, beats):
    """Of a party with one binary column, a perfect answer is as much like half of the rows of its class."""
    table = ReconstructionTable()
    table.add(KEY, {"identified": 3 / 32}, rows=identified(3, 0.05), margins={"mean": torch.linspace(0.1, 0.2, 32)})
    table.add((KEY[0], "none", KEY[2], "true", False), {"identified": 1.0}, rows=identified(hits_of_truth, 0.05))
    inversion = table.entries()[0]
    assert (inversion.distinguished, inversion.beats_every_guess) == (distinguished, beats)


X = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]).double()
Y = torch.tensor([1.0, 1, -1, -1]).double()
GUESS = torch.tensor([1.0, 1, 0, 0])
ORDER = torch.tensor([2, 3, 1, 0])
DEFAULTS = {**dict.fromkeys(("labels", "steps", "binary")), "candidates": (), "guess": GUESS, "guess_label": -1.0}


def figures(rows, labels=None, x=X, y=Y, when=None, **others):
    when = torch.zeros(len(x)) if when is None else when
    return batch_figures(x, y, when, **{**DEFAULTS, "rows": rows, "labels": labels, **others})


def test_rows_have_no_order():
    result = figures(X[ORDER], Y[ORDER])
    assert result["exact"] == result["entries_right"] == result["labels_right"] == result["contained"] == 1
    assert torch.equal(X[ORDER][matched(X[ORDER], X)], X)


def test_wrong_entries_are_counted_after_the_best_matching():
    wrong = X.flip(0).clone()
    wrong[0, 0] = 0
    result = figures(wrong, candidates=[wrong, X])
    assert (result["entries_right"], result["exact"], result["contained"]) == (15 / 16, 0, 1)


def test_among_equal_rows_the_number_of_positives_counts():
    assert figures(X, torch.tensor([1, -1, 1, -1.0]))["labels_right"] == 1  # the equal rows' labels in another order
    assert figures(X, torch.tensor([1, 0, 0, -1.0]))["labels_right"] == 1  # answered as a share
    assert figures(X, torch.tensor([math.nan, 0, 0, -1.0]))["labels_right"] == 0.75  # the guess is -1


def test_without_an_answer_the_guess_is_graded():
    result = figures(None)
    assert result["entries_right"] == result["guess_entries_right"] == ((GUESS == X).sum() / 16).item()
    assert result["labels_right"] == result["guess_labels_right"] == 0.5
    assert result["columns_recovered"] == result["exact"] == 0


def test_a_guess_of_rows_is_graded_as_an_answer_and_claims_nothing():
    result = figures(None, guessed_rows=X[ORDER])
    assert result["entries_right"] == result["guessed_share"] == 1
    assert result["exact"] == result["contained"] == result["columns_recovered"] == 0
    rows = X[ORDER].clone()
    rows[1:] = math.nan
    half = figures(rows, guessed_rows=X[ORDER])
    assert half["entries_right"] == 1
    assert half["exact"] == half["guessed_share"] == half["columns_recovered"] == 0


def test_the_line_of_comparison_is_matched_as_an_answer_is():
    x, guesses = (torch.rand(32, 12, generator=torch.Generator().manual_seed(k)).round().double() for k in (0, 1))
    lines = torch.stack([guesses, guesses.flip(0)])
    line = figures(None, x=x, y=torch.ones(32), guess=torch.ones(12), column_guesses=lines)["matched_guess_right"]
    assert line == pytest.approx((guesses[matched(guesses, x)] == x).double().mean().item())
    assert line > (guesses == x).double().mean() + 0.1
    assert figures(X)["matched_guess_right"] == figures(X)["guess_entries_right"]


def test_columns_without_an_answer_are_guessed_and_real_ones_must_be_near():
    x, binary = X.clone(), torch.tensor([True, True, False, False])
    x[:, 3] = torch.tensor([0.25, 0.5, 0.75, 1.0])
    rows = x.clone()
    rows[:, 2], rows[0, 3] = math.nan, 0.2505
    result = figures(rows, binary=binary, x=x)
    assert (result["columns_recovered"], result["exact"]) == (0.75, 0)
    assert result["entries_right"] == 15 / 16  # the guess 0 is right in column 2 except once
    rows[0, 3] = 0.26
    assert figures(rows, binary=binary, x=x)["entries_right"] == 14 / 16


def test_the_local_steps_of_rows_are_graded():
    when = torch.tensor([0.0, 1, 1, 0])
    assert figures(X[ORDER], steps=when[ORDER], when=when)["steps_right"] == 1
    assert figures(X[ORDER], steps=1 - when[ORDER], when=when)["steps_right"] == 0


def test_the_example_shows_rows_beside_rows_and_the_label_last():
    parts = {"guess": GUESS, "guess_label": -1.0, "binary": None}
    truth, rebuilt = batch_example(X, Y, rows=X[ORDER], labels=Y[ORDER], **parts)
    assert torch.equal(truth, torch.cat([X, (Y[:, None] + 1) / 2], dim=1))
    assert torch.equal(rebuilt[:, :4], X)
    assert torch.equal(batch_example(X, Y, rows=None, labels=None, **parts)[1][0], torch.tensor([1, 1, 0, 0, 0]).double())
