"""Promises of label DP put to the test: broken ones are found, kept ones are not suspected."""

import pytest
import torch
from support.builders import every_attack, run_in
from torch.nn import functional as F

from vflbench.attacks.averaging import Averaging
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import BreastCancer, Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.metrics.canary import Guesses
from vflbench.models.networks import Mlp
from vflbench.models.optimizers import Adam
from vflbench.run.attackers import draw_canaries
from vflbench.run.settings import Audit, Settings


class Unflipped(LabelDp):
    """Promises eps and flips nothing."""

    def labels(self, y, logits, context):
        return y


class FreshAsOnce(LabelDp):
    """Flips anew in each epoch and promises eps for all of them."""

    def guarantee(self):
        return LabelDp(eps=self.eps).guarantee()


class Sideways(LabelDp):
    """Flips as promised, and makes the gradients of the true positives longer."""

    true = None

    def labels(self, y, logits, context):
        type(self).true = y
        return super().labels(y, logits, context)

    def gradient(self, g, y, context):
        return F.normalize(g) * 1e-3 * (1 + self.true[:, None])


def settings(epochs=1, **audit):
    return Settings(epochs=epochs, batch_size=128, audit=Audit(**{"batches": "all", **audit}))


@pytest.fixture
def data():
    return Synthetic(rows=2000, vocabulary=100).load(torch.Generator().manual_seed(0))


def test_canaries_are_coins_that_stand_in_for_labels(data):
    canaries = draw_canaries(data.train, 600, torch.Generator().manual_seed(1))
    rows = data.train.all()
    planted = canaries.planted(rows.ids, rows.labels)
    is_canary = canaries.find(rows.ids)[0]
    assert int(is_canary.sum()) == len(canaries) == 600
    assert torch.equal(planted[~is_canary], rows.labels[~is_canary])
    coins, true = planted[is_canary].double(), rows.labels[is_canary].double()
    assert abs(coins.mean().item() - 0.5) < 0.08
    assert abs(torch.corrcoef(torch.stack([coins, true]))[0, 1].item()) < 0.15
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(2))
    assert torch.equal(canaries.planted(rows.ids[order], rows.labels[order]), planted[order])
    assert draw_canaries(data.train, 0, torch.Generator()).planted(rows.ids, rows.labels) is rows.labels
    held_by_the_label_party = data.aligned().relabelled(canaries.planted)
    assert torch.equal(held_by_the_label_party.labels(rows.ids), planted)
    assert torch.equal(held_by_the_label_party.rows(rows.ids).labels, planted)


def test_coins_of_many_classes_are_of_any_two_and_change_no_class_much():
    train = Digits().load(torch.Generator().manual_seed(0)).train
    canaries = draw_canaries(train, 1000, torch.Generator().manual_seed(1))
    first, second = canaries.sides
    assert bool((first != second).all())
    assert abs((canaries.labels == second).double().mean().item() - 0.5) < 0.06
    assert canaries.labels.bincount(minlength=10).tolist() == pytest.approx([100] * 10, abs=35)


def test_the_reader_goes_by_the_majority_and_abstains_at_a_tie(data):
    canaries = draw_canaries(data.train, 100, torch.Generator().manual_seed(1))
    ids, labels = canaries.ids, canaries.labels
    assert canaries.guesses() == Guesses()
    positives = int(labels.sum())
    canaries.read(ids, labels)
    assert canaries.guesses() == Guesses(positives, positives, 100 - positives, 100 - positives)
    restored = draw_canaries(data.train, 100, torch.Generator().manual_seed(1))
    restored.votes.copy_(canaries.votes)
    for reader in (canaries, restored):
        for expected in (Guesses(), Guesses(100 - positives, 0, positives, 0)):
            reader.read(ids, 1 - labels)
            assert reader.guesses() == expected


def test_auto_plants_where_eps_is_promised_and_nowhere_else():
    for wanted, rows, rarest, classes, promised, planted in (
        ("auto", 10_000, 5_000, 2, False, 0),
        ("auto", 10_000, 5_000, 2, True, 500),
        ("auto", 10**6, 5 * 10**5, 2, True, 1000),
        ("auto", 24_000, 243, 2, True, 24),  # so that coins don't outnumber the rows of a rare class
        ("auto", 7200, 700, 10, True, 350),
        (50, 10_000, 100, 2, False, 50),
        (50, 30, 15, 2, True, 30),
    ):
        assert Audit(canaries=wanted).planted(rows, rarest, classes, promised=promised) == planted


@pytest.mark.parametrize(("ratio", "mu", "said"), [(0.01, 1.0, True), (0.25, 1.0, False), (0.25, 0.4, True)])
def test_a_run_says_beforehand_that_noise_leaves_nothing_to_learn_from(capsys, tmp_path, ratio, mu, said):
    """12,000 rows: at 1 % positive 108 of them worth 1, at 25 % 427 and, at mu 0.4, 79."""
    dataset, how = Synthetic(rows=12_000, vocabulary=300, positive_ratio=ratio), Audit(batches=1, canaries=0)
    parts = {"dataset": dataset, "settings": Settings(epochs=1, batch_size=4096, audit=how), "attacks": {}}
    run_in(tmp_path / "run", defenses={"label_gdp": LabelGdp(mu=mu)}, **parts)
    assert ("worth" in capsys.readouterr().out) == said


BROKEN = {
    "no flips": (Unflipped(), 1, "the labels trained on"),
    "fresh as once": (FreshAsOnce(fresh_every_epoch=True), 10, "the labels trained on"),
    "around the labels": (Sideways(), 1, "norm on gradients of a f2"),
}


@pytest.mark.parametrize(("defense", "epochs", "finder"), BROKEN.values(), ids=BROKEN)
def test_a_broken_promise_is_found(tmp_path, defense, epochs, finder):
    how = settings(epochs, canaries=600, batches="all" if epochs == 1 else 1)
    summary = run_in(tmp_path / "run", defenses={"broken": defense}, attacks=every_attack("norm"), settings=how)
    assert summary["privacy"]["violated"]
    assert summary["privacy"]["epsilon_low_by"] == finder
    assert summary["privacy"]["epsilon_low"] > 1.3 > summary["privacy"]["epsilon"] == 1.0
    assert summary["failed"].startswith("broken: the promise of eps = 1 is broken: ")


@pytest.mark.slow
@pytest.mark.parametrize("defense", [LabelDp(), LabelDp(fresh_every_epoch=True)], ids=["once", "fresh and said so"])
def test_a_promise_that_is_kept_is_not_suspected_though_features_tell_the_labels(tmp_path, defense):
    """On this data every layer gives the labels away above the ceiling, through features alone."""
    parts = {"dataset": BreastCancer(), "model": Mlp(bottom_layers=2, width=32), "optimizer": Adam(lr=1e-2)}
    parts["attacks"] = {**every_attack("norm", "spectral"), "averaging": Averaging(rows=400, base="norm")}
    parts["settings"] = Settings(epochs=5, batch_size=32, audit=Audit(batches="all", canaries=100))
    summary = run_in(tmp_path / "run", defenses={"label_dp": defense}, **parts)
    assert max(leak["two_sided"]["mean"] for leak in summary["leaks"] if leak["visible"]) > 0.85
    privacy = summary["privacy"]
    assert not privacy["violated"]
    assert summary["failed"] is None
    assert privacy["epsilon"] == (5.0 if defense.fresh_every_epoch else 1.0)
    readers = {(k["attack"], k["layer"]) for k in summary["leaks"] if k["visible"] and k["attack"] != "probe"}
    assert len(privacy["tried"]) == 1 + len(readers)
