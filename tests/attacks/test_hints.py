import torch
from attacks.views import gradients, positives, scores_of

from vflbench.attacks.hints import Hints
from vflbench.numerics.auc import auc


def scores(g, known, score):
    return scores_of(Hints(k=len(known), score=score), gradients(g), positives(known))


def test_scores_are_of_the_nearest_known_row_and_the_largest_inner_product(rng):
    g = torch.randn(30, 5, generator=rng).double()
    known = g[[3, 8, 9]]
    assert torch.allclose(scores(g, [3, 8, 9], "distance"), -torch.cdist(g, known).amin(1), atol=1e-10)
    assert torch.allclose(scores(g, [3, 8, 9], "inner_product"), (g @ known.T).amax(1))


def test_more_hints_find_a_class_of_several_clusters(rng):
    """Positives in three clusters: one known row finds its own, three (one of each) find all."""
    centres = 10 * torch.eye(3, 8)
    which = torch.arange(300) % 3
    g = torch.cat([centres[which], torch.zeros(600, 8)]) + torch.randn(900, 8, generator=rng)
    y = torch.arange(900) < 300
    few, many = (auc(scores(g, known, "distance"), y) for known in ([0], [0, 1, 2]))
    assert few < 0.9
    assert many > 0.99
