import math

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn.metrics import r2_score

from vflbench.metrics.inversion import (
    id_accuracy,
    mean_squared_error,
    compare_pictures,
    compare_tables,
    psnr,
    r_squared,
    ssim,
)


def test_errors_by_hand_and_by_scikit_image(rng):
    truth, answer = torch.rand(6, 9, 8, generator=rng), torch.rand(6, 9, 8, generator=rng)
    assert mean_squared_error(truth, truth + 0.1) == pytest.approx(0.01)
    expected = peak_signal_noise_ratio(truth.numpy(), answer.numpy(), data_range=1)
    assert psnr(mean_squared_error(truth, answer)) == pytest.approx(expected, rel=1e-5)
    assert psnr(0.0) == 100
    assert math.isnan(mean_squared_error(truth[:0], truth[:0]))


def test_structural_similarity(rng):
    truth, answer = torch.rand(3, 9, 8, generator=rng), torch.rand(3, 9, 8, generator=rng)
    by_hand = [structural_similarity(a, b, data_range=1) for a, b in zip(truth.numpy(), answer.numpy(), strict=True)]
    assert ssim(truth, answer) == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert ssim(truth, truth) == pytest.approx(1)
    small = truth[:, :4, :6]
    assert ssim(small, small) == pytest.approx(1)  # window 3
    assert math.isnan(ssim(truth[:, :2], truth[:, :2]))
    colour = torch.rand(2, 8, 8, 3, generator=rng)
    assert ssim(colour, colour) == pytest.approx(1)


def test_r_squared_is_that_of_scikit_learn(rng):
    truth, answer = torch.rand(20, 3, generator=rng), torch.rand(20, 3, generator=rng)
    truth[:, 2] = 0.5
    values = r_squared(truth, answer)
    expected = r2_score(truth[:, :2].numpy(), answer[:, :2].numpy(), multioutput="raw_values")
    np.testing.assert_allclose(values[:2], expected, rtol=1e-5)
    assert math.isnan(values[2])
    assert r_squared(truth, truth.mean(0).expand(20, -1))[0] == pytest.approx(0, abs=1e-6)


def test_figures_of_a_table():
    numeric, ids = torch.tensor([[0.0], [1.0]]), torch.tensor([[1, 2], [1, 3]])
    answer = torch.tensor([[1, 2], [0, 3]])
    assert id_accuracy(ids, answer).tolist() == [0.5, 1.0]
    figures = table_figures((numeric, ids), (numeric, answer), (("I1",), ("C1", "C2")))
    assert figures == {
        "mse": 0.0,
        "r2": 1.0,
        "id_accuracy": 0.75,
        "r2:I1": 1.0,
        "id_accuracy:C1": 0.5,
        "id_accuracy:C2": 1.0,
    }
    wide = torch.rand(2, 101)
    names = tuple(map(str, range(101)))
    assert list(table_figures((wide, ids[:, :0]), (wide, ids[:, :0]), (names, ()))) == ["mse", "r2"]


def test_figures_of_pictures(rng):
    truth = torch.rand(2, 8, 8, generator=rng)
    assert picture_figures(truth, truth) == {"mse": 0, "psnr": 100, "ssim": pytest.approx(1)}
