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
