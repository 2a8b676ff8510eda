import itertools
import math
from itertools import product

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy import stats

from vflbench.cli.components import construct
from vflbench.defenses.label_dp import LabelDP, LabelDp, class_losses, randomized_response, response_with_prior
from vflbench.errors import UserError
from vflbench.metrics.privacy import Exposure
from vflbench.numerics.auc import auc

FINE = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000  # stands for the unit interval


def logits_for(n, classes):
    return torch.zeros(n, 1 if classes == 2 else classes)


def transitions(classes, mechanism):
    """(K, K) probabilities of what a mechanism (y, u) -> y' gives for each class, from a fine grid of u."""
    counts = [mechanism(torch.full((len(FINE),), y), FINE).bincount(minlength=classes) for y in range(classes)]
    return torch.stack(counts).double() / len(FINE)


def test_measured_frequencies_are_those_of_the_mechanism(rng):
    n = 100_000
    for classes, fresh, eps in ((2, False, 1.0), (2, False, 0.0), (3, False, 3.0), (10, True, 1.0)):
        y = torch.randint(classes, (n,), generator=rng)
        defense = LabelDp(eps=eps, fresh_every_epoch=fresh)
        noisy = defense.labels(y, logits_for(n, classes), drawing(rng, torch.arange(n)))
        q = 1 / (classes - 1 + math.exp(eps))
        for true in range(classes):
            counts = noisy[y == true].bincount(minlength=classes).numpy()
            chances = np.where(np.arange(classes) == true, q * math.exp(eps), q)
            assert stats.chisquare(counts, chances / chances.sum() * counts.sum()).pvalue > 1e-4, (classes, fresh, true)
        assert defense.figures()["flip_rate"] == pytest.approx(1 - q * math.exp(eps), abs=0.005), (classes, fresh)
        assert defense.figures() == {}


def expected_response(p, eps):
    """Ghazi et al., Algorithms 1 and 2, row by row: (K, K) transition probabilities."""
    order = sorted(range(len(p)), key=lambda j: -p[j])
    weights = [math.exp(eps) / (math.exp(eps) + k - 1) * sum(p[j] for j in order[:k]) for k in range(1, len(p) + 1)]
    k = max(range(1, len(p) + 1), key=lambda size: weights[size - 1])
    matrix = torch.zeros(len(p), len(p), dtype=torch.float64)
    for y, j in product(range(len(p)), order[:k]):
        matrix[y, j] = (math.exp(eps) if j == y else 1) / (math.exp(eps) + k - 1) if y in order[:k] else 1 / k
    return matrix


def test_response_with_a_prior_is_the_published_one_and_keeps_eps():
    priors = ((0.5, 0.5), (0.9, 0.1), (0.25, 0.25, 0.25, 0.25), (0.1, 0.45, 0.4, 0.05), (0.02, 0.03, 0.95))
    for p, eps in product(priors, (0.5, 1.0, 2.5)):
        table = torch.tensor(p, dtype=torch.float64).expand(len(FINE), -1)
        matrix = transitions(len(p), lambda y, u, table=table, eps=eps: response_with_prior(y, table, eps, u))
        exact = expected_response(p, eps)
        assert torch.allclose(matrix, exact, atol=2e-4), (p, eps)
        possible = exact[:, exact[0] > 0]
        assert (possible[:, None] / possible[None]).max().log().item() <= eps + 1e-9, (p, eps)


def test_debias_is_unbiased(rng):
    """sum_j P(y' = j | y) l'(logits, j) = l(logits, y) for every row."""
    for classes in (2, 5):
        eps, n = 0.7, 10
        logits = torch.randn(n, 1 if classes == 2 else classes, generator=rng, dtype=torch.float64)
        y = torch.randint(classes, (n,), generator=rng)
        defense = LabelDp(eps=eps, debias=True)
        q = 1 / (classes - 1 + math.exp(eps))
        for i in range(n):
            chance = torch.full((classes,), q, dtype=torch.float64)
            chance[y[i]] = q * math.exp(eps)
            losses = torch.stack([defense.loss(logits[i : i + 1], torch.tensor([j])) for j in range(classes)])
            assert (chance * losses).sum().item() == pytest.approx(class_losses(logits)[i, y[i]].item()), (classes, i)
        assert LabelDp().loss(logits, y) is None


def test_debias_is_refused_where_there_is_no_single_matrix_and_at_eps_0():
    with pytest.raises(UserError, match="defense.label_dp.debias=True: it needs one transition matrix"):
        construct(LabelDp, {"mechanism": "lp_2st", "debias": True}, "defense.label_dp")
    with pytest.raises(UserError, match=r"debias.*eps = 0"):
        construct(LabelDp, {"eps": 0.0, "debias": True}, "defense.label_dp")


def read_directly(defense, y, epochs, rng):
    """Leak AUC of who sees the label that is trained on in each epoch, and takes their mean."""
    ids, logits = torch.arange(len(y)), logits_for(len(y), 2)
    return auc(sum(defense.labels(y, logits, drawing(rng, ids)) for _ in range(epochs)).double(), y)


def test_fresh_flips_leak_what_memoised_ones_keep(rng):
    y = (torch.rand(60_000, generator=rng) < 0.25).long()
    assert read_directly(LabelDp(fresh_every_epoch=True), y, 10, rng) == pytest.approx(0.985, abs=0.003)
    for mechanism in ("randomized_response", "lp_2st"):
        leak = read_directly(LabelDp(mechanism=mechanism), y, 10, rng)
        assert leak == pytest.approx(1 / (1 + math.exp(-1)), abs=0.008)


def test_promises_count_releases_not_messages():
    kept, fresh = LabelDp().guarantee(), LabelDp(fresh_every_epoch=True).guarantee()
    many = Exposure(epochs=10, messages=40)
    assert kept.leak_auc_after(many) == kept.leak_auc_after(Exposure()) == pytest.approx(0.73106, abs=1e-5)
    assert kept.error_after(many) == pytest.approx(0.26894, abs=1e-5)
    assert fresh.leak_auc_after(Exposure(epochs=1, messages=4)) == kept.leak_auc_after(many)
    assert fresh.leak_auc_after(many) == pytest.approx(0.98482, abs=1e-5)
    assert fresh.error_after(many) < 0.07


def test_labels_come_back_in_kind():
    kinds = [
        np.array([[0.0], [1.0], [1.0]], dtype=np.float32),
        np.eye(4, dtype=np.float32)[[0, 3, 2]],
        torch.tensor([True, False]),
        torch.eye(3)[[0, 2, 1, 1]],
        np.array([], dtype=np.int64),
    ]
    for labels, eps in product(kinds, (0.5, 50.0)):
        case = f"{type(labels).__name__} {labels.dtype} {tuple(labels.shape)}, eps={eps}"
        before = labels + 0
        noisy = LabelDP(eps)(labels)
        assert (type(noisy), noisy.dtype, noisy.shape) == (type(labels), labels.dtype, labels.shape), case
        if labels.ndim == 2 and labels.shape[1] > 1:
            assert ((noisy == 0) | (noisy == 1)).all(), case
            assert (noisy.sum(1) == 1).all(), case
        assert eps == 0.5 or (noisy == labels).all(), case
        assert (before == labels).all(), case


def test_a_seed_gives_the_same_numbers_and_each_call_others():
    labels = np.arange(2000) % 2
    first, second = LabelDP(1.0, seed=5), LabelDP(1.0, seed=5)
    draws = [first(labels), first(labels)]
    assert (draws[0] != draws[1]).any()
    assert (second(labels) == draws[0]).all()
    assert (LabelDP(1.0)(labels) != LabelDP(1.0)(labels)).any()
    given = [LabelDP(1.0)(torch.from_numpy(labels), torch.Generator().manual_seed(2)) for _ in range(2)]
    assert torch.equal(*given)


def test_classes_that_are_absent_are_possible_answers_if_they_are_declared():
    labels = np.zeros(5000, dtype=np.int64)
    assert set(LabelDP(1.0, seed=0)(labels)) == {0, 1}
    assert set(LabelDP(1.0, classes=4, seed=0)(labels)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        ({"eps": -1.0}, None, "eps=-1.0"),
        ({"eps": 1}, [0, 1], "labels=list"),
        ({"eps": 1}, np.array([0.5, 1.0]), "whole numbers"),
        ({"eps": 1}, np.array([[1, 1], [0, 1]]), "one-hot"),
        ({"eps": 1, "classes": 3}, np.array([0, 3]), "below 3"),
    ],
)
def test_what_is_no_label_is_refused(arguments, labels, message):
    with pytest.raises(UserError, match=message):
        LabelDP(**arguments)(labels)


def test_at_eps_0_labels_are_fair_coins_in_the_class_and_in_yaml(rng):
    """The example of the documentation, LabelDP(eps=0.0), and the option of the same value."""
    n, defense = 40_000, construct(LabelDp, {"eps": 0}, "defense.label_dp")
    y = (torch.arange(n) % 4 == 0).long()
    for noisy in (
        LabelDP(eps=0.0, classes=3, seed=1)(y),
        defense.labels(y, logits_for(n, 3), drawing(rng, torch.arange(n))),
    ):
        counts = (3 * y + noisy).bincount(minlength=6).view(2, 3).double()
        assert torch.allclose(counts / counts.sum(1, keepdim=True), torch.tensor(1 / 3).double(), atol=0.015)
    promise = defense.guarantee()
    assert (promise.leak_auc_after(Exposure(10, 10)), promise.error_after(Exposure(10, 10))) == pytest.approx((0.5, 0.5))
    assert promise.release.epsilon == 0


@pytest.mark.parametrize("options", [{"target": "posterior"}, {"mechanism": "zero_sum"}, {"mechanism": "lp_2st"}])
def test_at_eps_0_training_sees_nothing_of_the_labels(rng, options):
    """Posteriors are the model's own predictions, so their loss has no gradient; lp_2st answers with the likeliest class."""
    n = 500
    y = torch.randint(2, (n,), generator=rng)
    logits = torch.randn(n, 1, generator=rng, dtype=torch.float64, requires_grad=True)
    defense = LabelDp(eps=0.0, **options)
    defense.plan(3)
    noisy = defense.labels(y, logits.detach(), drawing(rng, torch.arange(n)))
    if "lp_2st" in options.values():
        assert torch.equal(noisy, (logits[:, 0] > 0).long())
    else:
        (gradient,) = torch.autograd.grad(defense.loss(logits, noisy), logits)
        assert gradient.abs().max() < 1e-12


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("eps", [0.1, 25.0])
def test_coins_of_53_bits_keep_the_promise_as_far_as_the_claim_says(classes, eps):
    """Every probability exactly: where the answer changes, by bisection over the 2^53 numbers that a coin can be."""

    def answer(place):
        u = torch.tensor([place * 2.0**-53], dtype=torch.float64)
        return int(randomized_response(torch.tensor([0]), classes, eps, u))

    ends = [0]
    for label in range(classes):
        low, high = ends[-1], 2**53
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if answer(middle) <= label else (low, middle)
        ends.append(high)
    assert ends[-1] == 2**53
    counts = [b - a for a, b in itertools.pairwise(ends)]
    worst = math.log(counts[0] / min(counts[1:]))
    assert worst <= eps + 2.0**-50 * (classes - 1 + math.exp(eps))
