import torch
from defenses.contexts import drawing

from vflbench.defenses.shuffle import Shuffle


def test_every_epoch_has_a_new_order_of_the_same_rows(rng):
    order = torch.arange(100)
    first, second = Shuffle().order(order, drawing(rng)), Shuffle().order(order, drawing(rng))
    assert torch.equal(first.sort().values, order)
    assert not torch.equal(first, second)
