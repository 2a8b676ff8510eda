"""Runs in which the label party hijacks, and in which the feature side notices."""

import json

import pytest
from support.builders import Stop, results, run_in

from vflbench.attacks.fsha import Fsha as Read
from vflbench.attacks.norm import Norm
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.split_guard import SplitGuard
from vflbench.protocols.adversaries.fsha import Fsha
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings

GUARD = {"p_fake": 0.4, "burn_in": 1, "policy": "fast"}


def parts(**changes):
    settings = Settings(epochs=3, batch_size=64, audit=Audit(batches=2, probe=False), **changes.pop("settings", {}))
    return {
        "dataset": Synthetic(rows=400, vocabulary=100),
        "attacks": {"fsha": Read(rows=8), "norm": Norm()},
        "adversaries": {"fsha": Fsha(warm_up=5, width=8)},
        "defenses": {"split_guard": SplitGuard(threshold=1e-9, **GUARD)},
        "settings": settings,
        **changes,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_in(folder, **parts())
    return folder


@pytest.mark.slow
def test_the_threat_is_active_and_says_who_cheats_and_the_honest_run_stands_beside(whole):
    manifest, honest = (json.loads((folder / "manifest.json").read_text()) for folder in (whole, whole / "honest"))
    threat = manifest["threats"]["fsha"]
    assert (threat["level"], threat["role"], threat["active"]) == ("active", "label party", True)
    assert " Party label cheats: Send, in place of gradients of the loss, those of a critic" in threat["text"]
    assert manifest["threats"]["norm"]["level"] == "messages only"  # of a party that does not cheat
    assert manifest["adversary"]["fsha"]["party"] == "label"
    assert manifest["skipped"] == {}
    assert list(honest["skipped"]) == ["fsha"]
    summary = json.loads((whole / "summary.json").read_text())
    assert [one["attack"] for one in summary["reconstructions"] if one["message"] == "embedding"] == ["fsha"]
    assert summary["honest"]["test_auc"] is not None


def test_a_run_that_stops_ends_its_epoch_counts_as_failed_and_says_why(tmp_path):
    stops = {"defenses": {"split_guard": SplitGuard(threshold=1 - 1e-9, on_alarm="stop", **GUARD)}}
    run_in(tmp_path / "run", **parts(adversaries={}, **stops))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    figures = {f["figure"]: f["value"] for f in summary["figures"]}
    step = figures["split_guard.noticed_step"]
    why = f"party a stopped: split_guard noticed at batch {step} that the answers are not those of an honest label party"
    assert summary["failed"] == why
    assert summary["epochs"] == step // 5 + 1 < 3
    assert summary["test_auc"] > 0
    losses = [line for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines() if ",loss," in line]
    assert len(losses) == summary["epochs"]


@pytest.mark.slow
def test_a_run_that_was_stopped_in_mid_epoch_goes_on_to_the_same_bytes(whole, tmp_path):
    with pytest.raises(Interrupted):
        run_in(tmp_path, **parts(engine=Stop(at=5 * 2 + 2 + 5)))
    run_in(tmp_path, **parts())
    assert results(tmp_path) == results(whole)
    assert (tmp_path / "reconstructions.npz").exists() == (whole / "reconstructions.npz").exists()
