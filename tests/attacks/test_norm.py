import pytest
import torch
from attacks.views import view_of

from vflbench.attacks.norm import Norm
from vflbench.numerics.auc import auc


def test_scores_are_euclidean_norms(rng):
    g = torch.randn(50, 8, generator=rng)
    scores = Norm().infer(view_of(Norm.knows, gradients={"f1": 2 * g, "f2": g}))
    assert list(scores) == ["f1", "f2"]
    assert torch.allclose(scores["f2"].double(), g.double().square().sum(1).sqrt())
    assert torch.allclose(scores["f1"], 2 * scores["f2"])


def test_a_logistic_model_that_says_p_for_everyone_is_read_completely(rng):
    """dL/dh_i = (p - y_i) w / n: longer for the rarer class, by (1 - p) / p, whatever w is."""
    h = torch.randn(400, 6, generator=rng, requires_grad=True)
    y = (torch.rand(400, generator=rng) < 0.25).float()
    w = torch.randn(6, generator=rng)
    logits = torch.full((400,), -1.0986) + 0 * (h @ w) + (h - h.detach()) @ w  # p = 1/4, gradient w
    torch.nn.functional.binary_cross_entropy_with_logits(logits, y).backward()
    scores = Norm().infer(view_of(Norm.knows, gradients={"f1": h.grad}))["f1"]
    assert auc(scores, y) == 1.0
    assert torch.allclose(scores, ((0.25 - y).abs() * w.norm() / 400).double(), rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e22, 1e30])
def test_lengths_neither_vanish_nor_overflow(rng, scale):
    g = torch.randn(50, 128, generator=rng)
    small = Norm().infer(view_of(Norm.knows, gradients={"f1": g * scale}))["f1"]
    assert torch.allclose(small / scale, g.double().norm(dim=1), rtol=1e-5)
