import pytest
import torch
from attacks.views import shares, view_of
from torch import nn
from torch.nn import functional as F

from vflbench.attacks.batch_inference import BatchInference, SummedRows, shared_factor, sums_of_layers
from vflbench.attacks.direct import Direct
from vflbench.attacks.norm import Norm
from vflbench.messages.facts import Embeddings, Gradients, PartyFeatures, SummedGradients
from vflbench.models.base import ReluStack
from vflbench.numerics.auc import auc

WIDTH = 64


class Round:
    """A batch of a party with three ReLU layers below a cut, and a top with one; the loss is logistic."""

    def __init__(self, rng, n, positive=0.25):
        self.y = torch.rand(n, generator=rng) < positive
        self.x = torch.rand(n, WIDTH, generator=rng)
        bottom = ReluStack(("f1", "f2", "f3"), WIDTH, [WIDTH] * 3, rng)
        top = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
        for parameter in top.parameters():
            nn.init.normal_(parameter, std=0.2, generator=rng)
        self.h = bottom(self.x)
        logits = top(self.h["f3"])[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits - logits.detach().mean() - 1.1, self.y.float())
        (self.sent,) = torch.autograd.grad(loss, self.h["f3"], retain_graph=True)
        self.h["f3"].backward(self.sent)
        self.parameters = {f"stack.{name}": p.grad for name, p in bottom.named_parameters()}

        self.h = {layer: h.detach() for layer, h in self.h.items()}
        self.deepest = sums_of_layers({"": self.x, **self.h}, self.parameters)["f3"]


def scores(attack, of, prior=0.25):
    columns = PartyFeatures(of.x, torch.zeros(len(of.x), 0, dtype=torch.int64))
    facts = SummedGradients(of.parameters), Embeddings(of.h), columns, shares(prior)
    return attack.batch(view_of(attack.threat, *facts)).layers["f3"]


def test_rows_of_a_small_batch_are_recovered_and_read_as_if_they_had_been_sent(rng):
    round_ = Round(rng, n=48)
    recovered, expected = round_.deepest.least_squares(), round_.sent * (round_.h["f3"] > 0)  # by what the ReLU was given
    assert float((recovered - expected).norm() / expected.norm()) < 1e-3
    lengths = [Norm().batch(view_of(Norm().threat, Gradients({"f3": g}))).layers["f3"] for g in (recovered, expected)]
    assert torch.allclose(*lengths, rtol=1e-2)
    direct = Direct().batch(view_of(Direct.threat, Gradients({"f3": expected}), shares(0.25))).layers["f3"]
    ours = scores(BatchInference(), round_)
    assert torch.allclose(ours / ours.norm(), direct / direct.norm(), atol=1e-3)
    assert auc(ours, round_.y) == auc(direct, round_.y)


@pytest.mark.parametrize("positive", [0.25, 0.75])
def test_a_batch_with_many_more_rows_than_the_layer_has_inputs_is_read_too(rng, positive):
    round_ = Round(rng, n=512, positive=positive)
    alone = round_.deepest.least_squares()
    assert abs(auc(alone @ torch.linalg.svd(alone, full_matrices=False).Vh[0], round_.y) - 0.5) < 0.4
    assert auc(scores(BatchInference(), round_, positive), round_.y) > 0.93


def test_planted_factors_are_found(rng):
    """Sums that are exactly of the form that is fitted, for ten times as many rows as inputs."""
    r, v = torch.randn(200, generator=rng).double(), torch.randn(40, generator=rng).double()
    sums = []
    for _ in range(2):
        a = torch.randn(200, 20, generator=rng)
        h = torch.randn(200, 40, generator=rng).relu()
        weight = ((h > 0) * r[:, None] * v).T @ a.double()
        sums.append(SummedRows.of(weight, None, a, h))
    factor, direction = shared_factor(sums, rounds=6, steps=40)
    assert abs(float(torch.corrcoef(torch.stack([factor, r]))[0, 1])) > 0.999
    assert abs(float(torch.corrcoef(torch.stack([direction, v]))[0, 1])) > 0.999
