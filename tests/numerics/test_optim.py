import pytest
import torch
from torch import nn

from vflbench.numerics.optim import AdamSteps, Lbfgs, SgdSteps

SHAPES = ((7, 5), (5,), (3, 2, 3, 3), (1,), (1000, 4))
OPTIONS = {
    "fused": (AdamSteps, torch.optim.Adam, {"fused": True}),
    "amsgrad": (AdamSteps, torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.01}),
    "momentum": (SgdSteps, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.03}),
}


def parameters(dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=rng).to(dtype)) for shape in SHAPES]


def train(optimizer, own, steps, seed=1, without=()):
    """Steps along random gradients of many sizes; the parameters `without` get none in every second step."""
    rng = torch.Generator().manual_seed(seed)
    for step in range(steps):
        optimizer.zero_grad()
        for i, parameter in enumerate(own):
            g = torch.randn(parameter.shape, generator=rng) * 10.0 ** float(torch.randint(-8, 3, (), generator=rng))
            if i not in without or step % 2:
                parameter.grad = g.to(parameter.dtype)
        optimizer.step()


def same_bits(ours, theirs):
    pairs = [[values.detach().flatten().view(torch.uint8) for values in pair] for pair in zip(ours, theirs, strict=True)]
    return all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize(("own", "theirs", "options"), OPTIONS.values(), ids=OPTIONS)
def test_steps_are_those_of_torch_also_after_a_resumption(own, theirs, options, tmp_path):
    """Also where a parameter had no gradient before the stop."""
    ours, others = parameters(), parameters()
    reference, stopped = theirs(others, lr=3e-3, **options), own(ours, lr=3e-3, **options)
    train(reference, others, 1, without=(1, 4))
    train(stopped, ours, 1, without=(1, 4))
    torch.save(stopped.state_dict(), tmp_path / "state")
    resumed = own(ours, lr=3e-3, **options)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    train(reference, others, 5)
    train(resumed, ours, 5)
    assert same_bits(ours, others)


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
