"""Optimisers, a backward pass and layers against those of torch; and a decoder that learns with them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vflbench.numerics.decoder import fit_decoder
from vflbench.numerics.optim import AdamSteps, BareConv2d, BareLinear, SgdSteps, backward, embedding

OPTIONS = {
    "fused": (AdamSteps, torch.optim.Adam, {"fused": True}),
    "amsgrad": (AdamSteps, torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.01}),
    "momentum": (SgdSteps, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.03}),
}


def train(optimizer, parameters, steps, without=()):
    """Steps along random gradients; the parameters `without` get none."""
    rng = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        for i, parameter in enumerate(parameters):
            parameter.grad = None if i in without else torch.randn(parameter.shape, generator=rng)
        optimizer.step()


@pytest.mark.parametrize(("own", "theirs", "options"), OPTIONS.values(), ids=OPTIONS)
def test_steps_are_those_of_torch_also_after_a_resumption(own, theirs, options, tmp_path):
    """Also where a parameter had no gradient before the stop."""
    ours, others = ([nn.Parameter(torch.ones(shape)) for shape in ((7, 5), (5,), (3, 2, 3, 3))] for _ in range(2))
    reference, stopped = theirs(others, lr=3e-3, **options), own(ours, lr=3e-3, **options)
    train(reference, others, 1, without=(1,))
    train(stopped, ours, 1, without=(1,))
    torch.save(stopped.state_dict(), tmp_path / "state")
    resumed = own(ours, lr=3e-3, **options)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    train(reference, others, 5)
    train(resumed, ours, 5)
    assert all(map(torch.equal, ours, others))


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


def test_bare_layers_are_those_of_torch_and_draw_nothing():
    before = torch.get_rng_state()
    ours = [BareLinear(4, 3), BareConv2d(2, 5, 3, stride=2, padding=1)]
    assert torch.equal(torch.get_rng_state(), before)
    theirs = [nn.Linear(4, 3), nn.Conv2d(2, 5, 3, stride=2, padding=1)]
    for layer, other, x in zip(ours, theirs, (torch.randn(6, 4), torch.randn(2, 2, 5, 5)), strict=True):
        layer.load_state_dict(other.state_dict())
        assert torch.equal(layer(x), other(x))


@pytest.mark.slow
def test_an_invertible_function_is_inverted(rng):
    """h = x A + one-hot(id) B: both x and id are recovered for unseen pairs."""
    a, b = torch.randn(3, 12, generator=rng), torch.randn(4, 12, generator=rng)
    numeric, ids = torch.rand(1200, 3, generator=rng), torch.randint(4, (1200, 1), generator=rng) + 5
    h = numeric @ a + b[ids[:, 0] - 5]
    decoder = fit_decoder(h[:1000], numeric[:1000], ids[:1000], rng, width=64, steps=400)
    answer, categories = decoder(h[1000:])
    assert (answer - numeric[1000:]).square().mean() < 0.005  # the mean has 1/12
    assert (categories == ids[1000:]).float().mean() > 0.95
    assert ((answer >= 0) & (answer <= 1)).all()


def test_an_uninformative_message_gives_the_mean(rng):
    numeric = torch.rand(500, 2, generator=rng)
    decoder = fit_decoder(torch.zeros(500, 4), numeric, torch.empty(500, 0), rng, width=8, steps=300)
    answer, categories = decoder(torch.zeros(3, 4))
    torch.testing.assert_close(answer, numeric.mean(0).expand(3, -1), atol=0.03, rtol=0)
    assert categories.shape == (3, 0)
