import pytest
import torch
from attacks.views import gradients, scores_of, shares
from scipy import stats

from vflbench.attacks.remainder import Remainder, log_ratio_of_normals, log_remainders
from vflbench.numerics.auc import auc


def low_rank(rng, n=1000, d=32, rank=4, positive=0.25, rest=0.02, noise=0.3, noisy=0):
    """Gradients in `rank` directions, a small rest everywhere, and isotropic noise on the rows of one class alone."""
    y = torch.rand(n, generator=rng) < positive
    directions = torch.linalg.qr(torch.randn(d, d, generator=rng)).Q[:rank]
    strength = 4.0 * 0.7 ** torch.arange(rank)
    g = (torch.randn(n, rank, generator=rng) * strength) @ directions + rest * torch.randn(n, d, generator=rng)
    g += noise * (y == bool(noisy))[:, None] * torch.randn(n, d, generator=rng)
    return g, y


def scores(g, prior=0.25, **options):
    return scores_of(Remainder(**options), gradients(g), shares(prior))


@pytest.mark.parametrize(("d", "rank"), [(8, 2), (128, 30)])
def test_noise_on_one_class_tells_it_at_every_width_without_a_rank(rng, d, rank):
    for positive in (0.1, 0.25, 0.75):
        for noisy in (0, 1):
            g, y = low_rank(rng, d=d, rank=rank, positive=positive, noisy=noisy)
            assert auc(scores(g, positive), y) > 0.98, (positive, noisy)


def test_a_given_rank_reaches_the_bayes_optimal_detector(rng):
    """Of classes N(0, S + t^2 I) and N(0, S + t^2 I + s^2 I), S of rank r and large: the squared remainders are chi-square
    numbers with d - r degrees of freedom, in the ratio 1 + s^2 / t^2, and nothing else tells the classes apart.
    """
    d, rank, rest, noise = 16, 4, 0.1, 0.07
    g, y = low_rank(rng, n=20_000, d=d, rank=rank, rest=rest, noise=noise)
    optimum = stats.f.cdf(1 + (noise / rest) ** 2, d - rank, d - rank)
    assert auc(scores(g, rank=rank), y) == pytest.approx(optimum, abs=0.01)


def test_remainders_are_those_of_the_singular_value_decomposition(rng):
    g = torch.randn(50, 12, generator=rng, dtype=torch.float64)
    v = torch.linalg.svd(g, full_matrices=False).Vh[:5]
    rest, ours = (g - g @ v.T @ v).norm(dim=1), log_remainders(g, [5])[0]
    assert torch.allclose(ours - ours[0], (rest / rest[0]).log() * 2)


def test_from_a_poor_guess_it_reaches_the_bayes_optimal_ratio(rng):
    y = torch.rand(4000, generator=rng) < 0.25
    x = torch.randn(4000, 4, generator=rng).double()
    x[:, :2] *= (1 + 2 * y.double())[:, None]
    guess, best = y.double() + 2 * torch.randn(4000, generator=rng), x[:, :2].square().sum(dim=1)
    assert auc(guess, y) < 0.7
    mixed = 1e-9 * x @ torch.randn(4, 4, generator=rng).double()
    assert auc(log_ratio_of_normals(mixed, guess, 0.25, 20), y) > auc(best, y) - 0.005
