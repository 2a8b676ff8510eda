"""Scores as tensors and as arrays come to the same bits, and to those of the formulas written for tensors."""

import numpy as np
import pytest
import torch

from vflbench.messages.tables import ordered
from vflbench.metrics.leak import LeakTable
from vflbench.numerics.auc import array_of

KEY = ("norm", "gradient", "a", "f1", True)
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_table_takes_both(dtype, classes):
    """One column, the difference of two, and a column a class; with known rows, canaries and candidates."""
    rng = torch.Generator().manual_seed(2)
    tensors, arrays = LeakTable(), LeakTable()
    for _ in range(5):
        shape = (50,) if classes == 1 else (50, classes)
        scores = (torch.randint(8, shape, generator=rng) / 3).to(dtype)
        truth = torch.randint(max(2, classes), (50,), generator=rng)
        known, canary = torch.tensor([3, 7]), torch.rand(50, generator=rng) < 0.2
        candidates = torch.rand(50, 3, generator=rng).to(dtype)
        tensors.add(KEY, scores, truth, known, canary, candidates)
        apart = array_of(scores[:, 1] - scores[:, 0]) if classes == 2 else None
        arrays.add(KEY, *(array_of(one) for one in (scores, truth, known, canary, candidates)), apart)
    assert str(tensors.leaks()) == str(arrays.leaks())


def test_ranks_of_halves_stay_apart():
    """In float16, and in bfloat16 from 256 on, different ranks would have become equal."""
    values = torch.arange(3000, dtype=torch.float32).mul(16).bfloat16().unique()
    assert len(np.unique(ordered(array_of(values)))) == len(values)
