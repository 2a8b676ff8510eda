import math

import pytest
import torch
from defenses.contexts import drawing

from vflbench.defenses.gaussian import Gaussian


def test_noise_is_as_long_as_the_longest_gradient(rng):
    for unit in (1e-30, 1.0, 1e15):
        g = torch.randn(20_000, 16, generator=rng) * torch.linspace(0.1, 3, 20_000)[:, None] * unit
        noise = (Gaussian(ratio=0.5).gradient(g, None, drawing(rng)) - g).double()
        longest = g.double().norm(dim=1).max().item()
        assert noise.square().sum(1).mean().sqrt().item() == pytest.approx(0.5 * longest, rel=0.02), unit
        assert noise.T.corrcoef().fill_diagonal_(0).abs().max() < 0.03, unit
        assert noise.mean(0).abs().max() < 4 * 0.5 * longest / 4 / math.sqrt(20_000), unit


def test_an_update_is_one_such_vector(rng):
    u = torch.randn(16, generator=rng)
    noise = torch.stack([Gaussian(ratio=0.5).update(u, drawing(rng)) - u for _ in range(5000)])
    assert noise.square().sum(1).mean().sqrt().item() == pytest.approx(0.5 * u.norm().item(), rel=0.03)


def test_sigma_takes_the_place_of_ratio(rng):
    g = torch.zeros(50_000, 4)
    assert torch.equal(Gaussian().gradient(g, None, drawing(rng)), g)
    noise = Gaussian(sigma=0.3).gradient(g, None, drawing(rng))
    assert noise.std().item() == pytest.approx(0.3, rel=0.02)
    assert Gaussian(sigma=0.3).guarantee() is None
