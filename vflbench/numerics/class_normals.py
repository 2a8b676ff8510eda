"""Two normal distributions of any covariance with known shares, from a first guess of who belongs to which."""

import math

import torch
from torch import Tensor

_SMALLEST = 1e-6  # of the mean variance, added to each: a covariance of low rank has an inverse


def log_ratio_of_normals(x: Tensor, guess: Tensor, share: float, iterations: int, fitted: int = 2048) -> Tensor:
    """log N(x_i; m1, S1) / N(x_i; m0, S0), the most likely means and covariances after steps of expectation-maximisation.

    x: (n, d) float64, in any units. guess: (n,), log-likelihood ratios to start from. share: of class 1, in (0, 1).
    fitted: rows, spread evenly, to which both are fitted, at most. Returns (n,), up to a constant. A row's constant
    coordinates add nothing.
    """
    spread = x.std(dim=0, correction=0)
    unit = (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
    places = torch.linspace(0, len(x) - 1, min(len(x), fitted), device=x.device).long()
    prior, sample, ratio = math.log(share / (1 - share)), unit[places], guess[places]
    for step in range(iterations):
        weights, asked = torch.sigmoid(prior + ratio), sample if step + 1 < iterations else unit
        ratio = _log_density(asked, sample, weights) - _log_density(asked, sample, 1 - weights)
    return ratio


def _log_density(asked: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """At rows (m, d), of the normal distribution with the weighted mean and covariance of x (n, d), up to a constant.
    weights: (n,).
    """
    weights = weights / weights.sum().clamp_min(1e-9)
    mean = weights @ x
    centred = x - mean
    covariance = centred.T @ (centred * weights[:, None])
    covariance.diagonal().add_(_SMALLEST * covariance.diagonal().mean() + 1e-12)
    root = torch.linalg.cholesky(covariance)
    squares = torch.linalg.solve_triangular(root, (asked - mean).T, upper=False).square().sum(dim=0)
    return -0.5 * squares - root.diagonal().log().sum()
