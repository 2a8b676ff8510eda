import copy
import math

import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from torch.nn import functional as F

from vflbench.defenses.alibi import Alibi
from vflbench.defenses.label_dp import LabelDp, response_deviation, response_estimate, response_likelihood
from vflbench.defenses.label_gdp import LabelGdp, gaussian_deviation, gaussian_likelihood, most_likely
from vflbench.defenses.label_noise import chances, normals, one_hot, posterior, projected, randomized_response, zero_sum

IDS = torch.arange(20_000)
KEY = 0x1234_5678_9ABC


def test_normals_are_standard_normal_independent_and_the_same_for_the_same_row():
    n = normals(IDS, KEY, 0, 4)
    for column in n.T:
        assert stats.kstest(column.numpy(), "norm").pvalue > 1e-3
    together = torch.cat([n, normals(IDS, 3 * KEY, 0, 2), normals(IDS + 1, KEY, 0, 2)], dim=1)
    off = torch.corrcoef(together.T) - torch.eye(8)
    assert off.abs().max() < 0.036  # five standard deviations
    assert torch.equal(normals(IDS[7:9], KEY, 2, 2), n[7:9, 2:])


def test_zero_sum_noise_adds_up_to_zero_and_is_that_of_its_conditional_law():
    """N(-A / left, (left - 1) / left) given the sum A so far: that of a bridge."""
    visits = 5
    w = torch.cat([zero_sum(IDS, KEY, 1, visits, t) for t in range(visits)], dim=1)
    assert w.sum(dim=1).abs().max() < 1e-12
    assert torch.equal(zero_sum(IDS, KEY, 1, visits, visits), torch.zeros(len(IDS), 1, dtype=torch.float64))
    for t in range(visits - 1):
        left, so_far = visits - t, w[:, :t].sum(dim=1)
        standard = (w[:, t] + so_far / left) / math.sqrt((left - 1) / left)
        assert stats.kstest(standard.numpy(), "norm").pvalue > 1e-3, t
        assert t == 0 or abs(torch.corrcoef(torch.stack([standard, so_far]))[0, 1]) < 0.036
    assert torch.equal(zero_sum(IDS[:3], KEY, 1, 1, 0), torch.zeros(3, 1, dtype=torch.float64))
    assert zero_sum(IDS, KEY, 4, 3, 1).sum(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize("classes", [2, 10])
def test_estimates_are_unbiased_and_their_deviation_is_that_of_the_response(classes):
    eps, n = 0.8, 20_000
    u = (torch.arange(n) + 0.5).double() / n
    for y in (0, classes - 1):
        truth = torch.full((n,), y)
        estimate = response_estimate(randomized_response(truth, classes, eps, u), classes, eps)
        assert torch.allclose(estimate.mean(dim=0), one_hot(truth, classes)[0], atol=1e-3)
        spread = (estimate - one_hot(truth, classes)).square().sum(dim=1).mean().item()
        scale = 1 if classes == 2 else classes - 1  # the trace of I - 11'/K
        assert spread == pytest.approx(response_deviation(classes, eps) ** 2 * scale, rel=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_likelihood_of_a_noisy_response_is_that_of_its_density(classes):
    """Against scipy: a mixture of Gaussians, one for each randomized label."""
    eps, s, rng = 1.3, 0.9, torch.Generator().manual_seed(0)
    columns = 1 if classes == 2 else classes
    noisy = torch.randint(classes, (200,), generator=rng)
    noise = projected(torch.randn(200, columns, generator=rng, dtype=torch.float64))
    x = response_estimate(noisy, classes, eps) + s * noise
    keep, flip = chances(classes, eps)
    centres = response_estimate(torch.arange(classes), classes, eps)
    distance = (x[:, None] - centres[None]).square().sum(dim=2)
    chance = torch.full((classes, classes), flip, dtype=torch.float64).fill_diagonal_(keep)
    density = (-distance / (2 * s * s)).exp() @ chance.T
    expected = density.log() if classes > 2 else (density[:, 1] / density[:, 0]).log()[:, None]
    found = response_likelihood(x, classes, eps, s)
    if classes > 2:
        found, expected = found - found[:, :1], expected - expected[:, :1]
    assert torch.allclose(found, expected, atol=1e-9)


def test_a_noisy_response_tells_no_more_than_eps_at_any_distance():
    x = torch.cat([torch.logspace(-3, 12, 50), -torch.logspace(-3, 12, 50)])[:, None].double() + 0.5
    for eps in (1e-3, 0.75, 800.0):
        for s in (0.0, 1.0, 1e6):
            told = response_likelihood(x, 2, eps, s)
            assert told.abs().max() <= eps * (1 + 1e-12), (eps, s)
            assert (told * (x - 0.5) >= 0).all()
    y = torch.tensor([0, 1])
    assert response_likelihood(response_estimate(y, 2, 0.75), 2, 0.75, 0.0)[:, 0].tolist() == pytest.approx([-0.75, 0.75])
    three = response_likelihood(response_estimate(torch.arange(3), 3, 0.75), 3, 0.75, 0.0)
    assert torch.allclose(three - three[:, :1], torch.tensor([[0, -0.75, -0.75], [0, 0.75, 0], [0, 0, 0.75]]).double())


def test_two_classes_are_the_case_of_k():
    """One column for class 1 and two projected ones say the same."""
    g = torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(100) % 2
    one = one_hot(y, 2) + gaussian_deviation(2, 0.7) * (g[:, 1:] - g[:, :1]) / math.sqrt(2)
    two = F.one_hot(y, 2) + gaussian_deviation(3, 0.7) * projected(g)
    assert torch.allclose(two[:, 1:], one)
    told = gaussian_likelihood(two, 0.7)
    assert torch.allclose(told[:, 1:] - told[:, :1], gaussian_likelihood(one, 0.7))
    assert torch.equal(most_likely(one), most_likely(two))
    logits = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
    both = torch.cat([torch.zeros_like(logits), logits], dim=1)
    assert torch.allclose(posterior(both, told)[:, 1:], posterior(logits, gaussian_likelihood(one, 0.7)))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(
    "defense",
    [LabelDp(), LabelDp(mechanism="lp_2st"), LabelDp(mechanism="zero_sum"), Alibi(), LabelGdp()],
    ids=["dp", "lp_2st", "zero_sum", "alibi", "gdp"],
)
def test_a_row_keeps_its_label_in_any_batch_order_process_and_after_any_state(rng, defense, classes):
    n = 3000
    ids, y = torch.randperm(3 * n, generator=rng)[:n], torch.randint(classes, (n,), generator=rng)
    logits = torch.randn(n, 1 if classes == 2 else classes, generator=rng)
    begun, elsewhere = copy.deepcopy(defense), copy.deepcopy(defense)
    first = torch.cat([begun.labels(y[s], logits[s], drawing(rng, ids[s])) for s in torch.arange(n).chunk(7)])
    assert 0.1 < (first != y).double().mean() < 0.8
    order = torch.randperm(n, generator=rng)
    again = begun.labels(y[order], -3 * logits[order], drawing(rng, ids[order]))  # the model says something else by now
    assert torch.equal(again, first[order])
    elsewhere.restore(begun.state())
    assert torch.equal(elsewhere.labels(y, -logits, drawing(torch.Generator().manual_seed(99), ids)), first)
