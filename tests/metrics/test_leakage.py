import math

import numpy as np
import pytest
import torch
from sklearn import metrics

from vflbench.errors import UserError
from vflbench.messages.tables import ordered
from vflbench.metrics.leak import LeakTable, class_figures, net_of_square, two_sided
from vflbench.numerics.auc import array_of
from vflbench.numerics.interval import Interval

KEY = ("norm", "gradient", "a", "f5", True)


def test_two_sided_folds_at_one_half():
    cases = {
        (0.8, 0.7, 0.9): (0.8, 0.7, 0.9),
        (0.2, 0.1, 0.3): (0.8, 0.7, 0.9),
        (0.52, 0.45, 0.59): (0.52, 0.5, 0.59),
        (0.48, 0.4, 0.56): (0.52, 0.5, 0.6),
    }
    for raw, folded in cases.items():
        ours = two_sided(Interval(*raw))
        assert (ours.mean, ours.low, ours.high) == pytest.approx(folded), raw


def test_the_tenth_that_an_attack_is_surest_of_shows_what_a_mean_over_rows_hides(rng):
    """Of the rows a tenth, drawn at random, has scores that are large and right, either way; all others are coins."""
    table = LeakTable()
    for _ in range(4):
        truth = torch.rand(200, generator=rng) < 0.4
        is_long = torch.arange(200) % 10 == 0
        scores = torch.randn(200, generator=rng) + 50 * is_long * (truth.double() - 0.5)
        table.add(KEY, scores, truth.long())
        table.add(("coin", *KEY[1:]), torch.randn(200, generator=rng), truth.long())
    leak, coin = table.leaks()
    assert leak.two_sided.mean < 0.65
    assert leak.surest.mean > 0.95
    assert coin.surest.low == 0.5
    assert coin.surest.mean < 0.65


def test_batches_of_one_class_and_those_in_which_an_attack_could_not_be_asked_are_left_out_and_counted():
    table = LeakTable()
    table.add(KEY, torch.arange(4.0), torch.tensor([0, 0, 1, 1]))
    table.add(KEY, torch.arange(4.0), torch.zeros(4, dtype=torch.long))
    table.leave_out(KEY)
    (leak,) = table.leaks()
    assert (leak.raw.mean, leak.batches, leak.left_out) == (1.0, 1, 2)


def test_rows_whose_label_the_attacker_knows_do_not_count():
    """An attack that scores its own hint highest learns nothing by it."""
    truth, scores = torch.tensor([0, 1, 0, 1, 1]), torch.tensor([1.0, 9.0, 1.0, 1.0, 9.0])
    partly, whole = LeakTable(), LeakTable()
    partly.add(KEY, scores, truth, torch.tensor([4, 1]))
    whole.add(KEY, scores, truth)
    assert partly.leaks()[0].raw.mean == 0.5
    assert whole.leaks()[0].raw.mean == pytest.approx(5 / 6)


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
    for _ in range(700):
        table.add(KEY, torch.rand(n, generator=rng), truth.long())
    (leak,) = table.leaks()
    expected = 0.5 + 0.8 * math.sqrt((n + 1) / (12 * positives * (n - positives)))
    assert leak.oriented.mean == pytest.approx(expected, abs=0.002)
    assert leak.two_sided.mean == pytest.approx(0.5, abs=0.003)


@pytest.mark.parametrize(
    ("problem", "scores"),
    [
        ("finite numbers, and 1 of 3 are not", torch.tensor([1.0, math.nan, 0.0])),
        ("finite numbers, and 2 of 6 are not", torch.tensor([[1.0, math.inf]] * 2 + [[0.0, 1.0]])),
        (r"\(3,\), or \(3, K\) with a column for each class, got \(2,\)", torch.zeros(2)),
        (r"got \(3, 2, 2\)", torch.zeros(3, 2, 2)),
        ("be a tensor of shape .* got list", [0.0, 1.0, 2.0]),
    ],
)
def test_a_broken_answer_does_not_pass_for_a_harmless_one(problem, scores):
    with pytest.raises(UserError, match=f"^attack=norm: its scores on f5 must .*{problem}"):
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


@pytest.mark.slow
def test_net_is_a_half_for_a_coin_and_leaves_a_leak_as_it_is(rng):
    """A coin within its interval; strong leaks, whose direction flips from batch to batch, to 0.002."""
    positives, n = 128, 512
    truth = torch.arange(n) < positives

    def leak_of(shift, batches):
        table = LeakTable()
        for batch in range(batches):
            scores = (-1) ** batch * (torch.randn(n, generator=rng, dtype=torch.float64) + shift * truth)
            table.add(KEY, scores, truth.long())
        return table.leaks()[0]

    for target, shift in ((0.79, 1.1404), (0.9999, 5.2595)):  # AUC Phi(shift / sqrt 2)
        leak = leak_of(shift, 300)
        assert leak.net.mean == pytest.approx(target, abs=0.003)
        assert leak.net.low - 0.001 <= target <= leak.net.high + 0.001
    coins = [leak_of(0.0, 20) for _ in range(30)]
    assert sum(leak.net.low > 0.5 for leak in coins) <= 3
    assert sum(leak.net.mean for leak in coins) / 30 == pytest.approx(0.505, abs=0.005)


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (1, 7)])
def test_a_coin_on_many_small_batches_is_no_leak(rng, positives, negatives):
    """(a - 1/2)^2 - 4 a (1 - a) s^2 would have the mean 4 s^4: 0.72 in place of 1/2 for batches of 8 with one positive."""
    table, perfect = LeakTable(), LeakTable()
    truth = torch.arange(positives + negatives) < positives
    for _ in range(1200):
        table.add(KEY, torch.rand(len(truth), generator=rng, dtype=torch.float64), truth.long())
    (coin,) = table.leaks()
    assert net_of_square(coin.estimates["square"][0], coin.estimates["oriented"][0], 0.9999).low == 0.5
    assert coin.net.mean < 0.61
    for batch in range(10):
        perfect.add(KEY, (-1) ** batch * truth.double(), truth.long())
    (leak,) = perfect.leaks()
    assert leak.net.mean == (1.0 if len(truth) > 2 else 0.5)


@pytest.mark.slow
def test_the_best_of_several_directions_is_chosen_once_and_stands_beside_what_a_coin_reaches(rng):
    positives, n, m, batches = 64, 256, 8, 12
    truth, coins = torch.arange(n) < positives, []
    for _ in range(30):
        table = LeakTable()
        for _ in range(batches):
            columns = torch.randn(n, m, generator=rng)
            table.add(KEY, columns[:, 0], truth.long(), candidates=columns)
        coins += table.leaks()
    assert coins[0].candidates == m
    reached = sum(leak.oriented.mean for leak in coins) / len(coins)
    assert reached == pytest.approx(coins[0].coin, abs=0.003)
    assert coins[0].coin == pytest.approx(
        0.5 + 1.85 * math.sqrt((n + 1) / (12 * positives * (n - positives) * batches)), abs=1e-3
    )
    assert sum(leak.net.low > 0.5 for leak in coins) <= 4
    table = LeakTable()
    for batch in range(batches):
        columns = torch.randn(n, m, generator=rng)
        columns[:, 5] -= 2.0 * truth  # AUC 1 - Phi(2 / sqrt 2) = 0.079
        columns[:, 2] += (-1) ** batch * 9.0 * truth  # perfect, but another way in each batch
        table.add(KEY, columns[:, 0], truth.long(), torch.tensor([0]), candidates=columns)
    (leak,) = table.leaks()
    assert leak.oriented.mean == pytest.approx(0.921, abs=0.015)
    assert leak.net.mean == pytest.approx(leak.oriented.mean, abs=0.002)
    assert leak.net.low <= 0.921 <= leak.net.high
    assert leak.two_sided.mean < 0.6


def test_net_is_never_above_what_an_attacker_reaches():
    """Batches that leak more and less: the root of the mean square is above the mean."""
    table = LeakTable()
    for area in (1.0, 0.0, 0.6, 0.4, 1.0, 0.5):
        truth = torch.arange(2000) < 500
        scores = torch.where(torch.arange(2000) % 500 < 500 * area, truth.double(), -truth.double())
        table.add(KEY, scores, truth.long())
    (leak,) = table.leaks()
    assert 0.7 < leak.oriented.mean < 0.9
    assert leak.net.mean == leak.oriented.mean
    assert leak.net.low <= leak.oriented.low


def test_candidates_of_another_shape_or_that_are_no_numbers_are_refused():
    truth = torch.tensor([0, 1, 1])
    for wrong in (torch.zeros(2, 4), torch.full((3, 2), math.nan)):
        with pytest.raises(UserError, match=r"scores on f5 must have|must be finite"):
            LeakTable().add(KEY, torch.rand(3), truth, candidates=wrong)


def test_one_column_is_one_score_a_row():
    table, truth = LeakTable(), torch.tensor([0, 1, 0, 1])
    table.add(KEY, torch.tensor([[1], [3], [2], [4]]), truth)
    (leak,) = table.leaks()
    assert (leak.raw.mean, dict(leak.classes)) == (1.0, {})


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
