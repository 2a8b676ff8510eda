"""ReLU layers as one node of autograd: the bits of layers one after the other, and no join where somebody looks between."""

import pytest
import torch
from builders import session, table, weights
from torch import nn
from torch.nn import functional as F

from vflbench.messages.facts import Gradients
from vflbench.models import joined as module
from vflbench.models.joined import gradients_between_unseen, joined
from vflbench.models.layers import ReluStack
from vflbench.models.wide_deep import WideDeep
from vflbench.numerics.open_relu import OpenRelu

N, INPUTS, WIDTHS, NAMES = 300, 21, (16, 24, 16), ("f1", "f2", "f3")


@pytest.fixture(autouse=True)
def _joins(monkeypatch):
    """Batches of any size are joined, as a run has tuned torch."""
    monkeypatch.setattr(module, "_LEAST", 0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def stack():
    return ReluStack(NAMES, INPUTS, WIDTHS, torch.Generator().manual_seed(0))


def inputs(n=N):
    return torch.rand(n, INPUTS, generator=torch.Generator().manual_seed(1)).requires_grad_()


def is_joined(activations):
    return "_Joined" in type(activations["f3"].grad_fn).__name__


def learned(layers, x, *, precision=torch.float32, at=("f3",)):
    """Activations, and the gradients of weights and input, if gradients come back at these layers."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        activations = layers(x)
    rng = torch.Generator().manual_seed(2)
    given = [torch.randn(activations[name].shape, generator=rng).to(activations[name].dtype) for name in at]
    before = [g.clone() for g in given]
    torch.autograd.backward([activations[name] for name in at], given)
    assert all(map(torch.equal, given, before))  # they are messages
    return activations, [*activations.values(), *(p.grad for p in layers.parameters()), x.grad]


def needs_join(x, precision=torch.float32):
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16), gradients_between_unseen():
        if not is_joined(stack()(x)):
            pytest.skip("torch joins no layers on this processor, or with other bits")


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("at", [("f3",), ("f1", "f3"), ("f2",)])
def test_the_bits_are_those_of_layers_one_after_the_other(precision, at):
    needs_join(inputs(), precision)
    for n in (1, 7, N, 1024):
        apart, expected = learned(stack(), inputs(n), precision=precision, at=at)
        with gradients_between_unseen():
            together, found = learned(stack(), inputs(n), precision=precision, at=at)
        assert not is_joined(apart)
        if is_joined(together):
            for mine, other in zip(found, expected, strict=True):
                assert (mine is None and other is None) or (torch.equal(mine, other) and mine.dtype is other.dtype)


def test_gradients_against_float64():
    needs_join(inputs())
    with gradients_between_unseen():
        _, found = learned(stack(), inputs())
    _, exact = learned(stack().double(), inputs().detach().double().requires_grad_())
    exact_ones = exact[len(NAMES) :]
    for mine, other in zip(found[len(NAMES) :], exact_ones, strict=True):
        assert (mine.double() - other).abs().max() < 1e-4 * other.abs().max()


def test_without_gradients_it_is_joined_everywhere_with_the_same_bits():
    layers, x = stack(), inputs()
    with torch.no_grad():
        for mine, other in zip(layers(x).values(), stack()(x.detach().clone().requires_grad_()).values(), strict=True):
            assert torch.equal(mine, other)


def test_weights_that_do_not_learn_get_no_gradient():
    needs_join(inputs())
    layers, x = stack().requires_grad_(False), inputs()
    with gradients_between_unseen():
        layers(x)["f3"].sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in layers.parameters())


def test_a_second_derivative_raises_where_it_was_ruled_out_and_works_elsewhere():
    needs_join(inputs())
    layers, x = stack(), inputs()
    (slope,) = torch.autograd.grad(layers(x)["f3"].square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad is not None
    with gradients_between_unseen():
        (slope,) = torch.autograd.grad(layers(x)["f3"].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.square().sum().backward()


def test_it_stays_apart_where_somebody_looks_between():
    x, layers = inputs(), stack()
    assert not is_joined(layers(x))
    with gradients_between_unseen():
        with gradients_between_unseen(False):
            assert not is_joined(layers(x))
        with OpenRelu(0.1):  # which gives every ReLU another gradient
            opened = layers(x)
        assert not is_joined(opened)
        (g,) = torch.autograd.grad(opened["f3"].sum(), x)
        assert g.abs().min() > 0
        assert not is_joined(layers(x.double().float().unsqueeze(0)[0].T.contiguous().T))  # in another layout
        seen = []
        hook = layers.layers["f2"].register_forward_hook(lambda _, __, output: seen.append(output.shape))
        assert not is_joined(layers(x))
        assert seen == [(N, WIDTHS[1])]
        hook.remove()
        layers.layers["f2"] = nn.Sequential(layers.layers["f2"])
        assert not is_joined(layers(x))
    assert joined([], x) is None


def test_float64_and_products_of_other_bits_stay_apart(monkeypatch):
    with gradients_between_unseen():
        assert not is_joined(stack().double()(inputs().double()))
        monkeypatch.setattr(module, "_checked", {})
        monkeypatch.setattr(module, "_relu_of_product", lambda x, w, b: F.relu(x @ w.T + b * 1.0001))
        assert not is_joined(stack()(inputs()))


def test_layers_whose_gradients_have_other_bits_stay_apart(monkeypatch):
    def odd(x, weight, bias):
        value = F.relu(F.linear(x, weight, bias))
        weight.register_hook(lambda g: g * 1.0001)
        return value

    monkeypatch.setattr(module, "_checked", {})
    monkeypatch.setattr(module, "_one_joined", odd)
    with gradients_between_unseen():
        assert not is_joined(stack()(inputs()))
    assert False in module._checked.values()


@pytest.mark.parametrize("columns", [5, 8, 10])
def test_gradients_of_few_columns_have_the_bits_of_torch(columns):
    """Here the order of sums shows: on processors without AVX-512, x^T g has other bits than g^T x."""
    rng = torch.Generator().manual_seed(0)
    one, found = nn.Linear(columns, 128), []
    x, given = torch.rand(4096, columns, generator=rng), torch.randn(4096, 128, generator=rng)
    values = [form(x, one.weight, one.bias) for form in (module._one_joined, module._one_apart)]
    if not torch.equal(*values):
        pytest.skip("torch joins no layers on this processor, or with other bits")
    for value in values:
        found.append(torch.autograd.grad(value, list(one.parameters()), given * (value > 0)))
    assert all(map(torch.equal, *found))


def test_training_is_the_same_watched_or_not_and_gradients_of_all_layers_are_seen(rng):
    rows, after = table(rng, rows=256), []
    for watch in (frozenset(), frozenset({Gradients})):
        started = session(rows, model=WideDeep(bottom_layers=3, top_layers=2, width=16))
        done = [started.round(rows.ids, watch=watch) for _ in range(3)]
        after.append([done[-1].training.loss, *weights(started)])
    assert after[0][0] == after[1][0]
    assert all(map(torch.equal, after[0][1:], after[1][1:]))
    seen = done[-1].facts["a"][Gradients].layers
    assert list(seen) == ["f1", "f2", "f3"]
    assert all(g.abs().sum() > 0 for g in seen.values())


class Half(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 2


def _half(layer):
    made = Half(layer.in_features, layer.out_features)
    made.load_state_dict(layer.state_dict())
    return made


def _threefold(layer):
    forward = layer.forward
    layer.forward = lambda x: 3 * forward(x)
    return layer


@pytest.mark.parametrize("change", [_half, _threefold, nn.utils.parametrizations.weight_norm])
def test_a_layer_that_computes_something_else_is_called(change, rng):
    stack = ReluStack(["f1", "f2"], 128, [128, 128], rng)
    stack.layers["f2"] = change(stack.layers["f2"])
    x = torch.randn(4096, 128, generator=rng)
    with torch.no_grad():
        layers = stack(x)
        assert torch.equal(layers["f2"], torch.relu(stack.layers["f2"](layers["f1"])))


def test_a_hook_on_all_modules_is_called(rng):
    stack, x = ReluStack(["f1"], 128, [128], rng), torch.randn(4096, 128, generator=rng)
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, _, h: 2 * h if type(module) is not ReluStack else None
    )
    try:
        with torch.no_grad():
            twice = stack(x)["f1"]
    finally:
        hook.remove()
    with torch.no_grad():
        assert torch.equal(twice, 2 * stack(x)["f1"])
