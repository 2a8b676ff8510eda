import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vflbench.numerics.optim import AdamSteps, BareConv2d, BareLinear, Lbfgs, SgdSteps, backward, embedding

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


def test_lbfgs_has_the_bits_of_torch():
    """On Rosenbrock's function, whose minimum lies at (1, 1)."""

    def minimum(solver):
        x = torch.tensor([-1.5, 2.0], requires_grad=True)
        descent = solver([x], max_iter=60, line_search_fn="strong_wolfe")

        def loss():
            descent.zero_grad()
            value = (1 - x[0]).square() + 100 * (x[1] - x[0].square()).square()
            value.backward()
            return value

        descent.step(loss)
        return x.detach()

    assert torch.equal(minimum(Lbfgs), minimum(torch.optim.LBFGS))
    assert torch.allclose(minimum(Lbfgs), torch.ones(2), atol=1e-3)


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


@pytest.mark.parametrize(
    ("bare", "of_torch"),
    [
        (lambda: BareLinear(4, 3), lambda: nn.Linear(4, 3)),
        (lambda: BareConv2d(2, 5, 3, stride=2, padding=1), lambda: nn.Conv2d(2, 5, 3, stride=2, padding=1)),
    ],
)
def test_they_are_the_layers_of_torch_and_draw_nothing(bare, of_torch):
    before = torch.get_rng_state()
    ours = bare()
    assert torch.equal(torch.get_rng_state(), before)
    theirs = of_torch()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 4) if isinstance(theirs, nn.Linear) else torch.randn(2, 2, 5, 5)
    assert torch.equal(ours(x), theirs(x))
