import math

import numpy as np
import pytest
import torch

from vflbench.metrics.reconstruction import ReconstructionTable, share

KEY = ("inversion", "embedding", "a", "f2", True)


def test_figures_are_means_over_the_batches_in_which_they_are_defined():
    table = ReconstructionTable()
    table.add(KEY, {"mse": 0.1, "psnr": 10.0})
    table.add(KEY, {"mse": 0.3, "psnr": math.nan})
    (found,) = table.found()
    assert (found.attack, found.party, found.batches) == ("inversion", "a", 2)
    assert found.figures["mse"].mean == pytest.approx(0.2)
    assert found.figures["psnr"].mean == 10
    assert math.isnan(found.figures["psnr"].low)


def test_the_first_example_is_kept_and_all_of_it_is_put_back():
    table = ReconstructionTable()
    table.add(KEY, {"mse": 0.0}, (torch.zeros(2, 3), torch.ones(2, 3)))
    table.add(KEY, {"mse": 1.0}, (torch.ones(2, 3), torch.ones(2, 3)))
    again = ReconstructionTable.from_state(table.state())
    assert again.found() == table.found()
    arrays = again.examples()
    assert set(arrays) == {"inversion/a/f2/truth", "inversion/a/f2/answer"}
    assert np.array_equal(arrays["inversion/a/f2/truth"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="rebuilt as"):
        ReconstructionTable().add(KEY, {}, (torch.zeros(2, 3), torch.zeros(3)))


def test_the_share_of_nothing_is_not_defined():
    assert share(torch.tensor([True, False])) == 0.5
    assert math.isnan(share(torch.empty(0, dtype=torch.bool)))


def test_intervals_over_batches_stay_in_the_range_of_their_figure():
    table = ReconstructionTable()
    for value in (1.0, 1.0, 0.0):
        table.add(("a", "update", "p", "theta", True), {"exact": value, "ssim": 2 * value - 1, "mse": value, "r2": value})
    figures = table.found()[0].figures
    assert (figures["exact"].low, figures["exact"].high) == (0, 1)
    assert (figures["ssim"].low, figures["ssim"].high) == (-1, 1)
    assert (figures["mse"].low, figures["mse"].high) == (0, 1)
    assert figures["r2"].low < 0
    assert figures["r2"].high == 1
