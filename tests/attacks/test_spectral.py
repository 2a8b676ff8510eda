import pytest
import torch
from attacks.views import scores_of, shares

from vflbench.attacks.base import MESSAGE_FACTS
from vflbench.attacks.spectral import (
    Spectral,
    spectral_projections,
    upper_cluster,
)
from vflbench.numerics.auc import auc


def clusters(rng, n=2000, d=12, positive=0.25, gap=3.0):
    y = torch.rand(n, generator=rng) < positive
    direction = torch.nn.functional.normalize(torch.randn(d, generator=rng), dim=0)
    return torch.randn(n, d, generator=rng) + 5.0 + gap * y[:, None] * direction, y


def scores(x, prior=0.25, **options):
    attack = Spectral(**options)
    return scores_of(attack, MESSAGE_FACTS[attack.message]({"f1": x}), shares(prior))


def test_a_planted_class_is_recognised_and_the_right_way_round(rng):
    for positive in (0.1, 0.25, 0.75, 0.9):
        x, y = clusters(rng, positive=positive, gap=4.0)
        assert auc(scores(x, prior=positive), y) > 0.98, positive


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


def test_the_hard_answer_is_the_smaller_cluster(rng):
    for positive in (0.1, 0.25, 0.75):
        x, y = clusters(rng, positive=positive, gap=8.0)
        answer = scores(x, prior=positive, score="cluster")
        assert set(answer.tolist()) == {0.0, 1.0}, positive
        assert (answer.bool() == y).double().mean() > 0.99, positive


def test_of_balanced_classes_the_one_further_from_the_origin_is_taken(rng):
    y = torch.arange(2000) < 1000
    x = torch.randn(2000, 8, generator=rng)
    x[:, 3] += torch.where(y, -9.0, -2.0)
    for score in ("signed", "cluster"):
        assert auc(scores(x, prior=0.5, score=score, orient="larger_score"), y) > 0.98, score
        assert auc(scores(-x, prior=0.5, score=score, orient="larger_score"), y) > 0.98, score


def behind_a_loud_direction(rng, n=2000, d=12):
    """Classes three standard deviations apart, and a label-free direction with 900 times the variance."""
    y = torch.rand(n, generator=rng) < 0.25
    x = torch.randn(n, d, generator=rng)
    x[:, 0] *= 30
    x[:, 1] += 3.0 * y
    return x @ torch.linalg.qr(torch.randn(d, d, generator=rng)).Q, y


def test_a_label_behind_a_loud_direction_is_the_second_component(rng):
    x, y = behind_a_loud_direction(rng)
    assert auc(scores(x), y) == pytest.approx(0.5, abs=0.05)
    assert auc(scores(x, component=2), y) > 0.97
    assert auc(scores(x, component=2, score="cluster"), y) > 0.9
    assert auc(scores(x, component=3), y) == pytest.approx(0.5, abs=0.05)


def test_a_component_is_that_of_the_singular_value_decomposition(rng):
    x = clusters(rng)[0].double()
    centred = x - x.mean(0)
    vectors = torch.linalg.svd(centred, full_matrices=False).Vh
    for component in (1, 2, 12):
        ours = spectral_projections({"f1": x}, component)["f1"]
        assert torch.allclose(ours.abs(), (centred @ vectors[component - 1]).abs(), atol=1e-8), component
    assert not spectral_projections({"f1": x}, 13)["f1"].any()


def test_the_larger_deviation_is_that_of_the_smaller_cluster_whatever_the_prior(rng):
    for positive, prior in ((0.3, 0.5), (0.45, 0.5), (0.3, 0.7)):
        x, y = clusters(rng, positive=positive, gap=8.0)
        for score in ("signed", "cluster"):
            assert auc(scores(x, prior=prior, score=score, orient="larger_deviation"), y) > 0.98, (positive, prior, score)
            assert auc(scores(-x, prior=prior, score=score, orient="larger_deviation"), y) > 0.98, (positive, prior, score)
