"""Noise on gradients by `gaussian` and `max_norm`, and what participants make of their updates and
orders: `selective_update` and `shuffle`."""

import math

import pytest
import torch
from defenses.contexts import drawing

from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle
from vflbench.numerics.auc import auc


def test_noise_is_as_long_as_the_longest_gradient(rng):
    g = torch.randn(20_000, 16, generator=rng) * torch.linspace(0.1, 3, 20_000)[:, None]
    noise = (Gaussian(ratio=0.5).gradient(g, None, drawing(rng)) - g).double()
    longest = g.double().norm(dim=1).max().item()
    assert noise.square().sum(1).mean().sqrt().item() == pytest.approx(0.5 * longest, rel=0.02)
    assert noise.T.corrcoef().fill_diagonal_(0).abs().max() < 0.03
    assert noise.mean(0).abs().max() < 4 * 0.5 * longest / 4 / math.sqrt(20_000)


def test_an_update_is_one_such_vector(rng):
    u = torch.randn(16, generator=rng)
    noise = torch.stack([Gaussian(ratio=0.5).update(u, drawing(rng)) - u for _ in range(5000)])
    assert noise.square().sum(1).mean().sqrt().item() == pytest.approx(0.5 * u.norm().item(), rel=0.03)


def test_sigma_takes_the_place_of_ratio(rng):
    g = torch.zeros(50_000, 4)
    assert torch.equal(Gaussian().gradient(g, None, drawing(rng)), g)
    assert Gaussian(sigma=0.3).gradient(g, None, drawing(rng)).std().item() == pytest.approx(0.3, rel=0.02)


def test_norms_become_equal_in_expectation_on_the_same_lines_and_the_expected_gradient_is_unchanged(rng):
    g = torch.randn(64, 16, generator=rng) * torch.linspace(0.1, 5, 64)[:, None]
    noisy = torch.stack([MaxNorm().gradient(g, None, drawing(rng)) for _ in range(4000)])
    longest = g.square().sum(1).max()
    assert torch.allclose(noisy.square().sum(2).mean(0), longest.expand(64), rtol=0.1)
    assert (noisy.mean(0) - g).norm(dim=1).max() < 5 * (longest / 4000).sqrt()  # so training goes on
    assert torch.allclose(torch.cosine_similarity(g, noisy[0], dim=1).abs(), torch.ones(64), atol=1e-5)


def test_the_norm_no_longer_tells_the_classes_apart(rng):
    y = torch.rand(4096, generator=rng) < 0.25
    g = torch.randn(4096, 32, generator=rng) * (1 + 2 * y[:, None])
    assert auc(g.norm(dim=1), y) > 0.99
    # Published code that takes the norm of the whole batch inverts the leak; the maximum is over examples.
    leaks = [auc(MaxNorm().gradient(g, y, drawing(rng)).norm(dim=1), y) for _ in range(5)]
    assert all(0.4 < leak < 0.6 for leak in leaks)


def test_rows_many_orders_shorter_than_the_longest_are_protected_too_and_those_without_direction_stay_zero(rng):
    g = torch.nn.functional.normalize(torch.randn(40, 6, generator=rng)) * torch.logspace(-35, 3, 40)[:, None]
    g[3] = 0
    noisy = torch.stack([MaxNorm().gradient(g, None, drawing(rng)) for _ in range(2000)])
    mean_square = noisy.double().square().sum(2).mean(0)
    expected = torch.full((40,), 1e6, dtype=torch.float64).index_fill_(0, torch.tensor([3]), 0)
    assert torch.allclose(mean_square, expected, rtol=0.15)


def test_so_many_coordinates_are_shared_as_they_are(rng):
    u = torch.randn(20, generator=rng)
    for fraction, shared in ((0.1, 2), (0.11, 3), (1.0, 20)):
        for choose in ("largest", "random"):
            sent = SelectiveUpdate(fraction=fraction, choose=choose).update(u, drawing(rng))
            assert (sent != 0).sum() == shared, (fraction, choose)
            assert torch.equal(sent[sent != 0], u[sent != 0]), (fraction, choose)


def test_the_largest_are_the_largest_and_random_ones_change(rng):
    u = torch.arange(-10.0, 10)
    assert SelectiveUpdate(fraction=0.1).update(u, drawing(rng)).nonzero()[:, 0].tolist() == [0, 1]
    random = SelectiveUpdate(fraction=0.1, choose="random")
    drawn = {tuple(random.update(u + 0.5, drawing(rng)).nonzero()[:, 0].tolist()) for _ in range(50)}
    assert len(drawn) > 20


def test_every_epoch_has_a_new_order_of_the_same_rows(rng):
    first, second = (Shuffle().order(torch.arange(100), drawing(rng)) for _ in range(2))
    assert torch.equal(first.sort().values, torch.arange(100))
    assert not torch.equal(first, second)
