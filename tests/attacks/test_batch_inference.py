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

    def __init__(self, rng, n, positive=0.25, numeric=WIDTH):
        self.y = torch.rand(n, generator=rng) < positive
        self.x = torch.rand(n, numeric, generator=rng)
        bottom = ReluStack(("f1", "f2", "f3"), numeric, [WIDTH] * 3, rng)
        top = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
        for parameter in top.parameters():
            nn.init.normal_(parameter, std=0.2, generator=rng)
        self.h = bottom(self.x)
        logits = top(self.h["f3"])[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits - logits.detach().mean() - 1.1, self.y.float())
        (self.sent,) = torch.autograd.grad(loss, self.h["f3"], retain_graph=True)
        self.h["f3"].backward(self.sent)
        self.parameters = {f"stack.{name}": p.grad for name, p in bottom.named_parameters()}

    def facts(self, prior=0.25):
        layers = {layer: h.detach() for layer, h in self.h.items()}
        columns = PartyFeatures(self.x, torch.zeros(len(self.x), 0, dtype=torch.int64))
        return SummedGradients(self.parameters), Embeddings(layers), columns, shares(prior)

    @property
    def opened_gradients(self):
        """Per example, by what the cut layer's ReLU was given."""
        return self.sent * (self.h["f3"] > 0)


def scores(attack, round_, prior=0.25):
    return attack.batch(view_of(attack.threat, *round_.facts(prior))).layers["f3"]


def oriented(s, y):
    return max(auc(s, y), 1 - auc(s, y))


def test_rows_of_a_small_batch_are_recovered_and_read_as_if_they_had_been_sent(rng):
    round_ = Round(rng, n=48)
    layers = {layer: h.detach() for layer, h in round_.h.items()}
    recovered = sums_of_layers({"": round_.x, **layers}, round_.parameters)["f3"].least_squares()
    expected = round_.opened_gradients
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
    deepest = sums_of_layers({"": round_.x, **{k: h.detach() for k, h in round_.h.items()}}, round_.parameters)["f3"]
    alone = deepest.least_squares()
    least_squares = oriented(alone @ torch.linalg.svd(alone, full_matrices=False).Vh[0], round_.y)
    ours = auc(scores(BatchInference(), round_, positive), round_.y)
    assert least_squares < 0.9
    assert ours > 0.93


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
