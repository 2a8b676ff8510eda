"""Several stacks of ReLU layers in one pass: a batched product a layer, over the weights of all of them."""

import copy
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from vflbench.models.base import Bottom
from vflbench.models.layers import ReluStack
from vflbench.numerics.optim import backward, has_hooks, is_plain_linear

_NUMBERS_TRIED = 1 << 17
_MOST_DRAWS = 16


class StackedPass:
    """One batch through K stacks, forward at once and back by `backward`, without torch's graph.

        a_kl = max(0, a_k(l-1) W_kl^T + b_kl),   k = 1 .. K in one product

    The first layers, whose inputs may be of different widths, are computed one by one. Every stack keeps its own weights,
    which are copied beside each other for the product.

    stacks: of one `shape_of`, without their first widths. inputs: (n, d_k) float32 each. keep: whether the gradients of all
    layers are kept, in memory of their own.
    """

    def __init__(self, stacks: Sequence[ReluStack], inputs: Sequence[Tensor], *, keep: bool = False):
        self._inputs, self._keep = [x.detach() for x in inputs], keep
        self._goes_on = [x.requires_grad for x in inputs]
        self._layers = [[_linear(layer) for layer in layers] for layers in zip(*map(_layers, stacks), strict=True)]
        self._names = tuple(stacks[0].layers)
        self.gradients: dict[str, Tensor] = {}
        with torch.no_grad():
            self._weights = [torch.stack([layer.weight for layer in same]) for same in self._layers[1:]]
            self.activations = dict(zip(self._names, self._forward(), strict=True))
        self._versions = [h._version for h in self.activations.values()]

    def _forward(self) -> Iterator[Tensor]:
        first, width = self._layers[0], self._layers[0][0].out_features
        h = self._inputs[0].new_empty(len(first), len(self._inputs[0]), width)
        for layer, x, out in zip(first, self._inputs, h, strict=True):
            torch.addmm(layer.bias, x, layer.weight.T, out=out)
        yield h.relu_()
        for same, weights in zip(self._layers[1:], self._weights, strict=True):
            biases = torch.stack([layer.bias for layer in same])[:, None]
            h = torch.baddbmm(biases, h, weights.transpose(1, 2)).relu_()
            yield h

    @torch.no_grad()
    def backward(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients by those inputs (n, d_k) that require one, and in `grad` those by the weights, in place of what was
        there.

        gradients: of the last layer, (n, width) each; a stack of which there is None is left as it is.
        """
        if [h._version for h in self.activations.values()] != self._versions:  # as torch's graph would
            raise RuntimeError("the activations of a layer were changed in place before its gradient came")
        last = self.activations[self._names[-1]]
        g = torch.stack([torch.zeros_like(h) if one is None else one for one, h in zip(gradients, last, strict=True)])
        learning = [one is not None for one in gradients]
        for depth in range(len(self._layers) - 1, 0, -1):
            g = self._through_relu(g, self._names[depth])
            below = self.activations[self._names[depth - 1]]
            of_weights, of_biases = torch.bmm(g.transpose(1, 2), below), g.sum(dim=1)
            for k, layer in enumerate(self._layers[depth]):
                if learning[k]:
                    layer.weight.grad, layer.bias.grad = self._own(of_weights[k]), self._own(of_biases[k])
            g = torch.bmm(g, self._weights[depth - 1])
        g = self._through_relu(g, self._names[0])
        return [self._below(k, g[k]) if learns else None for k, learns in enumerate(learning)]

    def _through_relu(self, g: Tensor, name: str) -> Tensor:
        if self._keep:
            self.gradients[name] = g
        return torch.ops.aten.threshold_backward(g, self.activations[name], 0)

    def _below(self, k: int, g: Tensor) -> Tensor | None:
        """Through a first layer."""
        layer = self._layers[0][k]
        layer.weight.grad, layer.bias.grad = g.T @ self._inputs[k], g.sum(dim=0)
        return g @ layer.weight if self._goes_on[k] else None

    def _own(self, values: Tensor) -> Tensor:
        return values.clone() if self._keep else values


def stack_of(bottom: Bottom) -> ReluStack | None:
    """The stack that is all of a bottom behind `before_stack`; None where that can't be relied on: where its class doesn't
    itself say so, where a layer was replaced, frozen or hooked, or is not of float32 numbers.
    """
    stack: ReluStack | None = getattr(bottom, "stack", None)
    if not {"before_stack", "forward"} <= set(vars(type(bottom))) or type(stack) is not ReluStack or not stack.layers:
        return None
    modules = [bottom, *bottom.modules()]
    plain = all(map(is_plain_linear, stack.layers.values())) and not {"forward", "before_stack"} & set(vars(bottom))
    parameters = list(stack.parameters())
    is_usual = all(p.requires_grad and p.dtype is torch.float32 and not has_hooks(p) for p in parameters)
    return stack if plain and is_usual and not any(map(has_hooks, modules)) else None


def shape_of(stack: ReluStack) -> tuple[tuple[str, int], ...]:
    """Name and width of each layer. Stacks that have this in common are computed in one pass."""
    return tuple((name, _linear(layer).out_features) for name, layer in stack.layers.items())


def gives_same_bits(stacks: Sequence[ReluStack], rows: int) -> bool:
    """Whether one pass over stacks of these shapes gives what they give one by one, to the bit, for batches of so many rows.

    It is tried on random numbers, as it depends on the kernels that a machine has for products of these sizes: of few
    numbers, or of widths that are no multiples of 16, the sums are often taken in another order. Small sizes are tried
    several times, since two orders give the same sum by chance.
    """
    numbers = rows * len(stacks) * sum(width for _, width in shape_of(stacks[0]))
    draws = min(_MOST_DRAWS, math.ceil(_NUMBERS_TRIED / numbers))
    return all(_same_of_a_draw(stacks, rows, torch.Generator().manual_seed(seed)) for seed in range(draws))


def _same_of_a_draw(stacks: Sequence[ReluStack], rows: int, rng: torch.Generator) -> bool:
    device = _linear(_layers(stacks[0])[0]).weight.device
    alone = [_drawn(stack, rng).to(device) for stack in stacks]
    stacked = copy.deepcopy(alone)
    widths = [_linear(_layers(stack)[0]).in_features for stack in stacks]
    inputs = [torch.rand(rows, width, generator=rng).to(device).requires_grad_() for width in widths]
    gradients = [torch.randn(rows, shape_of(stacks[0])[-1][1], generator=rng).to(device) for _ in stacks]
    at_once = StackedPass(stacked, inputs)
    by_inputs = at_once.backward(gradients)
    for k, (stack, x, g) in enumerate(zip(alone, inputs, gradients, strict=True)):
        with torch.enable_grad():
            layers = stack(x)
        backward([list(layers.values())[-1]], [g])
        pairs: list[tuple[Tensor | None, Tensor | None]] = [(x.grad, by_inputs[k])]
        pairs += [(h.detach(), at_once.activations[name][k]) for name, h in layers.items()]
        pairs += [(p.grad, q.grad) for p, q in zip(stack.parameters(), stacked[k].parameters(), strict=True)]
        if not all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs):
            return False
    return True


def _drawn(stack: ReluStack, rng: torch.Generator) -> ReluStack:
    """A stack of the same shape."""
    shape = shape_of(stack)
    made = ReluStack([name for name, _ in shape], _linear(_layers(stack)[0]).in_features, [width for _, width in shape], rng)
    for layer in _layers(made):
        nn.init.uniform_(_linear(layer).bias, -0.1, 0.1, generator=rng)
    return made


def _layers(stack: ReluStack) -> list[nn.Module]:
    return list(stack.layers.values())


def _linear(layer: nn.Module) -> nn.Linear:
    assert isinstance(layer, nn.Linear)
    return layer
