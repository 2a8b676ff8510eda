import math
from functools import cache

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy.optimize import brentq
from torch.nn import functional as F

from vflbench.attacks.direct import Direct
from vflbench.attacks.norm import Norm
from vflbench.defenses.cae import Cae, _network, confusion, rounded
from vflbench.defenses.chain import Chain
from vflbench.defenses.label_dp import LabelDp
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import View
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


def best_share(entropy):
    """Of the own class in the fake label of two: where lambda/2 log((1 - q) / q) = 2 sigma(1 - 2 q)."""
    return brentq(lambda q: entropy / 2 * math.log((1 - q) / q) - 2 / (1 + math.exp(2 * q - 1)), 1e-6, 0.5 - 1e-6)


@pytest.mark.slow
def test_two_classes_change_places_as_far_as_the_entropy_lets_them():
    entropy = Cae().entropy
    fake = fake_labels(ready(), 2)
    assert fake.diagonal().tolist() == pytest.approx([best_share(entropy)] * 2, abs=0.03)


@pytest.mark.slow
def test_the_loss_of_the_autoencoder_is_as_published():
    weights = ready(3)._weights
    y = F.one_hot(torch.tensor([0, 2, 1, 1]), 3).float()
    fake = _network(y, weights[:4]).softmax(1)
    decoded = _network(fake, weights[4:]).softmax(1)
    entropy = -(fake * fake.log()).mean()
    expected = F.nll_loss(decoded.log(), y.argmax(1)) * 10 - F.cross_entropy(fake, y.argmax(1)) - 0.7 * entropy
    assert torch.allclose(confusion(y, weights, 0.7), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_fake_labels_are_decoded_to_the_classes(classes):
    defense = ready(classes)
    fake = fake_labels(defense, classes)
    logits = (fake[:, 1:] / fake[:, :1]).log() if classes == 2 else fake.log()
    decoded = defense.prediction(logits)
    found = (decoded[:, 0] > 0).long() if classes == 2 else decoded.argmax(1)
    assert torch.equal(found, torch.arange(classes))
    assert (fake.argmax(1) != torch.arange(classes)).all()


@pytest.mark.slow
def test_the_more_the_fake_label_of_a_class_the_more_that_class():
    """Order is kept, so that AUC is: of two classes the prediction falls where the logit of the network rises."""
    decoded = ready().prediction(torch.linspace(-2.5, 2.5, 200)[:, None])
    assert (decoded.diff(dim=0) < 0).all()


@pytest.mark.slow
def test_training_is_on_soft_fake_labels(rng):
    for classes in (2, 3):
        defense = ready(classes)
        y = torch.randint(classes, (50,), generator=rng)
        logits = torch.randn(50, 1 if classes == 2 else classes, generator=rng)
        wide = torch.cat([torch.zeros_like(logits), logits], 1) if classes == 2 else logits
        expected = F.cross_entropy(wide, fake_labels(defense, classes)[y])
        assert torch.allclose(defense.loss(logits, y), expected, atol=1e-6), classes
        assert torch.equal(defense.labels(y, logits, drawing(rng)), y), classes


def test_discrete_gradients_are_the_nearest_of_bins_and_one_values_within_two_deviations(rng):
    g = torch.randn(400, 8, generator=rng) * 3 + 1
    for bins in (1, 4, 12):
        ours = rounded(g, bins)
        middle, deviation = g.double().mean().item(), g.double().std(correction=0).item()
        grid = np.linspace(middle - 2 * deviation, middle + 2 * deviation, bins + 1)
        nearest = grid[np.abs(g.double().numpy()[..., None] - grid).argmin(-1)]
        assert np.allclose(ours.numpy(), nearest, atol=1e-4), bins
        assert len(ours.unique()) <= 2 * (bins + 1), bins
    constant = torch.ones(3, 2)
    assert torch.equal(rounded(constant, 4), constant)
    assert torch.equal(Cae().gradient(g, None, drawing(rng)), g)
    assert torch.equal(Cae(discrete=True).gradient(g, None, drawing(rng)), rounded(g, 12))


def gradients(rng, defense, n=2000, d=32):
    """Of embeddings that know a little of the label, by a top with a hidden layer that was not trained."""
    y = (torch.rand(n, generator=rng) < 0.25).long()
    h = (torch.randn(n, d, generator=rng) + 0.3 * y[:, None]).requires_grad_()
    hidden = F.relu(h @ torch.randn(d, 64, generator=rng) / d**0.5 + 1)
    logits = hidden @ torch.rand(64, 1, generator=rng) / 16 - 3.0
    logits = -logits  # most rows have the fake label 1
    defense.loss(logits, defense.labels(y, logits.detach(), drawing(rng))).backward()
    return defense.gradient(h.grad, y, drawing(rng)), y


@pytest.mark.parametrize("discrete", [False, True])
def test_it_falls_to_the_attacks_that_read_any_gradients(rng, discrete):
    """They are those of the same two classes with other names, which only the rarer one needs to be known for."""
    g, y = gradients(rng, ready(discrete=discrete))
    facts = {Gradients: Gradients({"f1": g}), ClassShares: ClassShares((0.75, 0.25))}
    for attack, least in ((Direct(), 0.99), (Norm(), 0.9)):
        view = View("a", 0, 0, torch.arange(len(y)), rng, attack.threat, facts)
        assert auc(attack.batch(view).layers["f1"], y) > least, type(attack).__name__


def test_it_claims_nothing_and_label_dp_keeps_its_promise_on_either_side_of_it(rng):
    assert Cae().guarantee() is None
    n = 500
    y, logits, ids = torch.arange(n) % 2, torch.zeros(n, 1), torch.arange(n)
    for order in (("label_dp", "cae"), ("cae", "label_dp")):
        made = {"label_dp": LabelDp(), "cae": ready()}
        chain = Chain({name: made[name] for name in order})
        noisy = chain.labels(y, logits, drawing(rng, ids))
        assert 0 < (noisy != y).sum() < n, order
        assert torch.equal(chain.loss(logits, noisy), ready().loss(logits, noisy)), order  # of what label DP let through
