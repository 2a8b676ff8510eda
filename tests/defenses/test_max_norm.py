import torch
from defenses.contexts import drawing

from vflbench.defenses.max_norm import MaxNorm
from vflbench.numerics.auc import auc


def gradients(rng, n=64, d=16):
    return torch.randn(n, d, generator=rng) * torch.linspace(0.1, 5, n)[:, None]


def test_norms_become_equal_in_expectation_and_the_expected_gradient_is_unchanged(rng):
    g = gradients(rng)
    noisy = torch.stack([MaxNorm().gradient(g, None, drawing(rng)) for _ in range(4000)])
    longest = g.square().sum(1).max()
    assert torch.allclose(noisy.square().sum(2).mean(0), longest.expand(64), rtol=0.1)
    assert (noisy.mean(0) - g).norm(dim=1).max() < 5 * (longest / 4000).sqrt()  # so training goes on


def test_directions_are_kept_and_the_longest_row_is_untouched(rng):
    g = gradients(rng)
    noisy = MaxNorm().gradient(g, None, drawing(rng))
    assert torch.allclose(torch.cosine_similarity(g, noisy, dim=1).abs(), torch.ones(64), atol=1e-5)
    longest = g.norm(dim=1).argmax()
    assert torch.allclose(noisy[longest], g[longest])


def test_the_norm_no_longer_tells_the_classes_apart(rng):
    y = torch.rand(4096, generator=rng) < 0.25
    g = torch.randn(4096, 32, generator=rng) * (1 + 2 * y[:, None])
    assert auc(g.norm(dim=1), y) > 0.99
    # Published code that takes the norm of the whole batch inverts the leak; the maximum is over examples.
    leaks = [auc(MaxNorm().gradient(g, y, drawing(rng)).norm(dim=1), y) for _ in range(5)]
    assert all(0.4 < leak < 0.6 for leak in leaks)


def test_rows_many_orders_shorter_than_the_longest_are_protected_too(rng):
    g = torch.nn.functional.normalize(torch.randn(40, 6, generator=rng)) * torch.logspace(-35, 3, 40)[:, None]
    noisy = torch.stack([MaxNorm().gradient(g, None, drawing(rng)) for _ in range(2000)])
    assert noisy.isfinite().all()
    mean_square = noisy.double().square().sum(2).mean(0)
    assert torch.allclose(mean_square, torch.full((40,), 1e6, dtype=torch.float64), rtol=0.15)


def test_rows_without_direction_stay_zero(rng):
    g = gradients(rng)
    g[3] = 0
    noisy = MaxNorm().gradient(g, None, drawing(rng))
    assert torch.equal(noisy[3], torch.zeros(16))
    assert noisy.isfinite().all()
    assert torch.equal(MaxNorm().gradient(torch.zeros(4, 2), None, drawing(rng)), torch.zeros(4, 2))
