import torch

from vflbench.attacks.remainder import log_ratio_of_normals
from vflbench.numerics.auc import auc

ROWS, SHARE = 4000, 0.25


def test_from_a_poor_guess_it_reaches_the_bayes_optimal_ratio(rng):
    y = (torch.rand(ROWS, generator=rng) < SHARE).double()
    x = torch.randn(ROWS, 4, generator=rng).double()
    x[:, :2] *= (1 + 2 * y)[:, None]
    guess = y + 2 * torch.randn(ROWS, generator=rng)
    best = x[:, :2].square().sum(dim=1)
    assert auc(guess, y != 0) < 0.7
    mixing = torch.randn(4, 4, generator=rng).double()
    assert auc(log_ratio_of_normals(1e-9 * x @ mixing, guess, SHARE, 20), y != 0) > auc(best, y != 0) - 0.005


def test_rows_that_are_not_fitted_are_read_as_well_as_those_that_are(rng):
    y = (torch.rand(ROWS, generator=rng) < SHARE).double()
    x = torch.randn(ROWS, 4, generator=rng).double() * (1 + y)[:, None]
    guess = y + torch.randn(ROWS, generator=rng)
    whole, few = (log_ratio_of_normals(x, guess, SHARE, 4, fitted) for fitted in (ROWS, 500))
    assert auc(few, y != 0) > auc(whole, y != 0) - 0.01


def test_of_one_distribution_it_tells_nothing(rng):
    y = torch.rand(ROWS, generator=rng) < SHARE
    x = torch.randn(ROWS, 4, generator=rng).double()
    assert abs(auc(log_ratio_of_normals(x, torch.randn(ROWS, generator=rng).double(), SHARE, 4), y) - 0.5) < 0.03
