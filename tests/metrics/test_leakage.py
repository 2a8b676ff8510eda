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


def leak_of(batches):
    """What is made of batches: scores, truth, and what else `add` takes."""
    table = LeakTable()
    for batch in batches:
        table.add(KEY, *batch)
    (leak,) = table.leaks()
    return leak


def first_positive(n, positives):
    return (torch.arange(n) < positives).long()


def test_two_sided_folds_at_one_half():
    for raw, folded in (((0.2, 0.1, 0.3), (0.8, 0.7, 0.9)), ((0.48, 0.4, 0.56), (0.52, 0.5, 0.6))):
        ours = two_sided(Interval(*raw))
        assert (ours.mean, ours.low, ours.high) == pytest.approx(folded)


def test_the_tenth_that_an_attack_is_surest_of_shows_what_a_mean_over_rows_hides(rng):
    """Of the rows a tenth, drawn at random, has scores that are large and right, either way; all others are coins."""
    truths = [(torch.rand(200, generator=rng) < 0.4).long() for _ in range(4)]
    large = 50 * (torch.arange(200) % 10 == 0)
    leak, coin = (
        leak_of([(torch.randn(200, generator=rng) + weight * (truth - 0.5), truth) for truth in truths])
        for weight in (large, 0)
    )
    assert leak.two_sided.mean < 0.65
    assert leak.surest.mean > 0.95
    assert coin.surest.low == 0.5
    assert coin.surest.mean < 0.65


def test_batches_of_one_class_and_those_in_which_an_attack_could_not_be_asked_are_left_out_and_counted():
    table = LeakTable()
    for truth in ([0, 0, 1, 1], [0, 0, 0, 0]):
        table.add(KEY, torch.arange(4.0), torch.tensor(truth))
    table.leave_out(KEY)
    (leak,) = table.leaks()
    assert (leak.raw.mean, leak.batches, leak.left_out) == (1.0, 1, 2)


def test_rows_whose_label_the_attacker_knows_do_not_count():
    """An attack that scores its own hint highest learns nothing by it."""
    batch = torch.tensor([1.0, 9.0, 1.0, 1.0, 9.0]), torch.tensor([0, 1, 0, 1, 1])
    assert leak_of([(*batch, torch.tensor([4, 1]))]).raw.mean == 0.5
    assert leak_of([batch]).raw.mean == pytest.approx(5 / 6)


def test_oriented_sees_a_leak_whose_direction_flips_and_two_sided_does_not():
    truth = first_positive(100, 25)
    leak = leak_of((sign * truth.double(), truth) for sign in (1, -1, 1, -1))
    assert leak.raw.mean == leak.two_sided.mean == 0.5
    assert leak.oriented.mean == 1.0


def test_a_coin_oriented_per_batch_lies_where_the_docstring_says(rng):
    positives, n = 128, 512
    leak = leak_of((torch.rand(n, generator=rng), first_positive(n, positives)) for _ in range(700))
    expected = 0.5 + 0.8 * math.sqrt((n + 1) / (12 * positives * (n - positives)))
    assert leak.oriented.mean == pytest.approx(expected, abs=0.002)
    assert leak.coin == pytest.approx(expected, abs=0.001)
    assert leak.two_sided.mean == pytest.approx(0.5, abs=0.003)


@pytest.mark.parametrize(
    ("problem", "scores", "candidates"),
    [
        ("finite numbers, and 1 of 3 are not", torch.tensor([1.0, math.nan, 0.0]), None),
        (r"\(3,\), or \(3, K\) with a column for each class, got \(2,\)", torch.zeros(2), None),
        (r"got \(3, 2, 2\)", torch.zeros(3, 2, 2), None),
        ("be a tensor of shape .* got list", [0.0, 1.0, 2.0], None),
        (r"got \(2, 4\)", torch.rand(3), torch.zeros(2, 4)),
        ("finite numbers, and 6 of 6 are not", torch.rand(3), torch.full((3, 2), math.nan)),
    ],
)
def test_a_broken_answer_does_not_pass_for_a_harmless_one(problem, scores, candidates):
    with pytest.raises(UserError, match=f"^attack=norm: its scores on f5 must .*{problem}"):
        LeakTable().add(KEY, scores, torch.tensor([0, 1, 1]), candidates=candidates)


def test_figures_of_classes_agree_with_scikit_learn(rng):
    truth, scores = torch.randint(4, (300,), generator=rng), torch.randn(300, 4, generator=rng)
    scores[torch.arange(300), truth] += 1
    figures, answer = class_figures(scores, truth), scores.argmax(1)
    assert figures["accuracy"] == metrics.accuracy_score(truth, answer)
    assert figures["ami"] == pytest.approx(metrics.adjusted_mutual_info_score(truth, answer))
    one_against_rest = [metrics.roc_auc_score(truth == k, scores[:, k]) for k in range(4)]
    assert figures["macro_auc"] == pytest.approx(sum(one_against_rest) / 4)


def test_many_classes_have_no_leak_auc_and_two_have_that_of_the_difference(rng):
    truth = torch.arange(60) % 3
    of_two = (truth > 0).long()
    many = leak_of([(torch.eye(3)[truth], truth, torch.tensor([0]))] * 3)
    two = leak_of((torch.randn(60, 2, generator=rng) + torch.eye(2)[of_two], of_two) for _ in range(3))
    assert many.of_classes
    assert math.isnan(many.raw.mean)
    assert [many.classes[name].mean for name in ("accuracy", "ami", "macro_auc")] == [1.0, pytest.approx(1.0), 1.0]
    assert (many.batches, many.left_out) == (3, 0)
    assert not two.of_classes
    assert 0.6 < two.raw.mean < 0.95
    assert two.classes["accuracy"].mean > 0.6


@pytest.mark.slow
def test_net_is_a_half_for_a_coin_and_leaves_a_leak_as_it_is(rng):
    """A coin within its interval; strong leaks, whose direction flips from batch to batch, to 0.002."""
    truth = first_positive(512, 128)

    def flipping(shift, batches):
        drawn = [torch.randn(512, generator=rng, dtype=torch.float64) + shift * truth for _ in range(batches)]
        return leak_of(((-1) ** batch * scores, truth) for batch, scores in enumerate(drawn))

    for target, shift in ((0.79, 1.1404), (0.9999, 5.2595)):  # AUC Phi(shift / sqrt 2)
        leak = flipping(shift, 300)
        assert leak.net.mean == pytest.approx(target, abs=0.003)
        assert leak.net.low - 0.001 <= target <= leak.net.high + 0.001
    coins = [flipping(0.0, 20) for _ in range(30)]
    assert sum(leak.net.low > 0.5 for leak in coins) <= 3
    assert sum(leak.net.mean for leak in coins) / 30 == pytest.approx(0.505, abs=0.005)


@pytest.mark.parametrize(("n", "of_perfect"), [(2, 0.5), (8, 1.0)])
def test_a_coin_on_many_small_batches_is_no_leak(rng, n, of_perfect):
    """(a - 1/2)^2 - 4 a (1 - a) s^2 would have the mean 4 s^4: 0.72 in place of 1/2 for batches of 8 with one positive."""
    truth = first_positive(n, 1)
    coin = leak_of((torch.rand(n, generator=rng, dtype=torch.float64), truth) for _ in range(1200))
    assert net_of_square(coin.estimates["square"][0], coin.estimates["oriented"][0], 0.9999).low == 0.5
    assert coin.net.mean < 0.61
    assert leak_of(((-1) ** batch * truth.double(), truth) for batch in range(10)).net.mean == of_perfect


@pytest.mark.slow
def test_the_best_of_several_directions_is_chosen_once_and_stands_beside_what_a_coin_reaches(rng):
    positives, n, m, batches = 64, 256, 8, 12  # beside a row that is known
    truth = first_positive(n + 1, positives + 1)

    def drawn():
        return [torch.randn(n + 1, m, generator=rng) for _ in range(batches)]

    def best_of(drawn):
        return leak_of((columns[:, 0], truth, torch.tensor([0]), None, columns) for columns in drawn)

    coins = [best_of(drawn()) for _ in range(30)]
    assert coins[0].candidates == m
    assert sum(leak.oriented.mean for leak in coins) / len(coins) == pytest.approx(coins[0].coin, abs=0.003)
    error = math.sqrt((n + 1) / (12 * positives * (n - positives) * batches))
    assert coins[0].coin == pytest.approx(0.5 + 1.85 * error, abs=1e-3)
    assert sum(leak.net.low > 0.5 for leak in coins) <= 4
    planted = drawn()
    for batch, columns in enumerate(planted):
        columns[:, 5] -= 2.0 * truth  # AUC 1 - Phi(2 / sqrt 2) = 0.079
        columns[:, 2] += (-1) ** batch * 9.0 * truth  # perfect, but another way in each batch
    leak = best_of(planted)
    assert leak.oriented.mean == pytest.approx(0.921, abs=0.015)
    assert leak.net.mean == pytest.approx(leak.oriented.mean, abs=0.002)
    assert leak.net.low <= 0.921 <= leak.net.high
    assert leak.two_sided.mean < 0.6


def test_net_is_never_above_what_an_attacker_reaches():
    """Batches that leak more and less: the root of the mean square is above the mean."""
    truth, place = first_positive(2000, 500), torch.arange(2000) % 500
    scores = [torch.where(place < 500 * area, truth.double(), -truth.double()) for area in (1.0, 0.0, 0.6, 0.4, 1.0, 0.5)]
    leak = leak_of((one, truth) for one in scores)
    assert 0.7 < leak.oriented.mean < 0.9
    assert leak.net.mean == leak.oriented.mean
    assert leak.net.low <= leak.oriented.low


def test_one_column_is_one_score_a_row():
    leak = leak_of([(torch.tensor([[1], [3], [2], [4]]), torch.tensor([0, 1, 0, 1]))])
    assert (leak.raw.mean, dict(leak.classes)) == (1.0, {})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_arrays_give_what_tensors_give(rng, dtype, classes):
    """One column, the difference of two, and a column a class; with known rows, canaries and candidates."""
    shape = (50,) if classes == 1 else (50, classes)
    scores = (torch.randint(8, shape, generator=rng) / 3).to(dtype)
    truth, known = torch.randint(max(2, classes), (50,), generator=rng), torch.tensor([3, 7])
    canary, candidates = torch.rand(50, generator=rng) < 0.2, torch.rand(50, 3, generator=rng).to(dtype)
    batch = scores, truth, known, canary, candidates
    difference = array_of(scores[:, 1] - scores[:, 0]) if classes == 2 else None
    assert str(leak_of([batch])) == str(leak_of([(*map(array_of, batch), difference)]))


def test_ranks_of_halves_stay_distinct():
    """In float16, and in bfloat16 from 256 on, different ranks would have become equal."""
    values = torch.arange(3000, dtype=torch.float32).mul(16).bfloat16().unique()
    assert len(np.unique(ordered(array_of(values)))) == len(values)
