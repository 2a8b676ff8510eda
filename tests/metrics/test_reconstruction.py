import math

import numpy as np
import pytest
import torch

from vflbench.metrics.reconstruction import ReconstructionTable

KEY = ("inversion", "embedding", "a", "f2", True)


def test_figures_are_means_over_the_batches_in_which_they_are_defined():
    table = ReconstructionTable()
    table.add(KEY, {"mse": 0.1, "psnr": 10.0})
    table.add(KEY, {"mse": 0.3, "psnr": math.nan})
    (found,) = table.entries()
    assert (found.attack, found.party, found.batches) == ("inversion", "a", 2)
    assert found.figures["mse"].mean == pytest.approx(0.2)
    assert found.figures["psnr"].mean == 10
    assert math.isnan(found.figures["psnr"].low)


def test_the_first_example_is_kept_and_all_of_it_is_put_back():
    table = ReconstructionTable()
    table.add(KEY, {"mse": 0.0}, (torch.zeros(2, 3), torch.ones(2, 3)))
    table.add(KEY, {"mse": 1.0}, (torch.ones(2, 3), torch.ones(2, 3)))
    arrays = table.examples()
    assert set(arrays) == {"inversion/a/f2/truth", "inversion/a/f2/answer"}
    assert np.array_equal(arrays["inversion/a/f2/truth"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="rebuilt as"):
        ReconstructionTable().add(KEY, {}, (torch.zeros(2, 3), torch.zeros(3)))


def test_figures_with_values_of_rows_have_intervals_over_rows():
    """Also of a single batch. Shares have Wilson's, which has a width where every row is a hit."""
    table = ReconstructionTable()
    values = {"mse": torch.tensor([0.1, 0.2, 0.3, 0.2]), "recognised": torch.ones(4)}
    table.add(KEY, {"mse": 0.2, "psnr": 6.99, "recognised": 1.0, "other": 3.0}, rows=values)
    (found,) = table.entries()
    mse, recognised = found.figures["mse"], found.figures["recognised"]
    assert mse.mean == pytest.approx(0.2)
    assert (mse.low, mse.high) == (pytest.approx(0.2 - 3.1824 * 0.08165 / 2, abs=1e-4), pytest.approx(0.3299, abs=1e-4))
    assert (recognised.mean, recognised.high) == (1, 1)
    assert recognised.low == pytest.approx(4 / (4 + 1.959964**2))
    assert found.figures["psnr"].low == pytest.approx(-10 * math.log10(mse.high))
    assert math.isnan(found.figures["other"].low)
    assert (found.rows, found.beats_every_guess) == (4, None)


def told(hits, *margins, chance=0.05, rows=32):
    table = ReconstructionTable()
    values = {"identified": (torch.arange(rows) < hits).double(), "chance": torch.full((rows,), chance)}
    noise = torch.linspace(-0.1, 0.1, rows)
    margins = {f"guess_{i}": noise + margin for i, margin in enumerate(margins)}
    table.add(KEY, {"identified": hits / rows}, rows=values, margins=margins)
    return table.entries()[0]


def test_where_true_rows_cant_be_told_apart_neither_need_answers():
    """Of a party with one binary column, a perfect answer is as much like half of the rows of its class."""
    answers = []
    for hits_of_truth in (3, 30):
        table = ReconstructionTable()
        for key, hits in ((KEY, 3), ((KEY[0], "none", KEY[2], "true", False), hits_of_truth)):
            values = {"identified": (torch.arange(32) < hits).double(), "chance": torch.full((32,), 0.05)}
            margins = {"mean": torch.linspace(0.1, 0.2, 32)} if key is KEY else {}
            table.add(key, {"identified": hits / 32}, rows=values, margins=margins)
        answers.append(table.entries()[0])
    assert [answer.distinguished for answer in answers] == [None, False]
    assert [answer.beats_every_guess for answer in answers] == [True, False]


def test_every_guess_must_be_beaten_and_rows_be_told_apart():
    assert told(32, 0.05, 0.1).beats_every_guess is True
    assert told(32, 0.05, 0.01).beats_every_guess is False  # its margin's interval has 0
    assert [margin.beats for margin in told(32, 0.05, 0.01).beats_guesses.values()] == [True, False]
    assert told(2, 0.05).beats_every_guess is False  # by error alone: 2 of 32 are identified by chance
    assert [told(hits, 0.05).distinguished for hits in (4, 5, 6)] == [False, True, True]  # P(>= 5) = 0.020, P(>= 4) = 0.074
    assert told(32, 0.05, chance=math.nan).beats_every_guess is True  # could not be tested
