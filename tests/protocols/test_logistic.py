import math

import torch

from vflbench.defenses.chain import Chain
from vflbench.messages.wire import Kind
from vflbench.protocols.federated_lr import AGGREGATOR, Participant, gradient, taylor_loss


def batch(rng, rows=6, columns=3):
    x = (torch.rand(rows, columns, generator=rng) < 0.5).double()
    return x, torch.randint(2, (rows,), generator=rng).double() * 2 - 1


def test_the_loss_is_logistic_to_second_order(rng):
    x, y = batch(rng)
    theta = 1e-3 * torch.randn(3, generator=rng, dtype=torch.float64)
    logistic = torch.nn.functional.softplus(-y * (x @ theta))
    assert torch.allclose(taylor_loss(theta, x, y), logistic, atol=1e-10)
    assert taylor_loss(torch.zeros(3).double(), x, y).tolist() == [math.log(2)] * 6


def test_the_gradient_is_that_of_the_loss_and_alpha_theta_minus_beta(rng):
    x, y = batch(rng)
    theta = torch.randn(3, generator=rng, dtype=torch.float64, requires_grad=True)
    taylor_loss(theta, x, y).sum().backward()
    assert torch.allclose(gradient(theta.detach(), x, y, "sum"), theta.grad)
    assert torch.allclose(gradient(theta.detach(), x, y, "mean"), theta.grad / 6)
    assert torch.allclose(4 * theta.grad, x.T @ x @ theta.detach() - 2 * x.T @ y)


def test_a_step_over_several_batches_is_the_difference_they_make_together(rng):
    first, second = batch(rng), batch(rng)
    start = torch.randn(3, generator=rng, dtype=torch.float64)
    party = Participant("a", start, 0.3, "mean", Chain({}), rng)
    message, loss = party.step([first, second], torch.arange(12))
    middle = start - 0.3 * gradient(start, *first, "mean")
    end = middle - 0.3 * gradient(middle, *second, "mean")
    assert torch.allclose(message.tensors["theta"], end - start)
    assert (message.sender, message.receiver, message.kind) == ("a", AGGREGATOR, Kind.UPDATE)
    assert loss == (taylor_loss(start, *first).mean() + taylor_loss(middle, *second).mean()).item() / 2
