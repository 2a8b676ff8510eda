import math

import pytest
import torch
from sklearn import metrics

from vflbench.metrics.leakage import Leak, LeakTable, class_figures, two_sided
from vflbench.numerics.interval import Interval

KEY = ("norm", "gradient", "a", "f5", True)


@pytest.mark.parametrize(
    ("raw", "folded"),
    [
        (Interval(0.8, 0.7, 0.9), (0.8, 0.7, 0.9)),
        (Interval(0.2, 0.1, 0.3), (0.8, 0.7, 0.9)),
        (Interval(0.52, 0.45, 0.59), (0.52, 0.5, 0.59)),
        (Interval(0.48, 0.4, 0.56), (0.52, 0.5, 0.6)),
    ],
)
def test_two_sided_folds_at_one_half(raw, folded):
    ours = two_sided(raw)
    assert (ours.mean, ours.low, ours.high) == pytest.approx(folded)


def test_a_leak_far_below_one_half_counts_in_full():
    """Leak AUCs of exactly 0.0 must not be dropped from the mean."""
    table, truth = LeakTable(), torch.arange(100) < 25
    for _ in range(4):
        table.add(KEY, -truth.double(), truth.long())
    (leak,) = table.leaks()
    assert (leak.raw.mean, leak.two_sided.mean, leak.batches) == (0.0, 1.0, 4)


def test_batches_of_one_class_are_left_out_and_counted():
    table = LeakTable()
    table.add(KEY, torch.arange(4.0), torch.tensor([0, 0, 1, 1]))
    table.add(KEY, torch.arange(4.0), torch.zeros(4, dtype=torch.long))
    (leak,) = table.leaks()
    assert (leak.raw.mean, leak.batches, leak.left_out) == (1.0, 1, 1)


def test_rows_the_attacker_was_told_do_not_count():
    """An attack that scores its own hint highest learns nothing by it."""
    truth, scores = torch.tensor([0, 1, 0, 1, 1]), torch.tensor([1.0, 9.0, 1.0, 1.0, 9.0])
    told, whole = LeakTable(), LeakTable()
    told.add(KEY, scores, truth, torch.tensor([4, 1]))
    whole.add(KEY, scores, truth)
    assert told.leaks()[0].raw.mean == 0.5
    assert whole.leaks()[0].raw.mean == pytest.approx(5 / 6)


def test_batches_in_which_an_attack_could_not_be_asked_are_counted():
    table = LeakTable()
    table.add(KEY, torch.arange(4.0), torch.tensor([0, 0, 1, 1]))
    table.leave_out(KEY)
    (leak,) = table.leaks()
    assert (leak.raw.mean, leak.batches, leak.left_out) == (1.0, 1, 1)


def test_oriented_sees_a_leak_whose_direction_flips_and_two_sided_does_not():
    table, truth = LeakTable(), torch.arange(100) < 25
    for sign in (1, -1, 1, -1):
        table.add(KEY, sign * truth.double(), truth.long())
    (leak,) = table.leaks()
    assert leak.raw.mean == leak.two_sided.mean == 0.5
    assert leak.oriented.mean == 1.0


def test_a_coin_oriented_per_batch_lies_where_the_docstring_says(rng):
    positives, n = 128, 512
    truth, table = torch.arange(n) < positives, LeakTable()
    for _ in range(2000):
        table.add(KEY, torch.rand(n, generator=rng), truth.long())
    (leak,) = table.leaks()
    expected = 0.5 + 0.8 * math.sqrt((n + 1) / (12 * positives * (n - positives)))
    assert leak.oriented.mean == pytest.approx(expected, abs=0.002)
    assert leak.two_sided.mean == pytest.approx(0.5, abs=0.003)


@pytest.mark.parametrize("scores", [torch.tensor([1.0, math.nan, 0.0]), torch.zeros(2), torch.zeros(3, 1)])
def test_a_broken_answer_does_not_pass_for_a_harmless_one(scores):
    with pytest.raises(ValueError, match="norm on f5"):
        LeakTable().add(KEY, scores, torch.tensor([0, 1, 1]))


def test_figures_of_classes_agree_with_scikit_learn(rng):
    truth, scores = torch.randint(4, (300,), generator=rng), torch.randn(300, 4, generator=rng)
    scores[torch.arange(300), truth] += 1
    found = class_figures(scores, truth)
    answer = scores.argmax(1)
    assert found["accuracy"] == metrics.accuracy_score(truth, answer)
    assert found["ami"] == pytest.approx(metrics.adjusted_mutual_info_score(truth, answer))
    one_against_rest = [metrics.roc_auc_score(truth == k, scores[:, k]) for k in range(4)]
    assert found["macro_auc"] == pytest.approx(sum(one_against_rest) / 4)


def test_many_classes_have_no_leak_auc_and_two_have_that_of_the_difference(rng):
    table, truth = LeakTable(), torch.arange(60) % 3
    for _ in range(3):
        table.add(KEY, torch.eye(3)[truth], truth, torch.tensor([0]))
        table.add(
            ("two", *KEY[1:]), torch.randn(60, 2, generator=rng) + torch.eye(2)[(truth > 0).long()], (truth > 0).long()
        )
    table.leave_out(KEY)
    many, two = table.leaks()
    assert many.of_classes
    assert math.isnan(many.raw.mean)
    assert [many.classes[name].mean for name in ("accuracy", "ami", "macro_auc")] == [1.0, pytest.approx(1.0), 1.0]
    assert (many.batches, many.left_out) == (3, 1)
    assert not two.of_classes
    assert 0.6 < two.raw.mean < 0.95
    assert two.classes["accuracy"].mean > 0.6
    again = LeakTable.from_state(table.state()).leaks()
    assert str([Leak.from_state(leak.state()) for leak in again]) == str([many, two])
