import pytest
import torch
from torch import nn

from vflbench.numerics.optim import BareConv2d, BareLinear


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
