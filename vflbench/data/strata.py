"""Random draws in strata of neighbouring rows, so that none needs memory for all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

STRATUM = 1 << 18
"""Rows in a stratum."""


def strata(chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The first row of each stratum, and the chosen rows in it, counted from there. chosen: (n,) bool."""
    for start in range(0, len(chosen), STRATUM):
        yield start, chosen[start : start + STRATUM].nonzero()[0]


def shares(chosen: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray, int]]:
    """`strata`, and for each stratum its share of `count`, in proportion to its chosen rows."""
    total, seen = int(np.count_nonzero(chosen)), 0
    for start, offsets in strata(chosen):
        share = (seen + len(offsets)) * count // total - seen * count // total if total else 0
        seen += len(offsets)
        yield start, offsets, share


def thin(kept: np.ndarray, candidates: np.ndarray, count: int, rng: torch.Generator) -> None:
    """Keep `count` of the candidates, drawn at random, and drop the others. kept, candidates: (n,) bool."""
    import torch

    for start, offsets, share in shares(candidates, count):
        drawn = torch.randperm(len(offsets), generator=rng)[:share].numpy()
        kept[start + offsets] = False
        kept[start + offsets[drawn]] = True
