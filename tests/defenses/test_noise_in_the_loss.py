"""Noise between label and loss: `alibi`, `label_gdp` and `tpsl`, what it is, and what the best reader makes of it."""

import math

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from torch.nn import functional as F

from vflbench.defenses.alibi import Alibi, row_noise
from vflbench.defenses.chain import Chain, claims_of
from vflbench.defenses.label_dp import LabelDp, class_losses
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.tpsl import Tpsl
from vflbench.metrics.privacy import Exposure, leak_auc_ceiling
from vflbench.numerics.auc import auc
from vflbench.numerics.hashing import derived


def logits_for(n, classes, dtype=torch.float32):
    return torch.zeros(n, 1 if classes == 2 else classes, dtype=dtype)


def test_the_noise_of_a_row_is_laplace_in_each_coordinate_and_independent():
    n, classes, scale = 50_000, 5, 2.0
    noise = row_noise(torch.arange(n), classes, scale, key=12345)
    for column in noise.T:
        assert stats.kstest(column.numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-4
    neighbours = torch.corrcoef(torch.cat([noise[1:], noise[:-1]], dim=1).T)
    assert (neighbours - torch.eye(2 * classes)).abs().max() < 5 / math.sqrt(n)


@pytest.mark.parametrize("prior", ["uniform", "prediction"])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_loss_is_the_cross_entropy_to_the_posterior_by_bayes_rule(rng, classes, prior):
    n, eps = 40, 0.8
    y = torch.randint(classes, (n,), generator=rng)
    logits = torch.randn(n, 1 if classes == 2 else classes, generator=rng, dtype=torch.float64)
    defense = Alibi(eps=eps, prior=prior)
    seen = defense.labels(y, logits, drawing(rng, torch.arange(n)))
    wide = torch.cat([torch.zeros_like(logits), logits], 1) if classes == 2 else logits
    x = F.one_hot(y, classes) + row_noise(torch.arange(n), classes, 2 / eps, derived(defense._key, eps))
    density = stats.laplace(scale=2 / eps).pdf((x[:, None] - torch.eye(classes, dtype=torch.float64)).numpy())
    weighted = torch.from_numpy(density).prod(dim=2) * (wide.softmax(1) if prior == "prediction" else 1)
    assert torch.allclose(defense.loss(logits, seen), F.cross_entropy(wide, weighted / weighted.sum(1, keepdim=True)))
    assert torch.equal(seen, x.argmax(1))


def best_reading(eps):
    """AUC of the likelihood ratio of x, from the distribution of clip(2 x_j - 1, -1, 1) on a grid."""
    edges = (np.linspace(-1, 1, 2001)[:-1] + 1) / 2
    mass = [np.diff(np.r_[0, stats.laplace(loc=place, scale=2 / eps).cdf(edges), 1]) for place in (0, 1)]
    other = np.convolve(mass[0], mass[1][::-1])  # class 0: x_1 - x_0
    return float((other[::-1] * (np.cumsum(other) - other / 2)).sum())


@pytest.mark.parametrize("eps", [0.5, 3.0])
def test_the_best_reader_of_all_epochs_stays_below_the_ceiling_and_reads_what_theory_says(rng, eps):
    """The soft labels of all epochs, each less the prediction that the reader knows, tell what one of them does."""
    n = 100_000
    y = (torch.rand(n, generator=rng) < 0.25).long()
    defense, evidence = Alibi(eps=eps), torch.zeros(n, dtype=torch.float64)
    for _ in range(5):
        logits = torch.randn(n, 1, generator=rng)
        defense.labels(y, logits, drawing(rng, torch.arange(n)))
        evidence += torch.logit(defense._targets[:, 1]) - logits[:, 0].double()
    reading = auc(evidence, y)
    assert reading == pytest.approx(best_reading(eps), abs=0.008)
    assert best_reading(eps) < leak_auc_ceiling(eps)
    assert defense.guarantee().leak_auc_after(Exposure(epochs=5, messages=10)) == leak_auc_ceiling(eps) > reading


def targets(defense, y, epoch, rng, classes=2):
    """What the residual p - target is made of, for p = 1/K: all that anything else is computed from."""
    logits = logits_for(len(y), classes, torch.float64).requires_grad_()
    seen = defense.labels(y, logits.detach(), drawing(rng, torch.arange(len(y)), epoch))
    defense.loss(logits, seen).backward()
    return 1 / classes - len(y) * logits.grad[:, 0 if classes == 2 else slice(None)]


def planned(epochs, **options):
    defense = LabelGdp(**options)
    defense.plan(epochs)
    return defense


@pytest.mark.parametrize("target", ["estimate", "posterior"])
def test_the_best_reader_of_all_epochs_reaches_the_ceiling_and_no_more(rng, target):
    """Features say nothing and the reader knows the network: it adds up what each residual tells."""
    n, mu = 100_000, 0.661
    y = torch.randint(2, (n,), generator=rng)
    for epochs in (1, 5):
        defense = planned(epochs, mu=mu, target=target)
        read = [targets(defense, y, epoch, rng) for epoch in range(epochs)]
        evidence = [torch.logit(one) if target == "posterior" else one for one in read]
        assert auc(evidence[0], y) == pytest.approx(defense.guarantee().leak_auc_after(Exposure()), abs=0.007)
        assert auc(sum(evidence), y) == pytest.approx(stats.norm.cdf(mu / math.sqrt(2)), abs=0.007), epochs
        assert defense.guarantee().leak_auc_after(Exposure(epochs, epochs)) == pytest.approx(0.680, abs=5e-4)


def test_visits_after_the_plan_and_twice_in_an_epoch_tell_nothing_new(rng):
    """More visits than planned with fresh noise would raise mu: 20 of them to sqrt(10) times."""
    y = torch.randint(2, (10_000,), generator=rng)
    defense = planned(2, mu=0.661, target="estimate")
    first, second, *after = [targets(defense, y, epoch, rng) for epoch in range(20)]
    for late in after:
        assert torch.allclose(late, (first + second) / 2)
    assert torch.equal(targets(defense, y, 1, rng), second)


def test_noise_once_is_one_draw_for_any_number_of_epochs(rng):
    y = torch.randint(2, (100_000,), generator=rng)
    defense = planned(7, mu=0.661, noise="once", target="estimate")
    first, *later = [targets(defense, y, epoch, rng) for epoch in (0, 3, 11)]
    assert all(torch.equal(drawn, first) for drawn in later)
    assert (first - y).std().item() == pytest.approx(1 / 0.661, rel=0.01)
    assert defense.guarantee().leak_auc_after(Exposure()) == pytest.approx(0.680, abs=5e-4)


def test_k_classes_have_projected_noise_that_makes_any_two_mu_apart(rng):
    n, mu, classes = 100_000, 0.9, 4
    y, ceiling = torch.randint(classes, (n,), generator=rng), stats.norm.cdf(mu / math.sqrt(2))
    defense = planned(2, mu=mu, target="estimate")
    x = sum(targets(defense, y, epoch, rng, classes) for epoch in (0, 1)) / 2
    noise = x - F.one_hot(y, classes)
    assert noise.sum(dim=1).abs().max() < 1e-9
    assert torch.allclose(torch.cov(noise.T), 2 / mu**2 * (torch.eye(classes).double() - 1 / classes), atol=0.04)
    pair = (y == 1) | (y == 3)
    assert auc(x[pair, 3] - x[pair, 1], y[pair] == 3) == pytest.approx(ceiling, abs=0.006)
    assert max(auc(x[:, one], y == one) for one in range(classes)) < ceiling + 0.005


def test_what_it_hands_on_is_computed_from_the_noisy_label(rng):
    """The true label reaches no other defense: what is handed on errs as the noise says."""
    n = 100_000
    y = torch.randint(2, (n,), generator=rng)
    seen = planned(1, mu=0.661).labels(y, torch.zeros(n, 1), drawing(rng, torch.arange(n)))
    assert (seen == y).double().mean().item() == pytest.approx(stats.norm.cdf(0.661 / 2), abs=0.006)


def test_noise_drawn_once_promises_nothing_of_labels_that_change(rng):
    """Of y'_t + e with one e for all t, the smaller of two values is e and the larger 1 + e: each y'_t is read exactly."""
    n, epochs = 4000, 12
    fresh, once = LabelDp(eps=1.0, fresh_every_epoch=True), LabelGdp(mu=0.5, noise="once")
    both = Chain({"label_dp": fresh, "label_gdp": once})
    both.plan(epochs)
    y = torch.randint(2, (n,), generator=rng)
    x = torch.stack([targets(both, y, epoch, rng) for epoch in range(epochs)])
    low, high = x.aminmax(dim=0)
    ones = (x - low > high - x).sum(dim=0)
    assert auc(ones[low < high], y[low < high]) > 0.95 > 0.65 > LabelGdp(mu=0.5).guarantee().leak_auc_after(Exposure(epochs))
    for chain, refused in (
        ([fresh, once], {"1"}),
        ([LabelGdp(), fresh], {"1"}),  # label_dp, which comes too late
        ([fresh, LabelGdp(noise="fresh")], set()),
        ([fresh, Alibi()], {"1"}),
        ([LabelDp(), once], set()),
    ):
        assert set(claims_of({str(place): one for place, one in enumerate(chain)}).refused) == refused


@pytest.mark.parametrize(("classes", "noise"), [(2, "laplace"), (2, "bernoulli"), (4, "laplace")])
def test_gradients_move_by_multiples_of_those_that_other_labels_would_have(rng, classes, noise):
    """By u along g(1 - y) - g(y) of two classes; by u_c g(c) for each of K. Of a top with a hidden layer."""
    n, width = 30, 1 if classes == 2 else classes
    h = torch.randn(n, 6, generator=rng, dtype=torch.float64).requires_grad_()
    layers = [torch.randn(shape, generator=rng, dtype=torch.float64) for shape in ((6, 8), (8, width))]
    logits, y = (h @ layers[0]).tanh() @ layers[1], torch.randint(classes, (n,), generator=rng)

    def gradient_of(loss):
        return torch.autograd.grad(loss, h, retain_graph=True)[0]

    def had_it(label):
        """(n, d): the gradient of each row, times n, had it this class."""
        return gradient_of(class_losses(logits).gather(1, label[:, None]).sum())

    defense = Tpsl(noise=noise)
    sent = gradient_of(defense.loss(logits, defense.labels(y, logits.detach(), drawing(rng))))
    u = defense._targets - F.one_hot(y, classes)
    if classes == 2:
        u = (1 - 2 * y) * u[:, 1]  # t = y + (1 - 2 y) u
        assert u.abs().max() > 0.5
        moved = u[:, None] * (had_it(1 - y) - had_it(y))
    else:
        moved = sum(u[:, c, None] * had_it(torch.full((n,), c)) for c in range(classes))
    assert torch.allclose(n * sent, had_it(y) + moved)


def test_noise_is_laplace_of_scale_1_over_eps_or_2_over_eps_and_new_at_each_call(rng):
    n, eps = 50_000, 0.5
    for classes, scale in ((2, 1 / eps), (3, 2 / eps)):
        y = torch.randint(classes, (n,), generator=rng)
        defense, draws = Tpsl(eps=eps), []
        for _ in range(2):
            defense.labels(y, logits_for(n, classes), drawing(rng, torch.arange(n)))
            draws.append(defense._targets - F.one_hot(y, classes))
        noise = torch.cat([draws[0], draws[1][:, :1]], dim=1)
        for column in noise.T:
            assert stats.kstest(column.numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-4, classes
        if classes == 2:  # one number, in both columns
            assert torch.allclose(noise[:, 0], -noise[:, 1], atol=1e-12)
        correlation = torch.corrcoef((noise[:, 1:] if classes == 2 else noise).T)
        assert correlation.triu(1).abs().max() < 5 / math.sqrt(n), classes


@pytest.mark.parametrize("noise", ["laplace", "bernoulli"])
def test_the_best_reader_joins_epochs_and_stays_below_the_composed_ceiling(rng, noise):
    """Laplace's log-likelihood ratio of a residual with noise is eps (|t| - |t - 1|); that of a flipped label +-eps."""
    n, eps, epochs = 60_000, 0.5, 6
    y = (torch.rand(n, generator=rng) < 0.25).long()
    defense, evidence, after = Tpsl(eps=eps, noise=noise), torch.zeros(n, dtype=torch.float64), []
    for _ in range(epochs):
        defense.labels(y, torch.zeros(n, 1), drawing(rng, torch.arange(n)))
        t = defense._targets[:, 1]
        evidence += eps * (t.abs() - (t - 1).abs())
        after.append(auc(evidence, y))
    ceilings = [Tpsl(eps=eps).guarantee().leak_auc_after(Exposure(epochs=k)) for k in range(1, epochs + 1)]
    assert ceilings == [leak_auc_ceiling(eps, k) for k in range(1, epochs + 1)]
    assert after[-1] > after[0] + 0.1
    if noise == "bernoulli":
        assert after == pytest.approx(ceilings, abs=0.01)
    else:
        assert after[0] == pytest.approx(1 - math.exp(-eps) * (2 + eps) / 4, abs=0.01)  # two Laplace numbers, 1 apart
        assert all(reading < ceiling for reading, ceiling in zip(after, ceilings, strict=True))
