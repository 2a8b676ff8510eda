"""The worst attack and its interval, against coins and leaks whose truth is planted: how often it holds the truth."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy, norm

from vflbench.metrics.leak import LeakTable, above, at_levels, class_figures, leak_of, reading, worst

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


def areas(truths, positives, negatives, rng):
    """AUCs of batches whose true AUCs are these, with the variance 4 a (1 - a) (n + 1) / (12 P N)."""
    deviation = (4 * truths * (1 - truths) * (positives + negatives + 1) / (12 * positives * negatives)).sqrt()
    return (truths + deviation * torch.randn(truths.shape, generator=rng, dtype=torch.float64)).clamp(0, 1)


def filled(drawn, positives=50, negatives=150, names=None, candidates=None):
    """The table that batches with these AUCs fill. drawn: (leaks, batches)."""
    table = LeakTable()
    for number, of_leak in enumerate(drawn.tolist()):
        key = (names[number] if names else f"attack{number}", "gradient", "a", "f5", True)
        for batch, area in enumerate(of_leak):
            figures = {"auc": area, "positives": positives, "negatives": negatives}
            if candidates is not None:
                figures["candidates"] = candidates[number, batch].tolist()
            table._batches.setdefault(key, []).append(figures)
    return table


@pytest.mark.slow
def test_the_interval_covers_the_worst_of_many_coins_and_of_mixed_leaks(rng):
    """Of 12 attacks and 9 batches: coins; one leak among coins; leaks of any size; leaks whose direction flips."""
    coins, flips = torch.full((12, 9), 0.5, dtype=torch.float64), torch.arange(9) % 2 == 0

    def among_coins(truth):
        return torch.cat([truth.expand(1, 9).double(), coins[1:]])

    def drawn_anew():
        """Each batch leaks another amount in another direction: 0.5 +- |N(0, 0.15^2)|, clipped; the mean is 0.62."""
        return among_coins(0.5 + (0.15 * torch.randn(9, generator=rng)).clamp(-0.45, 0.45))

    for name, worst_truth, truths in (
        ("coins", 0.5, lambda: coins),
        ("one of 0.6", 0.6, lambda: among_coins(torch.tensor(0.6).double())),
        ("all sizes", 0.8, lambda: torch.linspace(0.45, 0.8, 12, dtype=torch.float64)[:, None].expand(12, 9)),
        ("flipping 0.7", 0.7, lambda: among_coins(torch.where(flips, 0.7, 0.3))),
        ("drawn anew", 0.5 + 0.15 * math.sqrt(2 / math.pi), drawn_anew),
    ):
        verdicts = [worst(filled(areas(truths(), 50, 150, rng)).leaks()) for _ in range(100)]
        covered = sum(verdict.low <= worst_truth + 1e-9 and verdict.high >= worst_truth - 1e-9 for verdict in verdicts)
        assert covered >= 0.95 * 100 - 3 * math.sqrt(100 * 0.95 * 0.05), name


@pytest.mark.slow
def test_a_picked_leak_is_not_taken_at_its_own_interval(rng):
    """The largest of 40 coins seems to leak at 95 %, one at a time, and does not at the interval of the verdict."""
    coins = torch.full((40, 9), 0.5, dtype=torch.float64)
    tables = [filled(areas(coins, 50, 150, rng)).leaks() for _ in range(40)]
    assert sum(max(reading(leak).low for leak in leaks) > 0.5 for leaks in tables) > 20
    assert sum(worst(leaks).low > 0.5 for leaks in tables) <= 5


def test_the_direction_that_flips_outweighs_a_mean_that_hides_it(rng):
    """Marvell's `cosine`: 0.59 whichever end is positive, and a two-sided mean of 0.50."""
    truths = torch.stack([torch.full((60,), 0.537), torch.where(torch.arange(60) % 2 == 0, 0.594, 0.406)]).double()
    verdict = worst(filled(areas(truths, 500, 1500, rng), 500, 1500, ["hints", "cosine"]).leaks())
    assert verdict.attack == "cosine"
    assert verdict.value == pytest.approx(0.594, abs=0.006)
    assert verdict.readings == 4


def test_candidates_count_as_readings_and_coins_among_them_stay_coins(rng):
    verdicts = []
    for _ in range(60):
        columns = areas(torch.full((1, 9, 10), 0.5, dtype=torch.float64), 50, 150, rng)
        coin = worst(filled(columns[:, :, 0], candidates=columns).leaks())
        columns[..., 3] = areas(torch.full((1, 9), 0.3, dtype=torch.float64), 50, 150, rng)
        verdicts.append((coin, worst(filled(columns[:, :, 0], candidates=columns).leaks())))
    assert sum(coin.low <= 0.5 for coin, _ in verdicts) >= 53  # 57, less 2.4 standard deviations
    assert sum(strong.low <= 0.7 <= strong.high for _, strong in verdicts) >= 53
    for _, strong in verdicts:
        assert strong.value == pytest.approx(0.7, abs=0.07)
        assert strong.readings == 11


def test_levels_are_kept_apart_and_references_and_hidden_layers_do_not_count():
    table, truth = LeakTable(), torch.arange(100) < 25
    noise = torch.linspace(0, 1, 100).flip(0).double()
    levels = dict.fromkeys(("norm", "spectral"), "messages only") | {"completion": "known labels"}
    levels |= dict.fromkeys(("probe", "no_message"), "reference")
    for name in levels:
        message = {"no_message": "none", "spectral": "embedding"}.get(name, "gradient")
        for weight in (0.1, 0.2, 0.3):
            scores = truth * weight + noise if name == "norm" else truth.double()
            table.add((name, message, "a", "f5", name != "spectral"), scores, truth.long())
    leaks = table.leaks()
    names = {level: [leak.attack for leak in at_levels(leaks, levels, level)] for level in levels.values()}
    assert names == {"messages only": ["norm"], "known labels": ["completion"], "reference": ["probe"]}
    assert worst(at_levels(leaks, levels, "active")) is None
    assert worst(at_levels(leaks, levels, "known labels")).value == 1.0


def test_only_a_leak_that_is_surely_above_its_ceiling_is_listed(rng):
    truths = torch.tensor([0.75, 0.69, 0.5, 0.99], dtype=torch.float64)[:, None].expand(4, 12)
    leaks = filled(areas(truths, 50, 150, rng), names=["far", "near", "coin", "joins"]).leaks()
    listed = above(leaks, [0.68, 0.68, 0.68, 1.0])
    assert [(one.attack, height) for one, height in listed] == [("far", 0.68)]
    assert above(leaks, [math.nan] * 4) == []


def test_classes_are_read_by_ami_or_macro_auc_whichever_is_stronger():
    truth = torch.arange(90) % 3
    renamed, shifted = torch.eye(3)[(truth + 1) % 3], torch.eye(3)[truth] * 0.5
    shifted[:, 0] += 1  # always answers class 0, though its scores rank every class
    table = LeakTable()
    for _ in range(3):
        table.add(("kmeans", "embedding", "a", "f5", True), renamed, truth)
        table.add(("ranking", "embedding", "a", "f4", True), shifted, truth)
    clusters, ranking = (reading(leak) for leak in table.leaks())
    assert (clusters.figure, clusters.value) == ("AMI", pytest.approx(1.0))
    assert (ranking.figure, ranking.value) == ("macro AUC", pytest.approx(1.0))
