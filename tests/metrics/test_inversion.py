import math

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn.metrics import r2_score

from vflbench.metrics.inversion import TableColumns, compare_pictures, compare_tables, mean_squared_error, psnr, ssim


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
    np.testing.assert_allclose(ssim(truth, answer), by_hand, rtol=1e-5)
    assert ssim(truth, truth).tolist() == pytest.approx([1] * 3)
    small = truth[:, :4, :6]
    assert ssim(small, small).tolist() == pytest.approx([1] * 3)  # window 3
    assert ssim(truth[:, :2], truth[:, :2]).isnan().all()
    colour = torch.rand(2, 8, 8, 3, generator=rng)
    assert ssim(colour, colour).tolist() == pytest.approx([1, 1])


def test_r_squared_is_that_of_scikit_learn(rng):
    truth, answer = torch.rand(20, 3, generator=rng), torch.rand(20, 3, generator=rng)
    truth[:, 2] = 0.5
    columns, none = TableColumns(("a", "b", "constant"), (), truth.std(dim=0)), torch.zeros(20, 0)
    figures = compare_tables((truth, none), (answer, none), columns).figures
    expected = r2_score(truth[:, :2].numpy(), answer[:, :2].numpy(), multioutput="raw_values")
    assert [figures["r2:a"], figures["r2:b"]] == pytest.approx(list(expected), rel=1e-5)
    assert math.isnan(figures["r2:constant"])
    assert figures["r2"] == pytest.approx(expected.mean(), rel=1e-5)


def test_figures_of_a_table():
    numeric, ids = torch.tensor([[0.0], [1.0]]), torch.tensor([[1, 2], [1, 3]])
    answer = torch.tensor([[1, 2], [0, 3]])
    columns = TableColumns(("I1",), ("C1", "C2"), torch.tensor([0.5]))
    compared = compare_tables((numeric, ids), (numeric, answer), columns)
    assert compared.figures == {
        "mse": 0.0,
        "r2": 1.0,
        "error_over_spread": 0.0,
        "within_tolerance": 1.0,
        "id_accuracy": 0.75,
        "rows_right": 0.5,
        "r2:I1": 1.0,
        "error_over_spread:I1": 0.0,
        "id_accuracy:C1": 0.5,
        "id_accuracy:C2": 1.0,
    }
    assert compared.error.tolist() == [0, pytest.approx(1 / 3)]


def test_the_mean_of_a_normal_column_errs_by_its_spread_and_is_within_tolerance_for_a_quarter(rng):
    truth, none = torch.randn(20_000, 2, generator=rng) / 10 + 0.5, torch.zeros(20_000, 0)
    columns = TableColumns(("a", "b"), (), truth.std(dim=0, correction=0))
    figures = compare_tables((truth, none), (truth.mean(dim=0).expand_as(truth), none), columns).figures
    assert figures["error_over_spread"] == pytest.approx(1, abs=1e-4)
    assert figures["within_tolerance"] == pytest.approx(0.25, abs=0.01)


def test_values_of_rows_have_the_figure_as_their_mean_and_the_right_spread(rng):
    """The linear values of r2 and error_over_spread: their interval is that of a bootstrap."""
    truth = torch.randn(400, 3, generator=rng) * torch.tensor([1.0, 0.5, 0.2])
    answer = truth + 0.4 * torch.randn(400, 3, generator=rng) * truth.abs()
    columns, none = TableColumns(("a", "b", "c"), (), truth.std(dim=0, correction=0)), torch.zeros(400, 0)
    compared = compare_tables((truth, none), (answer, none), columns)
    drawn = [torch.randint(400, (400,), generator=rng) for _ in range(300)]
    again = [compare_tables((truth[i], none[i]), (answer[i], none[i]), columns).figures for i in drawn]
    for name in ("r2", "error_over_spread"):
        values = compared.rows[name]
        assert values.mean().item() == pytest.approx(compared.figures[name], rel=1e-9)
        spread = np.std([figures[name] for figures in again])
        assert values.std().item() / 20 == pytest.approx(spread, rel=0.2)


def test_figures_of_pictures(rng):
    truth = torch.rand(2, 8, 8, generator=rng)
    assert compare_pictures(truth, truth).figures == {"mse": 0, "psnr": 100, "ssim": pytest.approx(1)}
