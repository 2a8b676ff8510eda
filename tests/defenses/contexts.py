"""Contexts for tests of defenses."""

import torch
from torch import Tensor

from vflbench.defenses.base import Context


def drawing(rng: torch.Generator, ids: Tensor | None = None, epoch: int = 0) -> Context:
    """What the owner of a defense holds beside the values in hand: this generator, and no columns."""
    return Context(torch.empty(0, dtype=torch.int64) if ids is None else ids, None, epoch, rng)
