import torch
from attacks.views import gradients, positives, scores_of

from vflbench.attacks.cosine import Cosine
from vflbench.numerics.auc import auc


def scores(g, known, **options):
    return scores_of(Cosine(**options), gradients(g), positives(known))


def test_scores_are_cosines_with_the_known_row(rng):
    g = torch.randn(20, 6, generator=rng)
    expected = torch.cosine_similarity(g.double(), g[7:8].double())
    assert torch.allclose(scores(g, [7]), expected, atol=1e-12)


def test_several_known_rows_are_averaged(rng):
    g = torch.randn(20, 6, generator=rng)
    expected = (scores(g, [7]) + scores(g, [2])) / 2
    assert torch.allclose(scores(g, [7, 2], k=2), expected, atol=1e-12)


def test_a_logistic_loss_is_read_completely(rng):
    """g_i = (p_i - y_i) w: parallel within a class, opposite between classes; lengths say nothing here."""
    for unit in (1e-30, 1.0, 1e30):
        y = (torch.rand(400, generator=rng) < 0.25).long()
        p = torch.rand(400, generator=rng)
        w = torch.randn(8, generator=rng)
        g = ((p - y)[:, None] * w + 1e-3 * torch.randn(400, 8, generator=rng)) * unit
        assert auc(scores(g, [int(y.argmax())]), y) > 0.98, unit
