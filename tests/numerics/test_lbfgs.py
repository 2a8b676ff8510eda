import torch

from vflbench.numerics.optim import Lbfgs


def test_steps_are_those_of_torch_bit_for_bit():
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

    ours = minimum(Lbfgs)
    assert torch.equal(ours, minimum(torch.optim.LBFGS))
    assert torch.allclose(ours, torch.ones(2), atol=1e-3)
