import pytest
import torch
from attacks.views import scores_of, shares

from vflbench.attacks.base import MESSAGE_FACTS
from vflbench.attacks.spectral import Spectral, upper_cluster
from vflbench.numerics.auc import auc


def clusters(rng, n=2000, d=12, positive=0.25, gap=3.0):
    y = torch.rand(n, generator=rng) < positive
    direction = torch.nn.functional.normalize(torch.randn(d, generator=rng), dim=0)
    return torch.randn(n, d, generator=rng) + 5.0 + gap * y[:, None] * direction, y


def scores(x, prior=0.25, **options):
    attack = Spectral(**options)
    return scores_of(attack, MESSAGE_FACTS[attack.message]({"f1": x}), shares(prior))


@pytest.mark.parametrize("score", ["signed", "cluster"])
@pytest.mark.parametrize("positive", [0.1, 0.25, 0.75, 0.9])
def test_a_planted_class_is_recognised_and_the_right_way_round(rng, positive, score):
    """The hard answer is the smaller cluster."""
    x, y = clusters(rng, positive=positive, gap=8.0 if score == "cluster" else 4.0)
    answer = scores(x, prior=positive, score=score)
    assert auc(answer, y) > 0.98
    assert score == "signed" or set(answer.tolist()) == {0.0, 1.0}


def test_shift_rotation_and_units_do_not_matter(rng):
    x, y = clusters(rng)
    rotation = torch.linalg.qr(torch.randn(12, 12, generator=rng)).Q
    reference = auc(scores(x), y)
    for changed in (x + 100, x @ rotation, x * 1e-20, x * 1e15):
        assert auc(scores(changed), y) == pytest.approx(reference, abs=0.002)


def test_abs_scores_see_outliers_on_both_sides(rng):
    x = torch.randn(1000, 4, generator=rng)
    y = torch.arange(1000) < 100
    x[:50, 0] += 9
    x[50:100, 0] -= 9
    assert auc(scores(x, score="abs"), y) > 0.99
    assert 0.4 < auc(scores(x, score="signed"), y) < 0.6


def test_two_means_are_exact(rng):
    for _ in range(20):
        s = torch.randn(12, generator=rng, dtype=torch.float64)
        ordered = s.sort().values
        costs = [sum(part.var(correction=0) * len(part) for part in (ordered[:m], ordered[m:])) for m in range(1, 12)]
        best = min(range(1, 12), key=lambda m: costs[m - 1])
        assert torch.equal(upper_cluster(s), s >= ordered[best])


@pytest.mark.parametrize("score", ["signed", "cluster"])
def test_of_balanced_classes_the_one_further_from_the_origin_is_taken(rng, score):
    y = torch.arange(2000) < 1000
    x = torch.randn(2000, 8, generator=rng)
    x[:, 3] += torch.where(y, -9.0, -2.0)
    for turned in (x, -x):
        assert auc(scores(turned, prior=0.5, score=score, orient="larger_score"), y) > 0.98


@pytest.mark.parametrize("score", ["signed", "cluster"])
def test_the_larger_deviation_is_that_of_the_smaller_cluster_whatever_the_prior(rng, score):
    for positive, prior in ((0.3, 0.5), (0.45, 0.5), (0.3, 0.7)):
        x, y = clusters(rng, positive=positive, gap=8.0)
        for turned in (x, -x):
            assert auc(scores(turned, prior=prior, score=score, orient="larger_deviation"), y) > 0.98, (positive, prior)


def test_a_component_is_that_of_the_singular_value_decomposition(rng):
    """Also where the label is in the second one, behind a loud direction with 900 times the variance."""
    y = torch.rand(2000, generator=rng) < 0.25
    x = torch.randn(2000, 12, generator=rng, dtype=torch.float64)
    x[:, 0] *= 30
    x[:, 1] += 3.0 * y
    centred = x - x.mean(0)
    vectors = torch.linalg.svd(centred, full_matrices=False).Vh
    for component in (1, 2, 12):
        expected = (centred @ vectors[component - 1]).abs()
        assert torch.allclose(scores(x, component=component).abs(), expected, atol=1e-8), component
    assert auc(scores(x, component=1), y) == pytest.approx(0.5, abs=0.05)
    assert auc(scores(x, component=2), y) > 0.97
    assert not scores(x, component=13).any()
