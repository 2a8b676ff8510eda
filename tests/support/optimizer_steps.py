"""Parameters, and steps along random gradients, to compare optimisers by."""

import torch
from torch import nn

SHAPES = ((7, 5), (5,), (3, 2, 3, 3), (1,), (1000, 4))


def parameters(dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=rng).to(dtype)) for shape in SHAPES]


def train(optimizer, own, steps, seed=1, without=()):
    """Steps along random gradients of many sizes; the parameters `without` get none in every second step."""
    rng = torch.Generator().manual_seed(seed)
    for step in range(steps):
        optimizer.zero_grad()
        for i, parameter in enumerate(own):
            g = torch.randn(parameter.shape, generator=rng) * 10.0 ** float(torch.randint(-8, 3, (), generator=rng))
            if i not in without or step % 2:
                parameter.grad = g.to(parameter.dtype)
        optimizer.step()


def same_bits(ours, theirs):
    pairs = [[values.detach().flatten().view(torch.uint8) for values in pair] for pair in zip(ours, theirs, strict=True)]
    return all(torch.equal(*pair) for pair in pairs)
