import math
import re

import numpy as np
import pytest
from scipy import stats

from vflbench.numerics.interval import (
    ANY,
    UNIT,
    Estimate,
    Interval,
    auc_interval,
    interval_text,
    mean_interval,
    over_runs,
    range_of,
)


def test_interval_is_students():
    values = [0.5, 0.6, 0.75, 0.9]
    ours = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((np.mean(values), low, high))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "-"),
        ([0.76], "0.760 (1 run: no interval)"),
        ([0.49, 1.0], "0.745 (2 runs: no interval)"),  # Student's t of two runs: -2.5 to 4.0
        ([0.0, 1.0, 1.0], "0.667 (0.000 - 1.000)"),
        ([1.0, 1.0, 1.0], "1.000 (3 equal runs)"),
        ([0.1 + 0.2] * 7, "0.300 (7 equal runs)"),
        ([0.7, 0.8, 0.9, math.nan], "0.800 (0.552 - 1.000)"),
    ],
)
def test_too_few_runs_say_so(values, text):
    assert interval_text(over_runs(values, UNIT)) == text


def test_an_interval_within_a_run_has_no_count():
    assert interval_text(Interval(0.5, math.nan, math.nan)) == "0.500"
    assert re.fullmatch(r"0\.60 \(0\.50 - 0\.70\)", interval_text(Interval(0.6, 0.5, 0.7), ".2f"))


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("test_auc", UNIT),
        ("leak_two_sided:spectral on embeddings", (0.5, 1.0)),
        ("leak_distance:norm", (0.0, 0.5)),
        ("leak_ami", (-math.inf, 1.0)),
        ("rebuilt.entries_right:batch_reconstruction", UNIT),
        ("rebuilt.ssim", (-1.0, 1.0)),
        ("r2:column", (-math.inf, 1.0)),
        ("bytes_sent.gradient", (0.0, math.inf)),
        ("rebuilt.psnr", ANY),
        ("test_log_loss", (0.0, math.inf)),
    ],
)
def test_the_range_of_a_figure(name, limits):
    assert range_of(name) == limits


@pytest.mark.parametrize(("distance", "positives", "negatives"), [(0.0, 30, 100), (1.0, 20, 200), (2.0, 40, 40)])
def test_the_interval_of_an_auc_covers_that_of_two_gaussians_95_times_in_100(distance, positives, negatives):
    """N(d, 1) against N(0, 1) has an AUC of Phi(d / sqrt 2)."""
    rng, truth = np.random.default_rng(0), stats.norm.cdf(distance / math.sqrt(2))
    covered = []
    for _ in range(600):
        above = rng.normal(distance, 1, (positives, 1)) > rng.normal(0, 1, negatives)
        interval = auc_interval(above.mean(), positives, negatives)
        covered.append(interval.low <= truth <= interval.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


def test_the_interval_of_an_auc_is_symmetric_has_a_width_at_1_and_none_without_a_class():
    high, low = auc_interval(0.8, 30, 70), auc_interval(0.2, 30, 70)
    assert (high.low, high.high) == pytest.approx((1 - low.high, 1 - low.low))
    assert auc_interval(1.0, 5, 5).low < 0.7
    assert auc_interval(1.0, 5, 5).high == 1
    assert math.isnan(auc_interval(math.nan, 0, 5).low)


def test_batches_that_all_have_an_auc_of_1_leave_room_for_less():
    """Five batches of 8 positives and 24 negatives: the end at which an AUC is 1.96 standard errors below 1, by hand."""
    low = Estimate.of([1.0] * 5, [(8, 24)] * 5).interval().low
    variance = low * (1 - low) * (1 + 15 * ((1 - low) / (2 - low) + low / (1 + low))) / (5 * 8 * 24)
    assert 1 - low == pytest.approx(1.96 * math.sqrt(variance), rel=1e-3)
    assert 0.9 < low < 0.97
    assert Estimate.of([1.0] * 5).interval().low == 1  # of what is no AUC nothing is known
