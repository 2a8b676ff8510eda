import pytest
import torch
from attacks.epochs import along, read
from defenses.contexts import drawing
from scipy import stats

from vflbench.attacks.mixture import Mixture
from vflbench.defenses.gaussian import Gaussian
from vflbench.numerics.auc import auc


@pytest.mark.parametrize("positive", [0.1, 0.75])
def test_the_bayes_optimal_detector_of_two_gaussians_is_reached(rng, positive):
    """Planted N(1, 0.5^2) and N(-1, 1) along a direction: the optimum scores by the true log odds."""
    n = 20_000
    y = torch.rand(n, generator=rng) < positive
    z = torch.where(y, 1 + 0.5 * torch.randn(n, generator=rng), -1 + torch.randn(n, generator=rng))
    odds = torch.from_numpy(stats.norm.logpdf(z, 1, 0.5) - stats.norm.logpdf(z, -1, 1))
    for sign in (1, -1):
        scores = read(Mixture(), (sign * along(rng, z)).split(1000), positive)
        assert auc(scores, y) == pytest.approx(auc(odds, y), abs=0.01)


def test_isotropic_noise_averages_out_of_the_direction(rng):
    y = torch.rand(8000, generator=rng) < 0.25
    p = (0.25 + 0.08 * torch.randn(8000, generator=rng)).clamp(0.02, 0.98)
    g = (p - y.float())[:, None] * along(rng, 1 + 0.2 * torch.rand(8000, generator=rng), 128)  # (p - y) J, J in a cone
    assert auc(read(Mixture(), Gaussian(ratio=1.0).gradient(g, y.long(), drawing(rng)).split(500), 0.25), y) > 0.99


def test_embeddings_are_centred(rng):
    y = torch.rand(4000, generator=rng) < 0.25
    h = 5 + along(rng, 3.0 * y + torch.randn(4000, generator=rng))
    assert auc(read(Mixture(message="embeddings"), h.split(500), 0.25), y) > 0.97


def test_a_direction_that_turns_is_followed(rng):
    """By 12 degrees a batch, half a circle in all: the sign at the start and at the end is the same for a class."""
    scores, labels = [], []
    for step in range(16):
        angle = torch.tensor(step * torch.pi / 15)
        y = torch.rand(500, generator=rng) < 0.25
        z = torch.where(y, -0.75, 0.25) + 0.1 * torch.randn(500, generator=rng)
        scores.append(z[:, None] * torch.stack([angle.cos(), angle.sin()]))
        labels.append(y)
    assert auc(read(Mixture(), scores, 0.25), torch.cat(labels)) > 0.99


def test_the_epochs_decide_together_where_positives_are(rng):
    """An epoch that says nothing about it is read as those before it."""
    attack = Mixture()
    for epoch in range(4):
        n = 4000 if epoch == 0 else 40
        y = torch.rand(n, generator=rng) < 0.25
        g = torch.where(y, -1.0, 0.0)[:, None] * torch.tensor([0.6, 0.8]) + 0.3 * torch.randn(n, 2, generator=rng)
        assert auc(read(attack, [g], 0.25), y) > 0.9, epoch
