"""Figures of each row in float64, without a copy of all rows in float64: blocks of them stay in the cache."""

from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK = 2**17  # numbers; 1 MiB in float64


def row_lengths(x: Tensor) -> Tensor:
    """(n,) float64: |x_i|_2. x: (n, d)."""
    return torch.cat([torch.linalg.vector_norm(block, dim=1) for block in _blocks(x)])


def row_cosines(x: Tensor, v: Tensor) -> Tensor:
    """(n,) float64: <x_i, v> / |x_i|; 0 for a row of zeros. x: (n, d). v: (d,) float64."""
    return torch.cat([block @ v / torch.linalg.vector_norm(block, dim=1).clamp_min(1e-300) for block in _blocks(x)])


def _blocks(x: Tensor) -> Iterator[Tensor]:
    """The rows in float64, as many at a time as stay in a processor's cache; all at once on other devices."""
    rows = max(1, len(x)) if x.device.type != "cpu" else max(1, _BLOCK // max(1, x.shape[1]))
    yield from (block.double() for block in x.split(rows))
