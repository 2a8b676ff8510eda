import pytest
import torch
from support.optimizer_steps import parameters, same_bits, train

from vflbench.numerics.optim import AdamSteps, Lbfgs, SgdSteps

OPTIONS = {
    "fused": (AdamSteps, torch.optim.Adam, {"fused": True}),
    "amsgrad": (AdamSteps, torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.01}),
    "momentum": (SgdSteps, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.03}),
}


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
