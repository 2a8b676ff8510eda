import math

import pytest
import torch
from defenses.contexts import drawing
from scipy import stats

from vflbench.defenses.alibi import Alibi
from vflbench.defenses.chain import Chain, claims_of
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.metrics.privacy import Exposure
from vflbench.numerics.auc import auc


def residuals(defense, y, epoch, rng, logits=None):
    """n times the gradient of the loss in the logits, for p = 1/2: p - target; all that anything else is computed from."""
    logits = torch.zeros(len(y), 1, dtype=torch.float64) if logits is None else logits
    logits.requires_grad_()
    seen = defense.labels(y, logits.detach(), drawing(rng, torch.arange(len(y)), epoch))
    defense.loss(logits, seen).backward()
    return len(y) * logits.grad.detach()


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
        defense, total = planned(epochs, mu=mu, target=target), 0
        for epoch in range(epochs):
            told = 0.5 - residuals(defense, y, epoch, rng)[:, 0]  # the target
            total = total + (torch.logit(told) if target == "posterior" else told)
            if epoch == 0:
                one = auc(total, y)
                assert one == pytest.approx(defense.guarantee().leak_auc_after(Exposure()), abs=0.007)
        assert auc(total, y) == pytest.approx(stats.norm.cdf(mu / math.sqrt(2)), abs=0.007), epochs
        assert defense.guarantee().leak_auc_after(Exposure(epochs, epochs)) == pytest.approx(0.680, abs=5e-4)


def test_visits_after_the_plan_and_twice_in_an_epoch_tell_nothing_new(rng):
    """More visits than planned with fresh noise would raise mu: 20 of them to sqrt(10) times."""
    n = 100_000
    y = torch.randint(2, (n,), generator=rng)
    defense = planned(2, mu=0.661, target="estimate")
    first, second, *after = [0.5 - residuals(defense, y, epoch, rng)[:, 0] for epoch in range(20)]
    for late in after:
        assert torch.allclose(late, (first + second) / 2)
    assert torch.equal(0.5 - residuals(defense, y, 1, rng)[:, 0], second)
    assert auc(first + second + sum(after), y) < 0.680 + 0.005


def test_noise_once_is_one_draw_for_any_number_of_epochs(rng):
    y = torch.randint(2, (100_000,), generator=rng)
    defense = planned(7, mu=0.661, noise="once", target="estimate")
    drawn = [residuals(defense, y, epoch, rng) for epoch in (0, 3, 11)]
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])
    assert (0.5 - drawn[0][:, 0] - y).std().item() == pytest.approx(1 / 0.661, rel=0.01)
    assert defense.guarantee().leak_auc_after(Exposure()) == pytest.approx(0.680, abs=5e-4)


def test_k_classes_have_projected_noise_that_makes_any_two_mu_apart(rng):
    n, mu, classes = 100_000, 0.9, 4
    y = torch.randint(classes, (n,), generator=rng)
    defense = planned(2, mu=mu, target="estimate")
    x = sum(1 / classes - residuals(defense, y, e, rng, torch.zeros(n, classes, dtype=torch.float64)) for e in (0, 1)) / 2
    noise = x - torch.nn.functional.one_hot(y, classes)
    assert noise.sum(dim=1).abs().max() < 1e-9
    expected = 2 / mu**2 * (torch.eye(classes, dtype=torch.float64) - 1 / classes)
    assert torch.allclose(torch.cov(noise.T), expected, atol=0.04)
    pair = (y == 1) | (y == 3)
    best = x[pair, 3] - x[pair, 1]
    assert auc(best, y[pair] == 3) == pytest.approx(stats.norm.cdf(mu / math.sqrt(2)), abs=0.006)
    for one in range(classes):
        assert auc(x[:, one], y == one) < stats.norm.cdf(mu / math.sqrt(2)) + 0.005


def test_what_it_hands_on_is_computed_from_the_noisy_label(rng):
    """The true label reaches no other defense: what is handed on errs as the noise says."""
    n = 100_000
    y = torch.randint(2, (n,), generator=rng)
    seen = planned(1, mu=0.661).labels(y, torch.zeros(n, 1), drawing(rng, torch.arange(n)))
    assert (seen == y).double().mean().item() == pytest.approx(stats.norm.cdf(0.661 / 2), abs=0.006)


def test_noise_drawn_once_promises_nothing_of_labels_that_change(rng):
    """Of y'_t + e with one e for all t, the smaller of two values is e and the larger 1 + e: each y'_t is read exactly."""
    n, epochs = 4000, 12
    chain = {"label_dp": LabelDp(eps=1.0, fresh_every_epoch=True), "label_gdp": LabelGdp(mu=0.5, noise="once")}
    both = Chain(chain)
    both.plan(epochs)
    y = torch.randint(2, (n,), generator=rng)
    x = torch.stack([residuals(both, y, epoch, rng)[:, 0] for epoch in range(epochs)])
    low, high = x.max(dim=0).values, x.min(dim=0).values  # the residual is p - x_t
    ones = (low - x > x - high).sum(dim=0)
    assert auc(ones[low > high], y[low > high]) > 0.95 > 0.65 > LabelGdp(mu=0.5).guarantee().leak_auc_after(Exposure(epochs))
    assert set(claims_of(chain).refused) == {"label_gdp"}
    for others, refused in (
        ([LabelGdp(), chain["label_dp"]], {"1"}),  # label_dp, which comes too late
        ([chain["label_dp"], LabelGdp(noise="fresh")], set()),
        ([chain["label_dp"], Alibi()], {"1"}),
        ([LabelDp(), LabelGdp(noise="once")], set()),
    ):
        assert set(claims_of({str(place): one for place, one in enumerate(others)}).refused) == refused
