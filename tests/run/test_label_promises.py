"""What label_gdp and label_dp promise, on labels that features say nothing about: the best reader reaches the ceiling, and
nobody exceeds it.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from defenses.contexts import drawing
from scipy import stats
from support.builders import every_attack, run_in, session, table
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.attacks.completion import Completion
from vflbench.attacks.norm import Norm
from vflbench.attacks.remainder import Remainder
from vflbench.attacks.spectral import Spectral
from vflbench.data.base import Dataset
from vflbench.data.table import RawTable, raw_table
from vflbench.defenses.base import Defense, LabelDefense
from vflbench.defenses.dcor import Dcor
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp, gaussian_deviation
from vflbench.defenses.label_noise import chances, one_hot, randomized_response
from vflbench.defenses.marvell import Marvell
from vflbench.messages.facts import Gradients, Predictions
from vflbench.metrics.canary import Guesses
from vflbench.metrics.privacy import Exposure, gaussian_auc_ceiling, leak_auc_ceiling
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam
from vflbench.numerics.auc import auc
from vflbench.numerics.hashing import normals
from vflbench.options import Count, Fraction, options
from vflbench.protocols.split import SplitSession
from vflbench.run.attackers import Canaries
from vflbench.run.settings import Audit, Settings
from vflbench.run.summary import account

MU, EPS = 0.661, 0.753
"""Both promise a leak AUC of at most 0.680."""
CEILING = 0.68


@options
class Coins(Dataset):
    """Rows with four numeric columns and one of as many categories as rows, by which a network can learn them by heart.
    Labels are coins, positive with probability `share`.
    """

    count: Count = 1500
    share: Fraction = 0.3

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        columns = {f"I{j}": draw.random(self.count) for j in range(1, 5)}
        own = (draw.permutation(self.count).astype(np.int32), self.count)
        return raw_table({**columns, "C1": own}, (draw.random(self.count) < self.share).astype(np.int8)), {}

    def target_positive_ratio(self) -> float | None:
        return None


@dataclass
class Heard:
    """What was sent about n rows in T visits. logits, residuals: (T, n) or (T, n, K), of the visit; y: (n,) the truth.

    residuals: n times the gradient of the wide part, p - target. from_cut: (T, n), the same from the gradient of the cut
    layer by somebody who knows the top, nan for more than two classes.
    """

    y: Tensor
    logits: Tensor
    residuals: Tensor
    from_cut: Tensor

    @property
    def targets(self) -> Tensor:
        """p - residual, (T, n) or (T, n, K), rounded to what float32 tells."""
        return self._targets.round(decimals=5)

    @property
    def _targets(self) -> Tensor:
        p = self.logits.sigmoid() if self.logits.ndim == 2 else self.logits.softmax(dim=2)
        return p - self.residuals

    @property
    def evidence(self) -> Tensor:
        """(T, n) log-odds of the targets less those of the predictions: what a target of `posterior` has added."""
        return (self._targets.clamp(1e-7, 1 - 1e-7).logit() - self.logits).round(decimals=4)


def planned(defense: LabelDefense, epochs: int) -> LabelDefense:
    defense.plan(epochs)
    return defense


def hear(
    made: Callable[[], Defense],
    epochs: int,
    rows: int,
    seed: int,
    *,
    batch: int = 500,
    classes: int = 2,
    split: SplitSession | None = None,
    first: int = 0,
) -> Heard:
    """Train by split learning on coins, and take down what the label party sends to a feature owner who knows the top.

    made: a new defense, planned. split: a session to go on with from the epoch `first`.
    """
    rng = torch.Generator().manual_seed(1000 + seed)
    truth = table(rng, rows=rows, classes=classes)
    split = split or started(truth, made, seed)
    shape = (epochs, rows) if classes == 2 else (epochs, rows, classes)
    logits, residuals = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    from_cut = torch.full((epochs, rows), math.nan, dtype=torch.float64)
    for visit in range(epochs):
        for ids in torch.randperm(rows, generator=rng).split(batch):
            jacobian = split.label_party.top.output.weight.detach().clone().double()
            round_ = split.round(ids, epoch=first + visit, watch=frozenset({Gradients, Predictions}))
            layers = round_.facts["a"][Gradients].layers
            logits[visit, ids] = flat(round_.facts["label"][Predictions].logits)
            residuals[visit, ids] = len(ids) * flat(layers["wide"])
            if classes == 2:
                from_cut[visit, ids] = len(ids) * (layers["f1"].double() @ jacobian[0]) / jacobian[0].square().sum()
    return Heard(truth.labels, logits, residuals, from_cut)


def started(truth: Any, made: Callable[[], Defense], seed: int) -> SplitSession:
    """Parties with a linear top, whose cut layer and wide part cross."""
    return session(truth, model=WideDeep(bottom_layers=1, top_layers=0, width=4, wide=True), defenses=[made()], seed=seed)


def flat(values: Tensor) -> Tensor:
    """(n, 1) as (n,), in float64."""
    return values.double()[:, 0] if values.shape[1] == 1 else values.double()


def error_of(area: float, positives: int, negatives: int) -> float:
    """Standard error of an AUC.

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982, for exponential scores.
    """
    above, below = area / (2 - area) - area**2, 2 * area**2 / (1 + area) - area**2
    variance = area * (1 - area) + (positives - 1) * above + (negatives - 1) * below
    return math.sqrt(variance / (positives * negatives))


def assert_reached(expected: float, runs: list[tuple[Tensor, Tensor]]) -> None:
    """That the mean AUC over runs is within three standard errors of it. runs: scores and labels, (n,) of each."""
    mean = math.fsum(auc(scores, y) for scores, y in runs) / len(runs)
    positives = int(runs[0][1].sum())
    error = error_of(expected, positives, len(runs[0][1]) - positives) / math.sqrt(len(runs))
    assert abs(mean - expected) < 3 * error, (mean, expected, error)


def response_of_zero_sum(evidence: Tensor, eps: float, epochs: int) -> Tensor:
    """(T, n) x_t of label_dp's zero_sum for two classes, from the log-odds that its posteriors add; exact.

    l = log((e^(eps + u) + 1) / (e^u + e^eps)),   u = (x - 1/2) / ((1 - 2 q) (T - 1) sd^2)
    """
    _, q = chances(2, eps)
    spread = q * (1 - q) / (1 - 2 * q) ** 2
    inner = evidence.clamp(-eps + 1e-9, eps - 1e-9)
    u = torch.log(torch.expm1(inner + eps)) - inner - torch.log(torch.expm1(eps - inner))
    return 0.5 + u * (1 - 2 * q) * (epochs - 1) * spread


class TrueLabels(LabelGdp):
    """Hands true labels on to whatever stands behind it."""

    def labels(self, y, logits, context):
        super().labels(y, logits, context)
        self._noisy = y
        return y


class Unplanned(LabelGdp):
    """Fresh noise in each epoch, as large as for one epoch."""

    def _seen(self, y, columns, context):
        self.key(context)  # which draws it at the first call
        noise = normals(context.ids, self._key, context.epoch, 1) * gaussian_deviation(2, self.mu)
        return one_hot(y, 2) + noise, self.mu

    def guarantee(self):
        return planned(LabelGdp(mu=self.mu), 1).guarantee()


class Leaky(LabelDp):
    """Flips as for three times the eps."""

    def labels(self, y, logits, context):
        return randomized_response(y, 2, 3 * self.eps, torch.rand(len(y), generator=context.rng, dtype=torch.float64))


def response(evidence: Tensor) -> Tensor:
    """y' of zero_sum, the side of 1/2 on which the mean of the x_t lies."""
    return (response_of_zero_sum(evidence, EPS, len(evidence)).mean(dim=0) > 0.5).double()


CASES = {
    "label_gdp": (lambda: LabelGdp(mu=MU), "evidence"),
    "label_gdp, once, estimate": (lambda: LabelGdp(mu=MU, noise="once", target="estimate"), "targets"),
    "label_dp, posterior": (lambda: LabelDp(eps=EPS, target="posterior"), "evidence"),
    "label_dp, fresh": (lambda: LabelDp(eps=EPS, fresh_every_epoch=True), "targets"),
    "label_dp, zero_sum": (lambda: LabelDp(eps=EPS, mechanism="zero_sum"), "response"),
    "label_dp, lp_2st": (lambda: LabelDp(eps=EPS, mechanism="lp_2st"), "targets"),
}
"""A defense, and what the best reader of all that was sent about a row adds up."""
EPOCHS, SEEDS, ROWS = 3, 5, 20_000


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_best_reader_reaches_the_ceiling_and_no_more(name):
    """Features say nothing. The reader knows the top and joins what was sent about a row in all epochs."""
    made, read = CASES[name]
    promise = planned(made(), EPOCHS).guarantee()
    ceiling = promise.leak_auc_after(Exposure(EPOCHS, 2 * EPOCHS))
    assert name == "label_dp, fresh" or ceiling == pytest.approx(CEILING, abs=5e-4)
    runs = [hear(lambda: planned(made(), EPOCHS), EPOCHS, ROWS, s, batch=ROWS // 5) for s in range(SEEDS)]
    for one in runs:  # the cut layer tells the same
        assert torch.allclose(one.from_cut, one.residuals, atol=1e-5)
    if read == "response":
        assert_reached(ceiling, [(response(one.evidence), one.y) for one in runs])
        return
    assert_reached(ceiling, [(getattr(one, read).sum(dim=0), one.y) for one in runs])
    assert_reached(promise.leak_auc_after(Exposure()), [(getattr(one, read)[0], one.y) for one in runs])


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
    total, ceiling, areas = told.sum(dim=0), gaussian_auc_ceiling(MU), []
    for a, b in itertools.combinations(range(4), 2):
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
    split = started(truth, made, 0)
    before = hear(made, 1, rows, 0, split=split)
    resumed = started(truth, made, 1)  # another process, with generators in another state
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
@pytest.mark.parametrize("kind", ["label_gdp", "zero_sum"])
def test_kept_promises_are_suspected_no_more_often_than_the_confidence_says(monkeypatch, kind):
    count, canaries, epochs = 150, 500, 3
    monkeypatch.setattr("vflbench.run.summary._CONFIDENCE", 0.95)
    kept = (lambda _: LabelGdp(mu=MU)) if kind == "label_gdp" else (lambda _: LabelDp(eps=EPS, mechanism="zero_sum"))
    wrong = sum(audits(kept, count, canaries, epochs))
    assert stats.binomtest(wrong, count, 0.05, alternative="greater").pvalue > 1e-3, wrong
    broken = (lambda _: Unplanned(mu=MU)) if kind == "label_gdp" else (lambda _: Leaky(eps=EPS, mechanism="zero_sum"))
    assert sum(audits(broken, 20, canaries, 10)) >= 16


def attacks() -> dict[str, Attack]:
    """Of each kind: on one message, on all, on both kinds, and with known labels."""
    usual = ("direct", "norm", "cosine", "mixture", "posterior", "averaging", "ungroup", "residual_sum", "directions")
    others = {"spectral": Spectral(message="gradients"), "remainder": Remainder(rank=3)}
    return every_attack(*usual) | others | {"completion_both": Completion(known=100, message="both")}


def attacked(folder: Any, defenses: dict[str, LabelDefense], attacks: dict[str, Attack], **changes: Any) -> dict[str, Any]:
    """The summary of a run on coins. Features name each row, and the network learns what it is told by heart."""
    settings = {"epochs": 3, "batch_size": 128, "seed": 0, "audit": Audit(batches="all", probe=False)}
    settings |= changes.pop("settings", {})
    return run_in(
        folder,
        dataset=Coins(**changes.pop("dataset", {})),
        model=WideDeep(bottom_layers=2, top_layers=1, width=16, wide=True),
        optimizer=Adam(lr=1e-2),
        defenses=defenses,
        attacks=attacks,
        settings=Settings(**settings),
        **changes,
    )


def largest(summary: dict[str, Any]) -> float:
    return max(max(leak["two_sided"]["mean"], leak["net"]["mean"]) for leak in summary["leaks"] if leak["visible"])


KEPT = {
    "label_gdp": lambda: LabelGdp(mu=MU),
    "label_gdp, once": lambda: LabelGdp(mu=MU, noise="once"),
    "label_dp": lambda: LabelDp(eps=EPS),
    "label_dp, zero_sum": lambda: LabelDp(eps=EPS, mechanism="zero_sum"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_no_attack_exceeds_the_ceiling(tmp_path, name):
    audit = Audit(batches="all", probe=False, canaries=67)
    summary = attacked(tmp_path / "run", {"it": KEPT[name]()}, attacks(), settings={"audit": audit})
    promise = summary["guarantees"]["it"]
    assert promise["leak_auc_all_messages"] == pytest.approx(CEILING, abs=5e-4)
    assert promise["exceeded"] == []
    assert not summary["privacy"]["violated"]
    assert largest(summary) > 0.55  # and they read something


# Others beside it.


class Peek(LabelDefense):
    """Has a hook for labels."""

    def labels(self, y, logits, context):
        return y


@pytest.mark.slow
@pytest.mark.parametrize("order", [("label_gdp", "dcor"), ("marvell", "label_gdp")], ids="+".join)
def test_with_others_beside_it_the_promise_stands(tmp_path, order):
    made = {"label_gdp": LabelGdp(mu=MU), "dcor": Dcor(alpha_d=0.02), "marvell": Marvell()}
    defenses = {name: made[name] for name in order}
    attacks = {"rank 3": Remainder(rank=3), "rank 1": Remainder(rank=1), "both": Completion(message="both")}
    attacks |= every_attack("directions")
    summary = attacked(tmp_path / "run", defenses, attacks)
    promise = summary["guarantees"]["label_gdp"]
    assert promise["leak_auc_all_messages"] == pytest.approx(CEILING, abs=5e-4)
    assert promise["exceeded"] == []
    assert summary["claims_refused"] == {}
    assert summary["privacy"]["mu"] == pytest.approx(MU)
    assert not summary["privacy"]["violated"]


def test_behind_a_hook_for_labels_nothing_is_promised_and_that_is_said(tmp_path, capsys):
    defenses = {"peek": Peek(), "label_gdp": LabelGdp(mu=MU)}
    summary = attacked(tmp_path / "run", defenses, {"norm": Norm()}, settings={"epochs": 1})
    assert summary["guarantees"] == {"peek": None, "label_gdp": None}
    assert summary["privacy"] is None
    assert "peek before it sees labels" in summary["claims_refused"]["label_gdp"]
    assert "label_gdp claims nothing here: peek before it sees labels" in capsys.readouterr().out


@pytest.mark.slow
def test_true_labels_handed_on_are_read_from_what_stands_behind(tmp_path):
    """Marvell gives noise to one class only, and sees which."""
    attacks = {"remainder": Remainder(rank=3)}
    for first, is_found in ((TrueLabels(mu=MU), True), (LabelGdp(mu=MU), False)):
        folder = tmp_path / type(first).__name__
        summary = attacked(folder, {"it": first, "marvell": Marvell()}, attacks, settings={"epochs": 2})
        assert bool(summary["guarantees"]["it"]["exceeded"]) is is_found
