import copy

import pytest
import torch
from optimizer_steps import SHAPES, parameters, same_bits, train
from torch import nn

from vflbench.numerics.optim import AdamSteps

OPTIONS = {
    "as it comes": {},
    "small moments": {"betas": (0.0, 0.8), "eps": 1e-12},
    "long moments": {"betas": (0.99, 0.99999), "eps": 1.0},
    "weight decay": {"weight_decay": 0.03},
    "the largest second moment": {"amsgrad": True, "weight_decay": 0.01},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    ("fused", "dtype"),
    [(True, torch.float32), (True, torch.float64), (True, torch.bfloat16), (False, torch.float32), (False, torch.float64)],
)
def test_steps_are_those_of_torch_bit_for_bit(fused, options, dtype):
    ours, theirs = parameters(dtype), parameters(dtype)
    train(AdamSteps(ours, lr=3e-3, fused=fused, **options), ours, 30, without=(1, 4))
    train(torch.optim.Adam(theirs, lr=3e-3, fused=fused, **options), theirs, 30, without=(1, 4))
    assert same_bits(ours, theirs)


def test_a_mixture_of_types_and_a_falling_rate_are_as_in_torch():
    def mixed():
        return [*parameters(), *parameters(torch.float64)]

    ours, theirs = mixed(), mixed()
    own, other = AdamSteps(ours, lr=1.0, fused=True), torch.optim.Adam(theirs, lr=1.0, fused=True)
    for step in range(10):
        own.lr = other.param_groups[0]["lr"] = 1e-2 * (1 - step / 10)
        train(own, ours, 1, seed=step)
        train(other, theirs, 1, seed=step)
    assert same_bits(ours, theirs)


@pytest.mark.parametrize("fused", [True, False])
def test_a_resumed_run_takes_the_same_steps(fused, tmp_path):
    """Also where a parameter had no gradient before the stop, and the saved state is trained on afterwards."""
    whole, stopped = parameters(), parameters()
    train(AdamSteps(whole, lr=1e-2, fused=fused, amsgrad=True), whole, 1, without=(2,))
    first = AdamSteps(stopped, lr=1e-2, fused=fused, amsgrad=True)
    train(first, stopped, 1, without=(2,))
    torch.save(first.state_dict(), tmp_path / "state")
    state = torch.load(tmp_path / "state", weights_only=True)
    assert [one is None for one in state["state"]] == [i == 2 for i in range(len(SHAPES))]
    resumed = copy.deepcopy(stopped)
    second = AdamSteps(resumed, lr=1e-2, fused=fused, amsgrad=True)
    second.load_state_dict(state)
    train(first, stopped, 5)
    train(second, resumed, 5)
    again = AdamSteps(stopped, lr=1e-2, fused=fused, amsgrad=True)
    again.load_state_dict(state)  # which the steps after it have left as it was
    assert all(map(torch.equal, stopped, resumed))
    assert all(float(one["step"]) == 1 for one in again.state.values())


def test_a_state_of_other_parameters_is_refused():
    own = parameters()
    optimizer = AdamSteps(own, lr=0.1, fused=True)
    train(optimizer, own, 1)
    saved = optimizer.state_dict()["state"]
    odd = (torch.zeros(2, 2), torch.zeros(5, 7), torch.zeros(7, 5).double(), torch.zeros(7, 5).to_sparse(), 0.0, None)
    for value in odd:
        with pytest.raises(ValueError, match="exp_avg"):
            optimizer.load_state_dict({"state": [{**saved[0], "exp_avg": value}, *saved[1:]]})
    with pytest.raises(ValueError, match="step"):
        optimizer.load_state_dict({"state": [{**saved[0], "step": torch.zeros(3)}, *saved[1:]]})
    for of_others in ([{"momentum_buffer": saved[0]["exp_avg"]}, *saved[1:]], saved[1:], [*saved, None]):
        with pytest.raises(ValueError, match="the optimiser"):
            optimizer.load_state_dict({"state": of_others})


def test_sparse_gradients_are_refused():
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        AdamSteps(table.parameters(), lr=0.1, fused=True).step()
