import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vflbench.numerics.optim import backward, embedding


def learned(through):
    """Gradients of a chain of layers of which several get a gradient of their own, and one of them twice."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 6) for _ in range(3)]
    x, heard = torch.randn(9, 6), []
    for layer in layers:
        x = torch.relu(layer(x))
        x.retain_grad()
        heard.append(x)
    given = [torch.randn(9, 6) for _ in heard]
    through([heard[2], heard[0], heard[2]], [given[0], given[1], given[2]])
    return [*(p.grad for layer in layers for p in layer.parameters()), *(h.grad for h in heard)]


def test_gradients_are_those_of_torch_bit_for_bit():
    assert all(map(torch.equal, learned(backward), learned(torch.autograd.backward)))


@pytest.mark.parametrize("shape", [(64, 3), (0, 3), (5, 0)])
@pytest.mark.parametrize("dim", [1, 4, 17])
def test_an_embedding_has_the_bits_of_torch_and_its_gradient_too(shape, dim):
    """Rows come often, as ids do, and gradients lie where another tensor's columns do."""
    torch.manual_seed(0)
    values, places = torch.randn(9, dim), torch.randint(9, shape, dtype=torch.int32)
    g = torch.randn(*shape[:1], 2 + shape[1] * dim)[:, 2:].reshape(*shape, dim)
    tables = [values.clone().requires_grad_() for _ in range(2)]
    read = [embedding(places, tables[0]), F.embedding(places, tables[1])]
    assert torch.equal(*read)
    for rows in read:
        rows.backward(g)
    assert torch.equal(tables[0].grad, tables[1].grad)
