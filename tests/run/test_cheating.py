"""Runs in which a party cheats, beside the honest ones, and in which the feature side notices."""

import json
import shutil

import pytest
from support.builders import Stop, every_attack, results, run_in

from vflbench.attacks.fsha import Fsha as Read
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.split_guard import SplitGuard
from vflbench.options import options
from vflbench.protocols.adversaries import Adversary
from vflbench.protocols.adversaries.fsha import Fsha
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings

STEPS, EPOCHS = 5, 2
EPOCH = STEPS * 4 + 2 * 2  # messages of an epoch: two parties, up and down, and two predictions


@options
class Hoarder(Adversary):
    """Learns from the sum of all gradients so far. Nobody else does."""

    def __post_init__(self):
        self.sums = {}

    def gradient(self, layer, g, h, context):
        self.sums[layer] = self.sums.get(layer, 0) + g.mean(0)
        return g + self.sums[layer]


def parts(**changes):
    settings = {"epochs": EPOCHS, "batch_size": 64, "audit": Audit(batches=3), **changes.pop("settings", {})}
    return {
        "dataset": Synthetic(rows=400, vocabulary=100, parties=2),
        "adversaries": {"hoarder": Hoarder(party="b")},
        "settings": Settings(**settings),
        **changes,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_in(folder, **parts())
    return folder


def hijacked(**changes):
    """The label party cheats, and the feature side looks out for that."""
    hijack = {
        "dataset": Synthetic(rows=400, vocabulary=100),
        "attacks": {"fsha": Read(rows=8), **every_attack("norm")},
        "adversaries": {"fsha": Fsha(warm_up=5, width=8)},
        "defenses": {"split_guard": SplitGuard(threshold=1e-9, **GUARD)},
        "settings": {"epochs": 3, "audit": Audit(batches=2, probe=False)},
    }
    return parts(**{**hijack, **changes})


GUARD = {"p_fake": 0.4, "burn_in": 1, "policy": "fast"}


@pytest.mark.slow
def test_the_honest_run_stands_beside_and_is_the_run_without_an_adversary(whole, tmp_path):
    run_in(tmp_path / "plain", **parts(adversaries={}))
    lines, summary = results(whole / "honest")
    assert (lines, summary) == results(tmp_path / "plain")
    cheated = json.loads((whole / "summary.json").read_text())
    assert cheated["honest"] == {"test_auc": summary["test_auc"], "leak_auc_two_sided": summary["leak_auc_two_sided"]}
    assert "honest" not in summary
    assert cheated["test_auc"] != summary["test_auc"]
    assert not (whole / "honest" / "honest").exists()
    assert not [*whole.rglob("checkpoint.pt")]


@pytest.mark.slow
def test_both_runs_go_on_where_they_were_stopped(whole, tmp_path):
    expected, honest = results(whole), results(whole / "honest")
    run = tmp_path / "run"
    rest = 3 * 4 + 2 * 2  # messages of the run after its second batch of epoch 1
    for at, where in ((EPOCH + 7, "run"), (rest + 3, "honest"), (EPOCH - 10, "honest")):
        with pytest.raises(Interrupted, match="saved; the same command goes on from there") as stopped:
            run_in(run, **parts(engine=Stop(at=at)))
        assert f"({run / 'honest' if where == 'honest' else run})" in str(stopped.value)
        assert not [*run.rglob("summary.json")]
    run_in(run, **parts())
    assert results(run) == expected
    assert results(run / "honest") == honest
    for folder, times in ((run, 3), (run / "honest", 2)):
        assert len(json.loads((folder / "manifest.json").read_text())["resumed"]) == times


@pytest.mark.slow
def test_overwrite_makes_the_honest_run_anew(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    (tmp_path / "summary.json").unlink()
    (tmp_path / "honest" / "summary.json").write_text(json.dumps({"test_auc": 0, "leak_auc_two_sided": {}}))
    again = run_in(tmp_path, **parts())
    assert again["honest"]["test_auc"] == 0  # a finished honest run is not repeated
    run_in(tmp_path, **parts(settings={"overwrite": True}))
    assert results(tmp_path / "honest") == results(whole / "honest")
    assert results(tmp_path) == results(whole)


@pytest.mark.slow
def test_a_label_party_that_cheats_makes_a_threat_active_and_stops_and_goes_on_to_the_same_bytes(tmp_path):
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    summary = run_in(whole, **hijacked())
    with pytest.raises(Interrupted):
        run_in(parted, **hijacked(engine=Stop(at=5 * 2 + 2 + 5)))
    run_in(parted, **hijacked())
    assert results(parted) == results(whole)
    manifest = json.loads((whole / "manifest.json").read_text())
    threat = manifest["threats"]["fsha"]
    assert (threat["level"], threat["role"], threat["active"]) == ("active", "label party", True)
    assert threat["text"].endswith("into a space that its decoder reads (FSHA).")  # the first paragraph of two
    assert manifest["threats"]["norm"]["level"] == "messages only"  # of a party that does not cheat
    assert manifest["adversary"]["fsha"]["party"] == "label"
    assert manifest["skipped"] == {}
    assert list(json.loads((whole / "honest" / "manifest.json").read_text())["skipped"]) == ["fsha"]
    assert [one["attack"] for one in summary["reconstructions"] if one["message"] == "embedding"] == ["fsha"]


def test_a_run_that_stops_ends_its_epoch_counts_as_failed_and_says_why(tmp_path):
    stops = {"defenses": {"split_guard": SplitGuard(threshold=1 - 1e-9, on_alarm="stop", **GUARD)}}
    summary = run_in(tmp_path / "run", **hijacked(adversaries={}, **stops))
    figures = {f["figure"]: f["value"] for f in summary["figures"]}
    step = figures["split_guard.noticed_step"]
    why = f"party a stopped: split_guard noticed at batch {step} that the answers are not those of an honest label party"
    assert summary["failed"] == why
    assert summary["epochs"] == step // 5 + 1 < 3
    assert summary["test_auc"] > 0
    assert sum(link["messages"] for link in summary["links"] if link["message"] == "embedding") == step + 1
