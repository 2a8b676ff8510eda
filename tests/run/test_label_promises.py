"""What label_gdp and label_dp promise, on labels that features say nothing about: the best reader reaches the ceiling, and
nobody exceeds it.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.builders import every_attack, run_in, session, table

from vflbench.attacks.completion import Completion
from vflbench.attacks.remainder import Remainder
from vflbench.attacks.spectral import Spectral
from vflbench.data.base import Dataset
from vflbench.data.table import RawTable, raw_table
from vflbench.defenses.base import LabelDefense
from vflbench.defenses.dcor import Dcor
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.marvell import Marvell
from vflbench.messages.facts import Gradients, Predictions
from vflbench.metrics.privacy import Exposure
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam
from vflbench.numerics.auc import auc
from vflbench.options import options
from vflbench.run.settings import Audit, Settings

MU, EPS = 0.661, 0.753
"""Both promise a leak AUC of at most 0.680."""
CEILING = 0.68
EPOCHS, SEEDS, ROWS = 3, 5, 20_000


def hear(defense: LabelDefense, seed: int) -> tuple[Any, dict[str, Any]]:
    """Train by split learning on coins. Returns the truth (n,) and, (T, n) of n rows in T visits, what the label party tells
    a feature owner who knows the top, to the digits that float32 has.

    targets: p - residual, of which n times the gradient of the wide part is the residual. evidence: log-odds of the targets
    less those of the predictions, what a target of `posterior` has added.
    """
    rng = torch.Generator().manual_seed(1000 + seed)
    truth = table(rng, rows=ROWS)
    model = WideDeep(bottom_layers=1, top_layers=0, width=4, wide=True)
    split = session(truth, model=model, defenses=[defense], seed=seed)
    logits, residuals = torch.empty(2, EPOCHS, ROWS, dtype=torch.float64)
    for epoch in range(EPOCHS):
        for ids in torch.randperm(ROWS, generator=rng).split(ROWS // 5):
            facts = split.round(ids, epoch=epoch, watch=frozenset({Gradients, Predictions})).facts
            logits[epoch, ids] = facts["label"][Predictions].logits[:, 0].double()
            residuals[epoch, ids] = len(ids) * facts["a"][Gradients].layers["wide"][:, 0].double()
    targets = logits.sigmoid() - residuals
    evidence = (targets.clamp(1e-7, 1 - 1e-7).logit() - logits).round(decimals=4)
    return truth.labels, {"targets": targets.round(decimals=5), "evidence": evidence}


def assert_reached(expected: float, areas: list[float]) -> None:
    """That the mean AUC over runs is within three standard errors of it.

    Source: Hanley and McNeil, "The meaning and use of the area under a ROC curve", 1982, for exponential scores.
    """
    mean, ones = math.fsum(areas) / len(areas), ROWS // 2
    above, below = expected / (2 - expected) - expected**2, 2 * expected**2 / (1 + expected) - expected**2
    error = math.sqrt((expected * (1 - expected) + (ones - 1) * (above + below)) / ones**2 / len(areas))
    assert abs(mean - expected) < 3 * error, (mean, expected, error)


CASES = {
    "label_gdp": (lambda: LabelGdp(mu=MU), "evidence"),
    "label_gdp, once, estimate": (lambda: LabelGdp(mu=MU, noise="once", target="estimate"), "targets"),
    "label_dp, posterior": (lambda: LabelDp(eps=EPS, target="posterior"), "evidence"),
    "label_dp, fresh": (lambda: LabelDp(eps=EPS, fresh_every_epoch=True), "targets"),
    "label_dp, lp_2st": (lambda: LabelDp(eps=EPS, mechanism="lp_2st"), "targets"),
    "label_dp, zero_sum": (lambda: LabelDp(eps=EPS, mechanism="zero_sum"), "evidence"),
}
"""A defense, and what the best reader of all that was sent about a row adds up."""


def response_of(evidence: Any) -> Any:
    """(n,) y' of zero_sum, the side of 1/2 on which the mean of the x_t lies, from the log-odds l that its posteriors add.

    l = log((e^(eps + u) + 1) / (e^u + e^eps)), where u is a positive multiple of x - 1/2
    """
    inner = evidence.clamp(-EPS + 1e-9, EPS - 1e-9)
    u = torch.log(torch.expm1(inner + EPS)) - inner - torch.log(torch.expm1(EPS - inner))
    return (u.mean(dim=0) > 0).double()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_best_reader_reaches_the_ceiling_and_no_more(name):
    """Features say nothing. The reader knows the top and joins what was sent about a row in all epochs."""
    one, all_epochs = [], []
    for seed in range(SEEDS):
        defense, read = CASES[name][0](), CASES[name][1]
        defense.plan(EPOCHS)
        promise = defense.guarantee()
        y, heard = hear(defense, seed)
        one.append(auc(heard[read][0], y))
        joined = response_of(heard[read]) if "zero_sum" in name else heard[read].sum(dim=0)
        all_epochs.append(auc(joined, y))
    ceiling = promise.leak_auc_after(Exposure(EPOCHS, 2 * EPOCHS))
    assert name == "label_dp, fresh" or ceiling == pytest.approx(CEILING, abs=5e-4)
    assert_reached(ceiling, all_epochs)
    if "zero_sum" not in name:  # of which one visit shows less
        assert_reached(promise.leak_auc_after(Exposure()), one)


@options
class Coins(Dataset):
    """Rows with four numeric columns and one of as many categories as rows, by which a network can learn them by heart.
    Labels are coins, positive with probability 0.3.
    """

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        draw, count = np.random.default_rng(int(torch.randint(2**62, (), generator=rng))), 1500
        columns = {f"I{j}": draw.random(count) for j in range(1, 5)}
        columns["C1"] = (draw.permutation(count).astype(np.int32), count)
        return raw_table(columns, (draw.random(count) < 0.3).astype(np.int8)), {}

    def target_positive_ratio(self) -> float | None:
        return None


def attacked(folder, defenses, attacks, epochs=3, canaries="auto"):
    """The summary of a run on coins, whose network learns what it is told by heart."""
    audit = Audit(batches="all", probe=False, canaries=canaries)
    settings = Settings(epochs=epochs, batch_size=128, audit=audit)
    model = WideDeep(bottom_layers=2, top_layers=1, width=16, wide=True)
    parts = {"dataset": Coins(), "model": model, "optimizer": Adam(lr=1e-2), "settings": settings}
    return run_in(folder, defenses=defenses, attacks=attacks, **parts)


KEPT = {
    "label_gdp": lambda: LabelGdp(mu=MU),
    "label_gdp, once": lambda: LabelGdp(mu=MU, noise="once"),
    "label_dp": lambda: LabelDp(eps=EPS),
    "label_dp, zero_sum": lambda: LabelDp(eps=EPS, mechanism="zero_sum"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_no_attack_exceeds_the_ceiling(tmp_path, name):
    """Attacks on one message, on all, on both kinds, and with known labels."""
    usual = ("direct", "norm", "cosine", "mixture", "posterior", "averaging", "ungroup", "residual_sum", "directions")
    attacks = every_attack(*usual) | {"spectral": Spectral(message="gradients"), "remainder": Remainder(rank=3)}
    attacks["completion_both"] = Completion(known=100, message="both")
    summary = attacked(tmp_path / "run", {"it": KEPT[name]()}, attacks, canaries=67)
    promise = summary["guarantees"]["it"]
    assert promise["leak_auc_all_messages"] == pytest.approx(CEILING, abs=5e-4)
    assert promise["exceeded"] == []
    assert not summary["privacy"]["violated"]
    seen = [leak for leak in summary["leaks"] if leak["visible"]]
    assert max(max(leak["two_sided"]["mean"], leak["net"]["mean"]) for leak in seen) > 0.55  # and they read something


@pytest.mark.slow
@pytest.mark.parametrize("order", [("label_gdp", "dcor"), ("marvell", "label_gdp")], ids="+".join)
def test_with_other_defenses_the_promise_stands(tmp_path, order):
    made = {"label_gdp": LabelGdp(mu=MU), "dcor": Dcor(alpha_d=0.02), "marvell": Marvell()}
    attacks = {"rank 3": Remainder(rank=3), "rank 1": Remainder(rank=1), "both": Completion(message="both")}
    summary = attacked(tmp_path / "run", {name: made[name] for name in order}, attacks | every_attack("directions"))
    promise = summary["guarantees"]["label_gdp"]
    assert promise["leak_auc_all_messages"] == pytest.approx(CEILING, abs=5e-4)
    assert promise["exceeded"] == []
    assert summary["claims_refused"] == {}
    assert summary["privacy"]["mu"] == pytest.approx(MU)
    assert not summary["privacy"]["violated"]


class Peek(LabelDefense):
    """Has a hook for labels."""

    def labels(self, y, logits, context):
        return y


def test_behind_a_hook_for_labels_nothing_is_promised_and_that_is_said(tmp_path, capsys):
    summary = attacked(tmp_path / "run", {"peek": Peek(), "label_gdp": LabelGdp(mu=MU)}, {}, epochs=1)
    assert summary["guarantees"] == {"peek": None, "label_gdp": None}
    assert summary["privacy"] is None
    assert "peek before it sees labels" in summary["claims_refused"]["label_gdp"]
    assert "label_gdp claims nothing here: peek before it sees labels" in capsys.readouterr().out
