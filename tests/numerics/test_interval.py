"""AUCs, exactly, and intervals of them and of means."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from vflbench.numerics import interval
from vflbench.numerics.auc import auc


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60))
def test_an_auc_is_the_share_of_won_pairs_with_ties_counted_half(rows):
    scores, truth = torch.tensor([float(s) for s, _ in rows]), torch.tensor([y for _, y in rows])
    pairs = [(p > n) + (p == n) / 2 for p in scores[truth] for n in scores[~truth]]
    for value in (auc(scores, truth), auc(scores.double(), truth)):
        assert math.isnan(value) if not pairs else value == pytest.approx(float(sum(pairs)) / len(pairs), abs=1e-12)


def test_an_auc_of_many_rows_agrees_with_scikit_learn_and_is_nan_with_a_nan(rng):
    truth, scores = torch.rand(20_000, generator=rng) < 0.2, torch.randn(20_000, generator=rng).mul(50).round()
    assert auc(scores, truth) == pytest.approx(roc_auc_score(truth.numpy(), scores.numpy()), abs=1e-12)
    assert math.isnan(auc(torch.tensor([0.0, math.nan]), torch.tensor([0, 1])))


def test_interval_is_students():
    values = [0.5, 0.6, 0.75, 0.9]
    ours = interval.mean_interval(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((np.mean(values), low, high))
    assert interval.interval_text(ours, ".2f") == f"{np.mean(values):.2f} ({low:.2f} - {high:.2f})"
    assert interval.interval_text(interval.Interval(0.5, math.nan, math.nan)) == "0.500"


def test_too_few_runs_say_so():
    for values, text in (
        ([], "-"),
        ([0.76], "0.760 (1 run: no interval)"),
        ([0.49, 1.0], "0.745 (2 runs: no interval)"),  # Student's t of two runs: -2.5 to 4.0
        ([0.0, 1.0, 1.0], "0.667 (0.000 - 1.000)"),
        ([0.1 + 0.2] * 7, "0.300 (7 equal runs)"),
        ([0.7, 0.8, 0.9, math.nan], "0.800 (0.552 - 1.000)"),
    ):
        assert interval.interval_text(interval.over_runs(values, interval.UNIT)) == text


def test_the_range_of_a_figure():
    ranges = {
        "test_auc": (0.0, 1.0),
        "leak_two_sided:spectral on embeddings": (0.5, 1.0),
        "leak_distance:norm": (0.0, 0.5),
        "leak_ami": (-math.inf, 1.0),
        "rebuilt.ssim": (-1.0, 1.0),
        "r2:column": (-math.inf, 1.0),
        "bytes_sent.gradient": (0.0, math.inf),
        "rebuilt.psnr": interval.ANY,
        "test_log_loss": (0.0, math.inf),
    }
    assert {name: interval.range_of(name) for name in ranges} == ranges


@pytest.mark.parametrize(("distance", "positives", "negatives"), [(0.0, 30, 100), (1.0, 20, 200), (2.0, 40, 40)])
def test_the_interval_of_an_auc_covers_that_of_two_gaussians_95_times_in_100(distance, positives, negatives):
    """N(d, 1) against N(0, 1) has an AUC of Phi(d / sqrt 2)."""
    rng, truth = np.random.default_rng(0), stats.norm.cdf(distance / math.sqrt(2))
    covered = []
    for _ in range(600):
        above = rng.normal(distance, 1, (positives, 1)) > rng.normal(0, 1, negatives)
        ends = interval.auc_interval(above.mean(), positives, negatives)
        covered.append(ends.low <= truth <= ends.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


def test_the_interval_of_an_auc_is_symmetric_has_a_width_at_1_and_none_without_a_class():
    high, low = interval.auc_interval(0.8, 30, 70), interval.auc_interval(0.2, 30, 70)
    assert (high.low, high.high) == pytest.approx((1 - low.high, 1 - low.low))
    assert interval.auc_interval(1.0, 5, 5).low < 0.7
    assert interval.auc_interval(1.0, 5, 5).high == 1
    assert math.isnan(interval.auc_interval(math.nan, 0, 5).low)


def test_batches_that_all_have_an_auc_of_1_leave_room_for_less():
    """Five batches of 8 positives and 24 negatives: the end at which an AUC is 1.96 standard errors below 1, by hand."""
    low = interval.Estimate.of([1.0] * 5, [(8, 24)] * 5).interval().low
    variance = low * (1 - low) * (1 + 15 * ((1 - low) / (2 - low) + low / (1 + low))) / (5 * 8 * 24)
    assert 1 - low == pytest.approx(1.96 * math.sqrt(variance), rel=1e-3)
    assert 0.9 < low < 0.97
    assert interval.Estimate.of([1.0] * 5).interval().low == 1  # of what is no AUC nothing is known
