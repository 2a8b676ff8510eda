"""Noise on labels: its formulas, the same noise for the same row, and in a training loop of one's own that of a run."""

import copy
import math

import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from support.builders import session, table, whole_network
from torch.nn import functional as F

from vflbench.defenses.alibi import Alibi
from vflbench.defenses.label_dp import LabelDp, response_deviation, response_estimate, response_likelihood
from vflbench.defenses.label_gdp import LabelGdp, gaussian_deviation, gaussian_likelihood, most_likely
from vflbench.defenses.label_noise import chances, normals, one_hot, posterior, projected, randomized_response, zero_sum
from vflbench.defenses.tpsl import Tpsl
from vflbench.errors import UserError

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
    *shares, after = (zero_sum(IDS, KEY, 1, visits, t) for t in range(visits + 1))
    w = torch.cat(shares, dim=1)
    assert w.sum(dim=1).abs().max() < 1e-12
    assert not after.any()
    for t in range(visits - 1):
        left, so_far = visits - t, w[:, :t].sum(dim=1)
        standard = (w[:, t] + so_far / left) / math.sqrt((left - 1) / left)
        assert stats.kstest(standard.numpy(), "norm").pvalue > 1e-3, t
        assert t == 0 or abs(torch.corrcoef(torch.stack([standard, so_far]))[0, 1]) < 0.036
    assert not zero_sum(IDS[:3], KEY, 1, 1, 0).any()
    assert zero_sum(IDS, KEY, 4, 3, 1).sum(dim=1).abs().max() < 1e-12


def test_zero_sum_adds_noise_of_the_stated_variance_to_an_estimate_that_stays():
    """x_t by its posterior: it has the mean (y' - q) / (1 - 2q) over T epochs, and the variance (T - 1) sd^2 about it."""
    visits, q = 4, 1 / (1 + math.e)
    defense, nothing = LabelDp(eps=1.0, mechanism="zero_sum"), torch.zeros(len(IDS), 1, dtype=torch.float64)
    defense.plan(visits)
    rng = torch.Generator().manual_seed(3)
    heard = [defense.release(IDS % 2, nothing, drawing(rng, IDS, epoch)) for epoch in range(visits)]
    odds = torch.cat([targets for _, targets, _ in heard], dim=1).logit()
    u = torch.log(torch.expm1(odds + 1)) - odds - torch.log(torch.expm1(1 - odds))
    variance = q * (1 - q) / (1 - 2 * q) ** 2
    x = 0.5 + u * (1 - 2 * q) * (visits - 1) * variance
    assert torch.allclose(x.mean(dim=1), (heard[0][0].double() - q) / (1 - 2 * q), atol=1e-6)
    assert x.var(dim=1, correction=0).mean().item() == pytest.approx((visits - 1) * variance, rel=0.03)


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
    expected, likelihood = (density / density[:, :1]).log(), response_likelihood(x, classes, eps, s)
    likelihood = F.pad(likelihood, (1, 0)) if classes == 2 else likelihood - likelihood[:, :1]
    assert torch.allclose(likelihood, expected, atol=1e-9)


def test_a_noisy_response_tells_no_more_than_eps_at_any_distance():
    x = torch.cat([torch.logspace(-3, 12, 50), -torch.logspace(-3, 12, 50)])[:, None].double() + 0.5
    for eps in (1e-3, 0.75, 800.0):
        for s in (0.0, 1.0, 1e6):
            likelihood = response_likelihood(x, 2, eps, s)
            assert likelihood.abs().max() <= eps * (1 + 1e-12), (eps, s)
            assert (likelihood * (x - 0.5) >= 0).all()
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
    likelihood = gaussian_likelihood(two, 0.7)
    assert torch.allclose(likelihood[:, 1:] - likelihood[:, :1], gaussian_likelihood(one, 0.7))
    assert torch.equal(most_likely(one), most_likely(two))
    logits = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(
        posterior(F.pad(logits, (1, 0)), likelihood)[:, 1:], posterior(logits, gaussian_likelihood(one, 0.7))
    )


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(
    "defense", [LabelDp(), LabelDp(mechanism="lp_2st"), LabelDp(mechanism="zero_sum"), Alibi(), LabelGdp()]
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


DEFENSES = {
    "label_gdp": LabelGdp(mu=0.7),
    "label_gdp, estimate": LabelGdp(mu=0.7, target="estimate"),
    "randomized response": LabelDp(eps=1.0),
    "debiased": LabelDp(eps=1.0, debias=True),
    "posterior": LabelDp(eps=1.0, target="posterior"),
    "zero_sum": LabelDp(eps=1.0, mechanism="zero_sum"),
    "alibi": Alibi(eps=1.0),
}


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_in_a_loop_of_ones_own_the_loss_of_each_batch_is_that_of_a_run(rng, name, classes):
    rows = table(rng, classes=classes)
    run = session(rows, defenses=[DEFENSES[name]])
    (inside,) = run.label_party.defense.named.values()
    inside.plan(3)
    loss_of = None
    for epoch in range(3):
        logits = whole_network(run, rows)[1].detach()
        expected = run.round(rows.ids, epoch=epoch).training.loss
        loss_of = loss_of or DEFENSES[name].training_loss(epochs=3, key=inside._key)
        logits.requires_grad_()
        loss = loss_of(logits, rows.labels, rows.ids, epoch)
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        assert torch.autograd.grad(loss, logits)[0].abs().sum() > 0


@pytest.mark.parametrize(
    ("defense", "returns"),
    [(LabelGdp(), True), (LabelDp(), True), (Tpsl(), False), (LabelDp(fresh_every_epoch=True), False)],
)
def test_noise_follows_from_the_key_and_where_it_is_drawn_anew_from_nothing_that_returns(rng, defense, returns):
    rows, logits = table(rng), torch.randn(64, 1, generator=rng)
    losses = [defense.training_loss(epochs=2, key=key)(logits, rows.labels, rows.ids, 0) for key in (5, 5, 6)]
    assert (losses[0] == losses[1]) == returns
    assert losses[0] != losses[2]


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.float64])
def test_types_of_numbers_change_no_noise(rng, name, kind):
    """Noise that was computed in 32 bits was none."""
    logits, y, ids = torch.randn(90, 1, generator=rng), torch.arange(90) % 2, torch.arange(90)
    loss, other = (DEFENSES[name].training_loss(epochs=2, key=5) for _ in range(2))
    assert loss(logits, y, ids, 1) == other(logits, y.to(kind), ids if kind.is_floating_point else ids.to(kind), 1)


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("y", torch.tensor([0, 2, 0, 2])),
        ("y", torch.tensor([0.0, 0.5, 1.0, 1.0])),
        ("y", torch.tensor([[0], [1], [0], [1]])),
        ("ids", torch.tensor([0, 1, 2, -3])),
        ("ids", torch.tensor([0.0, 1.0, 2.0, 3.0])),  # from 2^24 on, rows would share their noise
        ("ids", torch.tensor([0, 1, 2, 2**62])),  # times 2, as Laplace noise of two classes takes it, wraps around
        ("epoch", 2),
        ("logits", torch.zeros(4, 2)),
    ],
)
def test_what_would_hide_less_than_promised_is_refused(key, changed):
    given = {"logits": torch.zeros(4, 1), "y": torch.tensor([0, 1, 0, 1]), "ids": torch.arange(4), "epoch": 0}
    loss = LabelGdp().training_loss(epochs=2, key=5)
    assert loss(**given).isfinite()
    with pytest.raises(UserError, match=rf"^{key}"):
        loss(**given | {key: changed})


@pytest.mark.parametrize(("epochs", "key"), [(0, 5), (1.5, 5), (2, None), (2, -5), (2, 2**63)])
def test_epochs_and_keys_are_whole_numbers(epochs, key):
    with pytest.raises(UserError, match=r"^(epochs|key)"):
        LabelGdp().training_loss(epochs=epochs, key=key)


def test_a_mechanism_that_remembers_rows_is_refused_and_a_claim_names_the_epochs():
    with pytest.raises(UserError, match="mechanism=lp_2st"):
        LabelDp(mechanism="lp_2st").training_loss(epochs=2, key=5)
    defense = LabelGdp()
    defense.training_loss(epochs=7, key=5)
    assert "fresh in each of 7 epochs" in defense.guarantee().claim
