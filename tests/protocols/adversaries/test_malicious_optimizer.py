import copy

import pytest
import torch
from support.builders import session, table, weights
from torch import nn

from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.optimizers import Adam, Sgd
from vflbench.protocols.adversaries.malicious_optimizer import MaliciousOptimizer


class Weights(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))


def steps(adversary, optimizer, gradients):
    """What each of these gradients moves the weights by."""
    network, moves = Weights(gradients.shape[1]), []
    stepper = adversary.attach(network, optimizer)
    for g in gradients:
        before = network.w.detach().clone()
        stepper.zero_grad()
        network.w.grad = g.clone()
        stepper.step()
        moves.append(network.w.detach() - before)
    return torch.stack(moves)


def test_sgd_steps_follow_the_published_ratio_coordinate_by_coordinate():
    g = torch.tensor([[1.0, 1.0, 1.0, 0.0, 1.0], [2.0, -1.0, 9.0, 1.0, 0.0], [6.0, -1.0, 9.0, 1.0, 1.0]])
    scaled = -steps(MaliciousOptimizer(), Sgd(lr=1.0), g)
    assert scaled[0].tolist() == g[0].tolist()
    assert scaled[1].tolist() == [6.0, -1.0, 45.0, 1.0, 0.0]  # ratios 1 + 2, 1 + -1 raised to 1, 1 + 9 cut to 5, 1, 1
    assert torch.allclose(scaled[2], torch.tensor([6 * 2.0, -1 * 2.0, 9 * 1.2, 1 * 2.0, 1.0]))  # the last ones were scaled


def test_adam_steps_are_scaled_not_the_gradients_that_adam_would_normalise():
    g = torch.ones(20, 3)
    honest, scaled = (steps(a, Adam(lr=0.01), g) for a in (MaliciousOptimizer(gamma=0.0), MaliciousOptimizer()))
    assert torch.allclose(honest, torch.full_like(honest, -0.01), rtol=1e-3)
    ratio = scaled / honest
    assert torch.allclose(ratio[0], torch.ones(3))
    assert bool((ratio[1:] > 1.3).all() and (ratio <= 5.001).all())


@pytest.mark.parametrize("optimizer", [Sgd(lr=0.1), Adam(), LazyAdam(kernel="torch")])
def test_without_a_ratio_it_is_honest_and_what_it_keeps_is_restored(rng, optimizer):
    rows = table(rng)
    honest, idle = (session(rows, optimizer=optimizer, adversaries=a) for a in ({}, {"it": MaliciousOptimizer(gamma=0.0)}))
    for _ in range(3):
        honest.round(rows.ids)
        idle.round(rows.ids)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(weights(honest), weights(idle), strict=True))
    whole, resumed = (session(rows, optimizer=optimizer, adversaries={"it": MaliciousOptimizer()}) for _ in range(2))
    for _ in range(2):
        whole.round(rows.ids)
    resumed.restore(copy.deepcopy(whole.state()))
    for split in (whole, resumed):
        for _ in range(2):
            split.round(rows.ids)
    assert all(map(torch.equal, weights(whole), weights(resumed)))
