import torch

from vflbench.defenses.base import Context, Defense, NonLabelDefense
from vflbench.defenses.chain import Chain
from vflbench.defenses.gaussian import Gaussian
from vflbench.options import state_of


class Counter(NonLabelDefense):
    def __init__(self, start=0):
        self.calls, self.mean = start, torch.zeros(2)

    def embedding(self, h, context):
        self.calls += 1
        self.mean += h.mean(0)
        return h


class WithStateOfItsOwn(Defense):
    def state(self):
        return {"kept": 3}

    def restore(self, state):
        self.restored = state["kept"]


def test_attributes_are_kept_and_options_are_not():
    defense = Gaussian(sigma=2.0)
    assert state_of(defense) == {}
    defense.seen = [1, 2]
    assert state_of(defense) == {"seen": [1, 2]}


def test_a_chain_goes_on_where_each_of_its_defenses_stood(rng):
    context = Context(torch.arange(3), None, 0, rng)
    first, second = (Chain({"a": Counter(), "b": WithStateOfItsOwn(), "c": Counter(5)}) for _ in range(2))
    first.embedding(torch.ones(3, 2), context)
    state = first.state()
    second.restore(state)
    assert [second.named[name].calls for name in ("a", "c")] == [1, 6]
    assert torch.equal(second.named["a"].mean, torch.ones(2))
    assert second.named["b"].restored == 3
    second.embedding(torch.ones(3, 2), context)
    assert torch.equal(state["defenses"][0]["mean"], torch.ones(2))  # copies, not the file's tensors
