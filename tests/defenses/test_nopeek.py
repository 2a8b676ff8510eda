import pytest
import torch
from numerics.test_dcor import by_definition
from torch import nn

from vflbench.defenses.base import Context
from vflbench.defenses.nopeek import Nopeek
from vflbench.messages.facts import PartyFeatures


def batch(rng, n=40):
    numeric = torch.rand(n, 3, generator=rng, dtype=torch.float64)
    categorical = torch.randint(4, (n, 2), generator=rng, dtype=torch.int32)
    one_hot = torch.cat([nn.functional.one_hot(c.long(), 4) for c in categorical.T], dim=1).double() / 2**0.5
    context = Context(torch.arange(n), PartyFeatures(numeric, categorical), 0, rng)
    return torch.cat([numeric, one_hot], dim=1), context


@pytest.mark.parametrize("options", [{}, {"statistic": "squared"}])
def test_weights_follow_the_gradient_of_the_mean_loss_and_the_penalty(rng, options):
    """Of a network trained on g = d mean loss / dh, as the label party sends it, against autograd of the whole objective."""
    columns, context = batch(rng)
    y = (torch.rand(len(columns), generator=rng, dtype=torch.float64) < 0.3).double()
    weights = torch.randn(columns.shape[1], 5, generator=rng, dtype=torch.float64, requires_grad=True)
    top = torch.randn(5, generator=rng, dtype=torch.float64)

    def loss(h):
        return nn.functional.binary_cross_entropy_with_logits(h @ top, y)

    h = (columns @ weights).tanh()
    squared = by_definition(h, (columns[:, None] - columns).norm(dim=2))  # with one-hot vectors over sqrt(2)
    statistic = squared if options.get("statistic") == "squared" else squared.sqrt()
    objective = loss(h) + 0.7 * statistic
    (expected,) = torch.autograd.grad(objective, weights)

    sent = h.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(sent), sent)
    defense = Nopeek(alpha=0.7, **options)
    h = (columns @ weights).tanh()
    (gradient,) = torch.autograd.grad(h, weights, defense.received(g, h.detach(), context))
    assert (gradient - expected).norm() <= 1e-10 * expected.norm()
    assert defense.figures() == {"constant_batches": 0, "dcor": pytest.approx(statistic.item(), rel=1e-9)}


def test_a_message_is_not_changed_and_constant_batches_are_counted(rng):
    _, context = batch(rng)
    defense, h = Nopeek(), torch.ones(40, 4)
    assert defense.embedding(h, context) is h
    assert torch.equal(defense.received(h, h, context), h)
    assert defense.figures() == {"constant_batches": 1}
    assert not defense.figures()
    without = Nopeek(alpha=0.0)
    assert torch.equal(without.received(h, torch.randn(40, 4, generator=rng), context), h)
