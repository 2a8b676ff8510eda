import copy

import pytest
import torch
from optimizer_steps import parameters, same_bits, train
from torch import nn

from vflbench.numerics.optim import SgdSteps

OPTIONS = {
    "as it comes": {},
    "momentum": {"momentum": 0.9},
    "weight decay": {"weight_decay": 0.03},
    "both": {"momentum": 0.5, "weight_decay": 0.1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_steps_are_those_of_torch_bit_for_bit(options, dtype):
    ours, theirs = parameters(dtype), parameters(dtype)
    train(SgdSteps(ours, lr=1e-2, **options), ours, 30, without=(1, 4))
    train(torch.optim.SGD(theirs, lr=1e-2, **options), theirs, 30, without=(1, 4))
    assert same_bits(ours, theirs)


@pytest.mark.parametrize("name", [name for name, options in OPTIONS.items() if not options.get("weight_decay")])
def test_sparse_gradients_as_in_torch(name):
    """Without weight decay, as torch has no sum of sparse gradients and weights."""
    options = OPTIONS[name]
    ours = nn.Embedding(5, 2, sparse=True)
    theirs = copy.deepcopy(ours)
    for table, optimizer in ((ours, SgdSteps), (theirs, torch.optim.SGD)):
        stepper = optimizer(table.parameters(), lr=0.1, **options)
        for ids in ([1, 1, 3], [0, 3]):
            stepper.zero_grad()
            table(torch.tensor(ids)).square().sum().backward()
            stepper.step()
    assert torch.equal(ours.weight, theirs.weight)


def test_a_resumed_run_takes_the_same_steps():
    whole = parameters()
    first = SgdSteps(whole, lr=1e-2, momentum=0.9)
    train(first, whole, 3, without=(2,))
    resumed = copy.deepcopy(whole)
    second = SgdSteps(resumed, lr=1e-2, momentum=0.9)
    second.load_state_dict(first.state_dict())
    train(first, whole, 3, seed=2)
    train(second, resumed, 3, seed=2)
    assert all(map(torch.equal, whole, resumed))


def test_a_state_of_other_parameters_is_refused():
    own = parameters()
    optimizer = SgdSteps(own, lr=0.1, momentum=0.9)
    train(optimizer, own, 1)
    saved = optimizer.state_dict()["state"]
    with pytest.raises(ValueError, match="momentum_buffer"):
        optimizer.load_state_dict({"state": [{"momentum_buffer": torch.zeros(2, 2)}, *saved[1:]]})
    with pytest.raises(ValueError, match="of no parameter"):
        optimizer.load_state_dict({"state": saved[1:]})
    with pytest.raises(ValueError, match="of no parameter"):
        SgdSteps(own, lr=0.1).load_state_dict({"state": saved})
