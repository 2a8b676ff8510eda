"""How often the interval of what an attack reads holds the truth, on drawn scores whose AUC is known."""

import math

import numpy as np
import pytest
from scipy.stats import entropy, norm

from vflbench.metrics.leak import LeakTable, class_figures, leak_of, worst

KEY = ("attack", "gradient", "a", "cut", True)
RUNS = 100
CASES = [
    (auc, rows, share, batches)
    for auc in (0.5, 0.95, 0.995)
    for rows, share in ((32, 0.25), (512, 0.02))
    for batches in (2, 10)
]


def drawn(kind, auc, rows, share, rng):
    """Scores and labels with both classes. normal: two of one variance. exact: some positives are above all."""
    is_positive = rng.random(rows) < share
    is_positive[:2] = True, False
    if kind == "normal":
        shift = is_positive * norm.ppf(auc) * math.sqrt(2)
    else:
        shift = 100 * (is_positive & (rng.random(rows) < 2 * auc - 1))
    return rng.standard_normal(rows) + shift, is_positive.astype(int)


def misses(kind, auc, rows, share, batches, rng):
    """The share of runs whose interval doesn't hold the AUC."""
    missed = 0
    for _ in range(RUNS):
        table = LeakTable()
        for _ in range(batches):
            table.add(KEY, *drawn(kind, auc, rows, share, rng))
        reading = worst(table.leaks())
        missed += not reading.low <= auc <= reading.high
    return missed / RUNS


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("normal", 0.05), ("exact", 0.08)])
def test_the_interval_of_the_worst_attack_misses_the_truth_as_rarely_as_it_says(kind, most):
    """Student's intervals alone miss 0.2 to 0.9 of the runs at 0.995 and 32 rows a batch. Up to 3 standard errors."""
    rng, room = np.random.default_rng(5), 3 * math.sqrt(most * (1 - most) / RUNS)
    found = {case: misses(kind, *case, rng) for case in CASES}
    assert not {case: share for case, share in found.items() if share > most + room}


def test_the_surest_rows_of_a_few_batches_leave_room_for_less():
    """Read exactly in each batch: Student's interval would be that one value."""
    table = LeakTable()
    for _ in range(3):
        table.add(KEY, np.arange(40.0), np.arange(40) >= 20)
    (leak,) = table.leaks()
    assert leak.surest.mean == leak.surest.high == 1
    assert leak.surest.low < 0.85


@pytest.mark.slow
def test_the_interval_of_a_macro_auc_does_as_well():
    """Four classes, each named by a score of its own: normal numbers around the class."""
    rng, missed, truth = np.random.default_rng(6), 0, 0.995
    for _ in range(RUNS):
        table = LeakTable()
        for _ in range(5):
            classes = rng.integers(0, 4, 64)
            classes[:4] = range(4)
            scores = rng.standard_normal((64, 4)) + np.eye(4)[classes] * norm.ppf(truth) * math.sqrt(2)
            table.add(KEY, scores, classes)
        (leak,) = table.leaks()
        interval = leak.estimates["macro_auc"][0].interval()
        missed += not interval.low <= truth <= interval.high
    assert missed / RUNS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.05, 0.005])
def test_the_interval_of_an_ami_does_as_well(wrong):
    """Of equal classes, where few or no rows of an epoch are named wrongly. Student's alone misses up to 0.94."""
    rng, most = np.random.default_rng(7), 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)
    for k, rows in ((3, 64), (10, 64)):
        known = []
        for _ in range(200):
            classes = rng.integers(0, k, rows)
            named = np.where(rng.random(rows) < wrong, (classes + rng.integers(1, k, rows)) % k, classes)
            figures = class_figures(np.eye(k)[named], classes)
            known.append(figures | {"macro_rows": (1, 1), "entropy": (entropy(np.bincount(classes)), rows)})
        truth = np.mean([figures["ami"] for figures in known])
        for batches in (2, 10):
            missed = 0
            for _ in range(RUNS):
                leak = leak_of(KEY, [known[at] for at in rng.integers(0, len(known), batches)])
                interval = leak.estimates["ami"][0].interval()
                missed += not interval.low <= truth <= interval.high
            assert missed / RUNS <= most, (k, rows, batches)
