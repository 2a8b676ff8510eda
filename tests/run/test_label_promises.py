"""What label_gdp and label_dp promise, held to in whole runs: the best reader reaches the ceiling, and nobody exceeds it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from builders import table
from defenses.contexts import drawing
from planted_labels import (
    CEILING,
    EPS,
    MU,
    AfterTheTop,
    Heard,
    Leaky,
    Unplanned,
    error_of,
    hear,
    mean_auc,
    planned,
    response_of_zero_sum,
    start,
)
from scipy import stats
from torch import Tensor

from vflbench.defenses.base import LabelDefense
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.metrics.canary import Guesses
from vflbench.metrics.privacy import Exposure, gaussian_auc_ceiling, leak_auc_ceiling
from vflbench.numerics.auc import auc
from vflbench.run.attackers import Canaries
from vflbench.run.summary import account

Reader = Callable[[Heard], Tensor]


@dataclass(frozen=True)
class Case:
    """A defense, and the best reader of what was sent about a row in all epochs: (n,) scores."""

    made: Callable[[], LabelDefense]
    read: Reader


def targets(heard: Heard) -> Tensor:
    return heard.targets.sum(dim=0)


def evidence(heard: Heard) -> Tensor:
    return heard.evidence.sum(dim=0)


def response(heard: Heard) -> Tensor:
    """y' of zero_sum, the side of 1/2 on which the mean of the x_t lies."""
    return (response_of_zero_sum(heard.evidence, EPS, len(heard.logits)).mean(dim=0) > 0.5).double()


CASES = {
    "label_gdp": Case(lambda: LabelGdp(mu=MU), evidence),
    "label_gdp, estimate": Case(lambda: LabelGdp(mu=MU, target="estimate"), targets),
    "label_gdp, once": Case(lambda: LabelGdp(mu=MU, noise="once"), evidence),
    "label_gdp, once, estimate": Case(lambda: LabelGdp(mu=MU, noise="once", target="estimate"), targets),
    "label_dp": Case(lambda: LabelDp(eps=EPS), targets),
    "label_dp, posterior": Case(lambda: LabelDp(eps=EPS, target="posterior"), evidence),
    "label_dp, debias": Case(lambda: LabelDp(eps=EPS, debias=True), targets),
    "label_dp, fresh": Case(lambda: LabelDp(eps=EPS, fresh_every_epoch=True), targets),
    "label_dp, zero_sum": Case(lambda: LabelDp(eps=EPS, mechanism="zero_sum"), response),
    "label_dp, lp_2st": Case(lambda: LabelDp(eps=EPS, mechanism="lp_2st"), targets),
}
SEEDS, ROWS = 10, 20_000


def heard_by_seed(case: Case, epochs: int) -> dict[int, Heard]:
    return {s: hear(lambda: planned(case.made(), epochs), epochs, ROWS, s, batch=ROWS // 5) for s in range(SEEDS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_best_reader_reaches_the_ceiling_and_no_more(name):
    """Features say nothing. The reader knows the top and joins what was sent about a row in all epochs."""
    case = CASES[name]
    for epochs in (2, 5):
        promise = planned(case.made(), epochs).guarantee()
        ceiling = promise.leak_auc_after(Exposure(epochs, 2 * epochs))
        assert name == "label_dp, fresh" or ceiling == pytest.approx(CEILING, abs=5e-4)
        runs = heard_by_seed(case, epochs)
        mean, error = mean_auc({s: (case.read(one), one.y) for s, one in runs.items()}, ceiling)
        assert abs(mean - ceiling) < 3 * error, (epochs, mean, ceiling, error)
        for one in runs.values():  # the cut layer tells the same
            assert torch.allclose(one.from_cut, one.residuals, atol=1e-5)
        if case.read in (evidence, targets):
            one_message = promise.leak_auc_after(Exposure())
            first = {s: ((one.evidence if case.read is evidence else one.targets)[0], one.y) for s, one in runs.items()}
            mean, error = mean_auc(first, one_message)
            assert abs(mean - one_message) < 3 * error, (epochs, mean, one_message, error)


def test_what_one_of_two_epochs_tells_is_half_of_mu_squared():
    promise = planned(LabelGdp(mu=MU), 2).guarantee()
    assert promise.leak_auc_after(Exposure()) == pytest.approx(0.6295, abs=5e-5)
    assert promise.leak_auc_after(Exposure(2, 4)) == pytest.approx(0.6799, abs=5e-5)
    assert LabelDp(eps=EPS, mechanism="zero_sum").guarantee().leak_auc_after(Exposure()) == pytest.approx(0.680, abs=5e-4)


@pytest.mark.parametrize("target", ["estimate", "posterior"])
def test_of_four_classes_no_two_are_further_apart(target):
    epochs, rows = 3, 6000
    heard = hear(lambda: planned(LabelGdp(mu=MU, target=target), epochs), epochs, rows, 0, classes=4, batch=1000)
    told = heard.targets if target == "estimate" else heard.targets.clamp_min(1e-9).log() - heard.logits
    total, ceiling = told.sum(dim=0), gaussian_auc_ceiling(MU)
    pairs = [(a, b) for a in range(4) for b in range(a)]
    areas = []
    for a, b in pairs:
        pair = (heard.y == a) | (heard.y == b)
        areas.append(auc((total[:, a] - total[:, b])[pair], heard.y[pair] == a))
    error = error_of(ceiling, rows // 4, rows // 4)
    assert abs(math.fsum(areas) / len(areas) - ceiling) < 3 * error / math.sqrt(3)  # each row is in three pairs
    assert max(areas) < ceiling + 4 * error


# Broken ones.


def keyless(kind, **options):
    """A defense that draws a new key when a run is resumed."""

    class Keyless(kind):
        def state(self):
            return {**super().state(), "_key": None}

    return lambda: Keyless(**options)


def read_twice(made: Callable[[], LabelDefense], read: Callable[[Heard], Tensor], rows: int = 4000) -> tuple[float, float]:
    """AUC before a run is resumed, and of both halves together. read: what one visit tells, (1, n)."""
    rng = torch.Generator().manual_seed(1000)
    truth = table(rng, rows=rows)
    split = start(truth, made, 0)
    before = hear(made, 1, rows, 0, split=split)
    resumed = start(truth, made, 1)  # another process, with generators in another state
    resumed.restore(split.state())
    after = hear(made, 1, rows, 0, split=resumed, first=1)
    assert torch.equal(before.y, after.y)
    return auc(read(before)[0], before.y), auc((read(before) + read(after))[0], before.y)


@pytest.mark.parametrize("kind", [LabelGdp, LabelDp])
def test_a_lost_key_is_read_and_a_kept_one_tells_nothing_new(kind):
    options = {"mu": MU, "noise": "once"} if kind is LabelGdp else {"eps": EPS}
    read = (lambda heard: heard.evidence) if kind is LabelGdp else (lambda heard: heard.targets)
    error = error_of(CEILING, 2000, 2000)
    once, both = read_twice(lambda: kind(**options), read)
    assert abs(once - CEILING) < 3 * error
    assert both == pytest.approx(once, abs=1e-4)  # up to the rounding of float32
    _, both = read_twice(keyless(kind, **options), read)
    twice = gaussian_auc_ceiling(math.sqrt(2) * MU) if kind is LabelGdp else leak_auc_ceiling(EPS, 2)
    assert abs(both - twice) < 3 * error
    assert both > CEILING + 3 * error


def test_noise_after_the_top_is_read():
    """Each layer has noise of its own, so that two tell more than one; weights of the top tell the true labels besides."""
    epochs, rows = 2, 6000
    heard = hear(lambda: planned(AfterTheTop(), epochs), epochs, rows, 0, batch=1000)
    error = error_of(CEILING, rows // 2, rows // 2)
    assert auc(heard.targets.sum(dim=0), heard.y) == pytest.approx(CEILING, abs=3 * error)  # the wide part alone
    p = heard.logits.sigmoid()
    assert auc((2 * p - heard.residuals - heard.from_cut).sum(dim=0), heard.y) > CEILING + 4 * error


@pytest.mark.slow
def test_more_visits_than_planned_with_fresh_noise_are_read():
    heard = hear(lambda: planned(Unplanned(mu=MU), 1), 10, 3000, 0)
    reached = auc(heard.evidence.sum(dim=0), heard.y)
    assert reached == pytest.approx(gaussian_auc_ceiling(math.sqrt(10) * MU), abs=0.03)
    kept = hear(lambda: planned(LabelGdp(mu=MU), 1), 10, 3000, 0)
    assert auc(kept.evidence.sum(dim=0), kept.y) < CEILING + 3 * error_of(CEILING, 1500, 1500)


# Audits.


def audits(made: Callable[[int], LabelDefense], count: int, canaries: int, epochs: int) -> list[bool]:
    """Whether each of many audits took the promise for broken; the reader sees the labels that were trained on."""
    found = []
    for number in range(count):
        rng = torch.Generator().manual_seed(number)
        ids = torch.arange(canaries)
        coins = torch.randint(2, (canaries,), generator=rng)
        defense, planted = planned(made(number), epochs), Canaries(ids, coins)
        for epoch in range(epochs):
            planted.read(ids, defense.labels(coins, torch.zeros(canaries, 1), drawing(rng, ids, epoch)))
        result = account({"it": defense}, Exposure(epochs, epochs), [], planted)
        assert planted.guesses() != Guesses()
        found.append(result.violated)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("kind", ["label_gdp", "zero_sum"])
def test_kept_promises_are_suspected_no_more_often_than_the_confidence_says(monkeypatch, kind, epochs):
    count, canaries = 150, 500
    monkeypatch.setattr("vflbench.run.summary.CONFIDENCE", 0.95)
    kept = (lambda _: LabelGdp(mu=MU)) if kind == "label_gdp" else (lambda _: LabelDp(eps=EPS, mechanism="zero_sum"))
    wrong = sum(audits(kept, count, canaries, epochs))
    assert stats.binomtest(wrong, count, 0.05, alternative="greater").pvalue > 1e-3, wrong
    broken = (lambda _: Unplanned(mu=MU)) if kind == "label_gdp" else (lambda _: Leaky(eps=EPS, mechanism="zero_sum"))
    assert sum(audits(broken, 20, canaries, 10)) >= 16
