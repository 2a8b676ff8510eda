"""One pass over several stacks gives what each gives by itself, and only stacks of ours are taken for such."""

import copy

import pytest
import torch
from torch import nn

from vflbench.models.layers import ReluStack
from vflbench.models.mlp import Mlp
from vflbench.models.stacked import StackedPass, gives_same_bits, shape_of, stack_of
from vflbench.models.wide_deep import WideDeep


def stacks(rng, inputs=(3, 7, 1), widths=(8, 8, 5)):
    return [ReluStack(("f1", "f2", "f3"), each, widths, rng) for each in inputs]


def test_forward_and_back_are_those_of_torch_to_the_bit(rng):
    for rows in (1, 33):
        alone = stacks(rng)
        stacked, seen = copy.deepcopy(alone), []
        inputs = [torch.rand(rows, each, generator=rng).requires_grad_(each != 1) for each in (3, 7, 1)]
        gradients = [torch.randn(rows, 5, generator=rng) for _ in alone]
        for stack, x, g in zip(alone, inputs, gradients, strict=True):
            layers = stack(x)
            for h in layers.values():
                h.retain_grad()
            layers["f3"].backward(g)
            seen.append(layers)
        at_once = StackedPass(stacked, inputs, keep=True)
        by_inputs = at_once.backward(gradients)
        for k, (stack, other, x) in enumerate(zip(alone, stacked, inputs, strict=True)):
            for name, h in seen[k].items():
                torch.testing.assert_close(at_once.activations[name][k], h.detach(), rtol=1e-6, atol=1e-7)
                torch.testing.assert_close(at_once.gradients[name][k], h.grad, rtol=1e-6, atol=1e-7)
            for p, q in zip(stack.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-6, atol=1e-6)
            if x.grad is None:
                assert by_inputs[k] is None
            else:
                torch.testing.assert_close(by_inputs[k], x.grad, rtol=1e-6, atol=1e-7)


def test_a_stack_without_a_gradient_is_left_as_it_is(rng):
    made = stacks(rng)
    for p in made[1].parameters():
        p.grad = torch.full_like(p, 7.0)
    at_once = StackedPass(made, [torch.rand(4, each, generator=rng) for each in (3, 7, 1)])
    by_inputs = at_once.backward([torch.full((4, 5), torch.inf), None, torch.ones(4, 5)])
    assert by_inputs[1] is None
    assert all((p.grad == 7).all() for p in made[1].parameters())
    assert all(p.grad.isfinite().all() for p in made[2].parameters()), "one party's infinity is nobody else's"


def test_a_change_in_place_is_an_error_as_in_a_graph(rng):
    at_once = StackedPass(stacks(rng), [torch.rand(4, each, generator=rng) for each in (3, 7, 1)])
    at_once.activations["f3"][1].detach().mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        at_once.backward([torch.ones(4, 5)] * 3)


def test_another_last_bit_is_noticed(rng, monkeypatch):
    made, forward = stacks(rng), StackedPass._forward
    before = [p.clone() for stack in made for p in stack.parameters()]
    same = gives_same_bits(made, 64)
    assert same in (True, False)  # the machine's kernels decide

    def other(self):
        for h in forward(self):
            yield torch.nextafter(h, torch.full_like(h, 2.0))

    monkeypatch.setattr(StackedPass, "_forward", other)
    assert not gives_same_bits(made, 64)
    assert all(map(torch.equal, before, (p for stack in made for p in stack.parameters())))
    assert all(p.grad is None for stack in made for p in stack.parameters())


def test_only_a_network_that_is_nothing_else_has_a_stack(rng):
    def bottom(model=None):
        return (model or WideDeep(bottom_layers=2, width=8)).bottom(("I1",), (5,), 1, rng)

    assert shape_of(stack_of(bottom())) == (("f1", 8), ("f2", 8))
    assert stack_of(Mlp(bottom_layers=1, width=4).bottom(("I1",), (), 1, rng)) is not None

    class Noisy(type(bottom())):
        def forward(self, numeric, categorical):
            return {name: h + torch.rand(h.shape) for name, h in super().forward(numeric, categorical).items()}

    changes = {
        "a subclass": lambda b: setattr(b, "__class__", Noisy),
        "another layer": lambda b: b.stack.layers.update({"f2": nn.Sequential(nn.Linear(8, 8), nn.Dropout())}),
        "no bias": lambda b: b.stack.layers.update({"f2": nn.Linear(8, 8, bias=False)}),
        "normed weights": lambda b: nn.utils.parametrizations.spectral_norm(b.stack.layers["f2"]),
        "a frozen layer": lambda b: b.stack.layers["f1"].requires_grad_(False),
        "a hook": lambda b: b.stack.register_forward_hook(lambda *_: None),
        "a hook of a layer": lambda b: b.stack.layers["f1"].register_full_backward_hook(lambda *_: None),
        "a hook of a weight": lambda b: b.stack.layers["f1"].weight.register_hook(lambda g: 2 * g),
        "doubles": lambda b: b.double(),
    }
    for name, change in changes.items():
        changed = bottom()
        change(changed)
        assert stack_of(changed) is None, name
