"""Runs in which a party cheats, beside the honest ones."""

import json
import shutil

import pytest
from support.builders import Stop, results, run_in

from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError
from vflbench.options import options
from vflbench.protocols.adversaries import Adversary
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings

STEPS, EPOCHS = 5, 2
EPOCH = STEPS * 4 + 2 * 2  # messages of an epoch: two parties, up and down, and two predictions


@options
class Hoarder(Adversary):
    """Learns from the sum of all gradients so far. Nobody else does.

    A second paragraph, which no report shows.
    """

    def __post_init__(self):
        self.sums = {}

    def gradient(self, layer, g, h, context):
        self.sums[layer] = self.sums.get(layer, 0) + g.mean(0)
        return g + self.sums[layer]


def parts(**changes):
    settings = Settings(epochs=EPOCHS, batch_size=64, audit=Audit(batches=3), **changes.pop("settings", {}))
    return {
        "dataset": Synthetic(rows=400, vocabulary=100, parties=2),
        "attacks": {"norm": Norm(), "spectral": Spectral()},
        "adversaries": {"hoarder": Hoarder(party="b")},
        "settings": settings,
        **changes,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_in(folder, **parts())
    return folder


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
    assert [file.name for file in whole.rglob("checkpoint.pt")] == []


@pytest.mark.slow
def test_the_manifest_says_who_cheats_and_whose_attacks_are_active(whole):
    manifest, honest = (json.loads((folder / "manifest.json").read_text()) for folder in (whole, whole / "honest"))
    assert manifest["adversary"] == {
        "hoarder": {"party": "b", "text": "Learns from the sum of all gradients so far. Nobody else does."}
    }
    assert honest["adversary"] == {}
    attacks = [threat for threat in manifest["threats"].values() if threat["level"] != "reference"]
    for threat in attacks:
        assert (threat["active"], threat["level"]) == (True, "active")
        assert threat["text"].startswith("An active attacker at a non-label party, who knows: ")
        assert threat["text"].endswith(" Party b cheats: Learns from the sum of all gradients so far. Nobody else does.")
    assert len(attacks) == 2
    assert not any(threat["active"] or "cheats" in threat["text"] for threat in honest["threats"].values())


@pytest.mark.slow
def test_both_runs_go_on_where_they_were_stopped(whole, tmp_path):
    expected, honest = results(whole), results(whole / "honest")
    run = tmp_path / "run"
    rest = 3 * 4 + 2 * 2  # messages of the run after its second batch of epoch 1
    for at, where in ((EPOCH + 7, "run"), (rest + 3, "honest"), (EPOCH - 10, "honest")):
        with pytest.raises(Interrupted, match="saved; the same command goes on from there") as stopped:
            run_in(run, **parts(engine=Stop(at=at)))
        assert f"({run / 'honest' if where == 'honest' else run})" in str(stopped.value)
        assert not (run / "summary.json").exists()
        assert not (run / "honest" / "summary.json").exists()
    run_in(run, **parts())
    assert results(run) == expected
    assert results(run / "honest") == honest
    assert len(json.loads((run / "manifest.json").read_text())["resumed"]) == 3
    assert len(json.loads((run / "honest" / "manifest.json").read_text())["resumed"]) == 2


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


def test_a_party_that_does_not_exist_can_not_cheat(tmp_path):
    with pytest.raises(UserError, match=r"adversary\.hoarder\.party=z: there is no such non-label party; there are a, b"):
        run_in(tmp_path, **parts(adversaries={"hoarder": Hoarder(party="z")}))
