import math

import numpy as np
import pytest
from scipy import stats

from vflbench.numerics.interval import mean_interval


def test_interval_is_students():
    values = [0.5, 0.6, 0.75, 0.9]
    ours = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((np.mean(values), low, high))


def test_interval_covers_the_truth_95_times_in_100():
    draws = np.random.default_rng(0).normal(0.6, 0.1, (2000, 8))
    covered = np.mean([i.low <= 0.6 <= i.high for i in map(mean_interval, draws.tolist())])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_one_value_has_no_interval_and_none_has_no_mean():
    assert mean_interval([0.7]).mean == 0.7
    assert math.isnan(mean_interval([0.7]).low)
    assert math.isnan(mean_interval([]).mean)
