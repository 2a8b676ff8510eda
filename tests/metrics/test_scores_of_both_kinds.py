"""Scores as tensors and as arrays come to the same bits, and to those of the formulas written for tensors."""

import numpy as np
import pytest
import torch

from vflbench.errors import UserError
from vflbench.messages.tables import ordered
from vflbench.metrics.canary import Guesses, guess
from vflbench.metrics.leak import LeakTable, class_figures
from vflbench.numerics.auc import array_of, auc

KEY = ("norm", "gradient", "a", "f1", True)
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def guess_of_tensors(scores, positive, canary):
    """As it was written in torch."""

    def threshold(scores, positive):
        if not len(scores):
            return 0.0
        values, order = scores.double().sort()
        ones = positive[order].double()
        if not 0 < ones.sum() < len(ones):
            return values[len(values) // 2].item()
        gap = (ones.cumsum(0) / ones.sum() - (1 - ones).cumsum(0) / (1 - ones).sum()).abs()
        ends = torch.cat([values[1:] != values[:-1], values.new_ones(1, dtype=torch.bool)])
        return values[torch.where(ends, gap, -1.0).argmax()].item()

    above = scores > threshold(scores[~canary], positive[~canary])
    high, low = canary & above, canary & ~above
    return Guesses(*(int(rows.sum()) for rows in (high, high & positive, low, low & ~positive)))


def drawn(rng, rows, dtype, levels):
    """Scores of few values or many, labels and canaries; sometimes of one class, sometimes without canaries."""
    scores = torch.randint(levels, (rows,), generator=rng).double() - levels / 2
    scores = (scores * torch.rand(1, generator=rng).double()).to(dtype)
    positive = torch.rand(rows, generator=rng) < torch.randint(3, (1,), generator=rng) / 2
    return scores, positive, torch.rand(rows, generator=rng) < 0.3


@pytest.mark.parametrize("dtype", TYPES)
def test_guesses_about_canaries(dtype):
    rng = torch.Generator().manual_seed(1)
    for trial in range(200):
        scores, positive, canary = drawn(rng, 1 + trial % 40, dtype, [2, 5, 10**6][trial % 3])
        expected = guess_of_tensors(scores, positive, canary)
        assert guess(scores, positive, canary) == expected
        assert guess(array_of(scores), positive.numpy(), canary.numpy()) == expected


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_table_takes_both(dtype, classes):
    """One column, the difference of two, and a column a class; with known rows, canaries and candidates."""
    rng = torch.Generator().manual_seed(2)
    tensors, arrays = LeakTable(), LeakTable()
    for _ in range(20):
        shape = (50,) if classes == 1 else (50, classes)
        scores = (torch.randint(8, shape, generator=rng) / 3).to(dtype)
        truth = torch.randint(max(2, classes), (50,), generator=rng)
        known, canary = torch.tensor([3, 7]), torch.rand(50, generator=rng) < 0.2
        candidates = torch.rand(50, 3, generator=rng).to(dtype)
        tensors.add(KEY, scores, truth, known, canary, candidates)
        apart = array_of(scores[:, 1] - scores[:, 0]) if classes == 2 else None
        arrays.add(KEY, *(array_of(one) for one in (scores, truth, known, canary, candidates)), apart)
    assert str(vars(tensors)) == str(vars(arrays))
    assert str(tensors.leaks()) == str(arrays.leaks())


def test_an_answer_in_numpy_is_still_no_answer_of_an_attack():
    from vflbench.metrics.leak import checked_scores

    with pytest.raises(UserError, match="must be a tensor"):
        checked_scores(np.zeros(3), 3, attack="norm", layer="f1")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_classes_and_areas(dtype):
    """Of equal scores the first class counts, as with torch."""
    rng = torch.Generator().manual_seed(3)
    for _ in range(50):
        scores = (torch.randint(4, (60, 4), generator=rng) / 3).to(dtype)
        truth = torch.randint(4, (60,), generator=rng)
        figures = class_figures(scores, truth)
        assert figures == class_figures(array_of(scores), truth.numpy())
        assert figures["accuracy"] == (scores.argmax(dim=1) == truth).double().mean().item()
        column = scores[:, 0]
        assert auc(column, truth == 1) == auc(array_of(column), (truth == 1).numpy())


def test_ranks_are_those_of_torch():
    rng = torch.Generator().manual_seed(4)
    for dtype in (torch.float64, torch.float32):
        for shape in ((40,), (40, 3), (0,)):
            values = (torch.randint(9, shape, generator=rng) - 4).to(dtype) * torch.tensor([-0.0, 1.0]).to(dtype)[0]
            values = torch.where(torch.rand(shape, generator=rng) < 0.5, values, torch.randn(shape, generator=rng).to(dtype))
            expected = values.double().unique(return_inverse=True)[1].to(dtype).view(shape)
            assert ordered(values.numpy()).tolist() == expected.tolist()
            assert ordered(values.numpy()).dtype == values.numpy().dtype


def test_ranks_of_halves_stay_apart():
    """In float16, and in bfloat16 from 256 on, different ranks would have become equal."""
    values = torch.arange(3000, dtype=torch.float32).mul(16).bfloat16().unique()
    assert len(np.unique(ordered(array_of(values)))) == len(values)
