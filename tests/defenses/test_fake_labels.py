import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from torch.nn import functional as F

from vflbench.defenses.chain import Chain
from vflbench.defenses.fake_labels import FakeLabels
from vflbench.defenses.label_dp import LabelDp
from vflbench.errors import UserError


def started(classes=2, **options):
    defense = FakeLabels(**options)
    assert defense.outputs(1 if classes == 2 else classes) == defense.width
    return defense


@pytest.mark.parametrize(("classes", "width"), [(2, 3), (10, 25)])
def test_each_class_has_fake_classes_of_its_own_and_each_is_as_likely(rng, classes, width):
    defense, n = started(classes, width=width), 40_000
    y = torch.randint(classes, (n,), generator=rng)
    fake = defense.labels(y, torch.zeros(n, width), drawing(rng))
    table = (y * width + fake).bincount(minlength=classes * width).view(classes, width)
    assert ((table > 0).sum(0) == 1).all()
    sizes = (table > 0).sum(1)
    assert sizes.max() - sizes.min() <= 1
    for row in table:
        expected = row.sum() / (row > 0).sum()
        assert (row[row > 0] / expected - 1).abs().max() < 6 / expected**0.5
    again = defense.labels(y, torch.zeros(n, width), drawing(rng))
    assert not torch.equal(fake, again)
    assert torch.equal(table[:, fake].argmax(0), table[:, again].argmax(0))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_prediction_is_the_probability_of_the_fake_classes_together(rng, classes):
    defense, n = started(classes), 2000
    y = torch.randint(classes, (n,), generator=rng)
    fake = defense.labels(y, torch.zeros(n, 8), drawing(rng))
    logits = torch.randn(6, 8, generator=rng, dtype=torch.float64)
    chances = logits.softmax(1)
    expected = torch.stack([chances[:, fake[y == c].unique()].sum(1) for c in range(classes)], 1)
    got = defense.prediction(logits)
    got = torch.cat([torch.zeros_like(got), got], 1) if classes == 2 else got
    assert torch.allclose(got.softmax(1), expected)
    elsewhere = started(classes)
    elsewhere.restore(defense.state())
    assert torch.equal(elsewhere.prediction(logits), defense.prediction(logits))


def test_the_loss_is_the_cross_entropy_to_a_label_of_which_mu_is_noise(rng):
    for mu in (0.0, 0.4):
        defense = started(mu=mu)
        y, logits = torch.randint(2, (50,), generator=rng), torch.randn(50, 8, generator=rng)
        fake = defense.labels(y, logits, drawing(rng))
        target = (1 - mu) * F.one_hot(fake, 8) + mu * defense._noise
        assert torch.allclose(target.sum(1), torch.ones(50)), mu
        assert torch.allclose(defense.loss(logits, fake), F.cross_entropy(logits, target)), mu
    logs = torch.cat([defense.labels(y, logits, drawing(rng))[:0].float(), defense._noise.log().flatten()])
    centred = (logs.view(50, 8) - logs.view(50, 8).mean(1, keepdim=True)).flatten()
    assert stats.kstest(centred.numpy(), stats.norm(scale=(7 / 8) ** 0.5).cdf).pvalue > 1e-4  # z less its mean


def test_gradients_keep_their_direction_and_get_one_length(rng):
    g = torch.randn(60, 5, generator=rng) * torch.linspace(0.1, 3, 60)[:, None]
    g[7] = 0
    rows = torch.arange(60) != 7
    length = g.norm(dim=1)
    for standard, s in (("min", length.min()), ("mean", length.mean()), ("max", length.max())):
        sent = FakeLabels(standard=standard).gradient(g, None, drawing(rng))
        assert torch.allclose(sent[rows].norm(dim=1), s.expand(59)), standard
        assert (sent[7] == 0).all(), standard
    cosines = F.cosine_similarity(FakeLabels().gradient(g, None, drawing(rng)), g)
    assert torch.allclose(cosines[rows], torch.ones(59))


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
