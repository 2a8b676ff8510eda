"""How often the interval of what an attack reads holds the truth, on drawn scores whose AUC is known."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import entropy, norm

from vflbench.metrics.leak import LeakTable, class_figures, leak_of, worst

KEY = ("attack", "gradient", "a", "cut", True)
RUNS = 100


def drawn(kind, auc, rows, share, rng):
    """Scores and labels with both classes. normal: two of one variance. exact: some positives are above all."""
    is_positive = rng.random(rows) < share
    is_positive[:2] = True, False
    if kind == "normal":
        shift = is_positive * norm.ppf(auc) * math.sqrt(2)
    else:
        shift = 100 * (is_positive & (rng.random(rows) < 2 * auc - 1))
    return rng.standard_normal(rows) + shift, is_positive.astype(int)


def table_of(batches):
    table = LeakTable()
    for scores, truth in batches:
        table.add(KEY, scores, truth)
    return table.leaks()


def misses(truth, intervals):
    """The share of runs whose interval doesn't hold the truth."""
    return np.mean([not interval.low <= truth <= interval.high for interval in intervals])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("normal", 0.05), ("exact", 0.08)])
def test_the_interval_of_the_worst_attack_misses_the_truth_as_rarely_as_it_says(kind, most):
    """Student's intervals alone miss 0.2 to 0.9 of the runs at 0.995 and 32 rows a batch. Up to 3 standard errors."""
    rng, room = np.random.default_rng(5), 3 * math.sqrt(most * (1 - most) / RUNS)
    for auc, (rows, share), batches in itertools.product((0.5, 0.95, 0.995), ((32, 0.25), (512, 0.02)), (2, 10)):
        runs = [worst(table_of(drawn(kind, auc, rows, share, rng) for _ in range(batches))) for _ in range(RUNS)]
        assert misses(auc, runs) <= most + room, (auc, rows, batches)


def test_the_surest_rows_of_a_few_batches_leave_room_for_less():
    """Read exactly in each batch: Student's interval would be that one value."""
    (leak,) = table_of([(np.arange(40.0), np.arange(40) >= 20)] * 3)
    assert leak.surest.mean == leak.surest.high == 1
    assert leak.surest.low < 0.85


@pytest.mark.slow
def test_the_interval_of_a_macro_auc_does_as_well():
    """Four classes, each named by a score of its own: normal numbers around the class."""
    rng, truth = np.random.default_rng(6), 0.995

    def named():
        classes = rng.integers(0, 4, 64)
        classes[:4] = range(4)
        return rng.standard_normal((64, 4)) + np.eye(4)[classes] * norm.ppf(truth) * math.sqrt(2), classes

    leaks = [table_of(named() for _ in range(5))[0] for _ in range(RUNS)]
    intervals = [leak.estimates["macro_auc"][0].interval() for leak in leaks]
    assert misses(truth, intervals) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)


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
            leaks = [leak_of(KEY, [known[at] for at in rng.integers(0, len(known), batches)]) for _ in range(RUNS)]
            assert misses(truth, [leak.estimates["ami"][0].interval() for leak in leaks]) <= most, (k, rows, batches)
