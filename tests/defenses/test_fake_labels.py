"""Training on fake labels: those of an autoencoder (`cae`), and more classes than there are (`fake_labels`)."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from attacks.views import gradients, scores_of, shares
from defenses.contexts import drawing
from scipy import stats
from scipy.optimize import brentq
from torch.nn import functional as F

from vflbench.attacks.direct import Direct
from vflbench.attacks.norm import Norm
from vflbench.defenses.cae import Cae, _network, confusion, rounded
from vflbench.defenses.chain import Chain
from vflbench.defenses.fake_labels import FakeLabels
from vflbench.defenses.label_dp import LabelDp
from vflbench.errors import UserError
from vflbench.numerics.auc import auc


@cache
def weights_of(classes):
    defense = Cae()
    logits = torch.zeros(4, 1 if classes == 2 else classes)
    defense.labels(torch.arange(4) % classes, logits, drawing(torch.Generator().manual_seed(0)))
    return defense._weights


def ready(classes=2, **options):
    defense = Cae(**options)
    defense._weights = weights_of(classes)
    return defense


def fake_labels(defense, classes):
    return _network(torch.eye(classes), defense._weights[:4]).softmax(1)


def logits_of(chances):
    """(n, 1) for two classes."""
    return (chances[:, 1:] / chances[:, :1]).log() if chances.shape[1] == 2 else chances.log()


@pytest.mark.slow
def test_two_classes_change_places_as_far_as_the_entropy_lets_them_and_their_order_is_kept():
    """The share q of a class in its own fake label: where lambda/2 log((1 - q) / q) = 2 sigma(1 - 2 q). Predictions fall
    where the logit of the network rises, so that AUC is kept.
    """
    entropy = Cae().entropy
    best = brentq(lambda q: entropy / 2 * math.log((1 - q) / q) - 2 / (1 + math.exp(2 * q - 1)), 1e-6, 0.5 - 1e-6)
    assert fake_labels(ready(), 2).diagonal().tolist() == pytest.approx([best, best], abs=0.03)
    assert (ready().prediction(torch.linspace(-2.5, 2.5, 200)[:, None]).diff(dim=0) < 0).all()


@pytest.mark.slow
def test_the_loss_of_the_autoencoder_is_as_published():
    weights, true = ready(3)._weights, torch.tensor([0, 2, 1, 1])
    y = F.one_hot(true, 3).float()
    fake = _network(y, weights[:4]).softmax(1)
    decoded = _network(fake, weights[4:]).softmax(1)
    entropy = -(fake * fake.log()).mean()
    expected = F.nll_loss(decoded.log(), true) * 10 - F.cross_entropy(fake, true) - 0.7 * entropy
    assert torch.allclose(confusion(y, weights, 0.7), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_training_is_on_soft_fake_labels_which_are_decoded_to_the_classes(rng, classes):
    defense, true = ready(classes), torch.arange(classes)
    fake = fake_labels(defense, classes)
    decoded = defense.prediction(logits_of(fake))
    assert torch.equal((decoded[:, 0] > 0).long() if classes == 2 else decoded.argmax(1), true)
    assert (fake.argmax(1) != true).all()
    y, chances = torch.randint(classes, (50,), generator=rng), torch.randn(50, classes, generator=rng).softmax(1)
    expected = F.cross_entropy(chances.log(), fake[y])
    assert torch.allclose(defense.loss(logits_of(chances), y), expected, atol=1e-6)
    assert torch.equal(defense.labels(y, logits_of(chances), drawing(rng)), y)


def test_discrete_gradients_are_the_nearest_of_bins_and_one_values_within_two_deviations(rng):
    g = torch.randn(400, 8, generator=rng) * 3 + 1
    middle, deviation = g.double().mean().item(), g.double().std(correction=0).item()
    for bins in (1, 4, 12):
        grid = np.linspace(middle - 2 * deviation, middle + 2 * deviation, bins + 1)
        nearest = grid[np.abs(g.double().numpy()[..., None] - grid).argmin(-1)]
        assert np.allclose(rounded(g, bins).numpy(), nearest, atol=1e-4), bins
    constant = torch.ones(3, 2)
    assert torch.equal(rounded(constant, 4), constant)
    assert torch.equal(Cae().gradient(g, None, drawing(rng)), g)
    assert torch.equal(Cae(discrete=True).gradient(g, None, drawing(rng)), rounded(g, 12))


@pytest.mark.parametrize("discrete", [False, True])
def test_it_falls_to_the_attacks_that_read_any_gradients(rng, discrete):
    """They are those of the same two classes with other names, which only the rarer one needs to be known for. Of embeddings
    that know a little of the label, by a top with a hidden layer that was not trained.
    """
    n, d, defense = 2000, 32, ready(discrete=discrete)
    y = (torch.rand(n, generator=rng) < 0.25).long()
    h = (torch.randn(n, d, generator=rng) + 0.3 * y[:, None]).requires_grad_()
    hidden = F.relu(h @ torch.randn(d, 64, generator=rng) / d**0.5 + 1)
    logits = 3.0 - hidden @ torch.rand(64, 1, generator=rng) / 16  # most rows have the fake label 1
    defense.loss(logits, defense.labels(y, logits.detach(), drawing(rng))).backward()
    g = defense.gradient(h.grad, y, drawing(rng))
    for attack, least in ((Direct(), 0.99), (Norm(), 0.9)):
        assert auc(scores_of(attack, gradients(g), shares(0.25)), y) > least, type(attack).__name__


def test_it_claims_nothing_and_label_dp_keeps_its_promise_on_either_side_of_it(rng):
    assert Cae().guarantee() is None
    y, logits, ids = torch.arange(500) % 2, torch.zeros(500, 1), torch.arange(500)
    for order in (("label_dp", "cae"), ("cae", "label_dp")):
        made = {"label_dp": LabelDp(), "cae": ready()}
        chain = Chain({name: made[name] for name in order})
        noisy = chain.labels(y, logits, drawing(rng, ids))
        assert 0 < (noisy != y).sum() < 500, order
        assert torch.equal(chain.loss(logits, noisy), ready().loss(logits, noisy)), order  # of what label DP let through


def started(classes=2, **options):
    defense = FakeLabels(**options)
    assert defense.outputs(1 if classes == 2 else classes) == defense.width
    return defense


@pytest.mark.parametrize(("classes", "width"), [(2, 3), (10, 25)])
def test_each_class_has_fake_classes_of_its_own_and_each_is_as_likely(rng, classes, width):
    defense, n = started(classes, width=width), 40_000
    y = torch.randint(classes, (n,), generator=rng)
    fake, again = (defense.labels(y, torch.zeros(n, width), drawing(rng)) for _ in range(2))
    table = (y * width + fake).bincount(minlength=classes * width).view(classes, width)
    assert ((table > 0).sum(0) == 1).all()
    sizes = (table > 0).sum(1)
    assert sizes.max() - sizes.min() <= 1
    expected = (table.sum(1) / sizes)[:, None]
    assert ((table / expected - 1).abs() < 6 / expected**0.5)[table > 0].all()
    assert not torch.equal(fake, again)
    assert torch.equal(table[:, fake].argmax(0), table[:, again].argmax(0))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_prediction_is_the_probability_of_the_fake_classes_together(rng, classes):
    defense = started(classes)
    y = torch.randint(classes, (2000,), generator=rng)
    fake = defense.labels(y, torch.zeros(2000, 8), drawing(rng))
    logits = torch.randn(6, 8, generator=rng, dtype=torch.float64)
    chances = logits.softmax(1)
    expected = torch.stack([chances[:, fake[y == c].unique()].sum(1) for c in range(classes)], 1)
    predicted = defense.prediction(logits)
    assert torch.allclose((F.pad(predicted, (1, 0)) if classes == 2 else predicted).softmax(1), expected)


def test_the_loss_is_the_cross_entropy_to_a_label_of_which_mu_is_noise(rng):
    y, logits = torch.randint(2, (50,), generator=rng), torch.randn(50, 8, generator=rng)
    for mu in (0.0, 0.4):
        defense = started(mu=mu)
        fake = defense.labels(y, logits, drawing(rng))
        target = (1 - mu) * F.one_hot(fake, 8) + mu * defense._noise
        assert torch.allclose(target.sum(1), torch.ones(50)), mu
        assert torch.allclose(defense.loss(logits, fake), F.cross_entropy(logits, target)), mu
    logs = defense._noise.log()
    centred = (logs - logs.mean(1, keepdim=True)).flatten()
    assert stats.kstest(centred.numpy(), stats.norm(scale=(7 / 8) ** 0.5).cdf).pvalue > 1e-4  # z less its mean


def test_gradients_keep_their_direction_and_get_one_length(rng):
    g = torch.randn(60, 5, generator=rng) * torch.linspace(0.1, 3, 60)[:, None]
    g[7] = 0
    length, rows = g.norm(dim=1), torch.arange(60) != 7
    for standard, s in (("min", 0.0), ("mean", length.mean()), ("max", length.max())):
        sent = FakeLabels(standard=standard).gradient(g, None, drawing(rng))
        assert torch.allclose(sent[rows], F.normalize(g[rows]) * s), standard
        assert (sent[7] == 0).all(), standard


def test_it_claims_nothing_and_hands_on_fake_classes_only(rng):
    assert FakeLabels().guarantee() is None
    chain = Chain({"fake_labels": started(), "label_dp": LabelDp()})
    y, logits = torch.arange(400) % 2, torch.zeros(400, 8)
    noisy = chain.labels(y, logits, drawing(rng, torch.arange(400)))
    assert noisy.max() > 1
    assert chain.loss(logits, noisy).isfinite()


def test_what_cannot_be_is_refused(rng):
    with pytest.raises(UserError, match=r"defense.fake_labels.width=8: it must be more than the number of classes, 10"):
        FakeLabels().outputs(10)
    first = Chain({"label_dp": LabelDp(), "fake_labels": started()})
    with pytest.raises(UserError, match="beyond the 2 classes"):
        first.labels(torch.arange(400) % 2, torch.zeros(400, 8), drawing(rng, torch.arange(400)))
