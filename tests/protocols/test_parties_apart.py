"""Parties at the ends of channels, which only bytes cross, make the same numbers as parties in one process."""

import json
from dataclasses import astuple, replace

import pytest
from support.builders import defenses, every_attack, experiment, figures
from support.loopback import apart

from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.recordings import RecordedMessages
from vflbench.models.networks import WideDeep
from vflbench.protocols.adversaries.fsha import Fsha
from vflbench.protocols.split import Split
from vflbench.results.recorder import Recorder
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.experiment import run_experiment
from vflbench.run.offline import audit_recording, grade_scored, write_scores
from vflbench.run.settings import Audit, Settings


def parts(parties=1, **changes):
    """A run of two epochs."""
    return experiment(
        dataset=Synthetic(rows=1500, vocabulary=160, parties=parties),
        model=WideDeep(bottom_layers=2, top_layers=1, width=16, wide=True),
        **{"attacks": {}, "settings": Settings(epochs=2, batch_size=64, audit=Audit(batches=3)), **changes},
    )


def made(whole, folder):
    recorder, checkpoint = Recorder(folder, "", {}, quiet=True), Checkpoint(folder, "keep")
    recorder.finish(run_experiment(whole, recorder, checkpoint))
    return figures(folder)


def separated(whole, folder):
    return apart(whole, whole.dataset.load(Generators(0)["data"]), folder / "parties")


@pytest.mark.parametrize(
    ("names", "parties", "staleness"),
    [
        (["marvell"], 2, 0),
        ([], 2, 1),
        pytest.param(["vector_quantize"], 2, 1, marks=pytest.mark.slow),
        pytest.param(["quantize", "binomial"], 4, 0, marks=pytest.mark.slow),
        pytest.param(["label_dp", "dcor"], 1, 0, marks=pytest.mark.slow),
        pytest.param(["split_guard"], 2, 0, marks=pytest.mark.slow),
    ],
)
def test_metrics_are_equal_byte_for_byte(names, parties, staleness, tmp_path):
    here, far = (parts(parties, defenses=defenses(*names), protocol=Split(staleness=staleness)) for _ in range(2))
    assert made(separated(far, tmp_path / "apart"), tmp_path / "apart") == made(here, tmp_path / "here")


@pytest.mark.slow
def test_an_attack_at_a_party_elsewhere_is_skipped_with_the_command_for_its_recording(tmp_path):
    attacks = {name: every_attack()[name] for name in ("norm", "model_inversion")}
    settings = Settings(epochs=1, batch_size=64, record="messages", audit=Audit(batches=2, dcor=True))
    without = made(parts(settings=replace(settings, record="none")), tmp_path / "here")
    with_attacks = made(separated(parts(attacks=attacks, settings=settings), tmp_path / "apart"), tmp_path / "apart")
    measured, plain = ([line for line in lines if "distance_corr" not in line] for lines in (with_attacks, without))
    assert measured == plain
    assert any(",f2," in line for line in set(with_attacks) - set(measured))
    skipped = json.loads((tmp_path / "apart" / "manifest.json").read_text())["skipped"]
    assert "vflbench audit RECORDING --scores-only SCORES attack=norm" in skipped["norm"]
    assert "columns of a, and they live elsewhere" in skipped["model_inversion"]
    said = (tmp_path / "apart" / "train.log").read_text()
    assert "attack=norm is skipped: it sits at a" in said
    assert "audit.dcor=true: of a, only embeddings that cross are measured, as they arrive" in said
    assert "record=messages: of a, only what crosses is recorded here" in said
    audited = audit_recording(tmp_path / "apart" / "recording", {"norm": attacks["norm"]})  # of others: it has no run.json
    assert {leak.layer for leak in audited.findings[-1].leaks if leak.attack == "norm"} == {"f2", "wide"}


@pytest.mark.slow
def test_a_party_attacks_from_its_own_recording_and_the_label_party_grades_the_scores(tmp_path):
    """The leak AUC is that of a recording by one process, of which the labels were taken away before it was attacked."""
    settings = Settings(epochs=2, batch_size=64, record="messages", audit=Audit(batches=2))
    whole = parts(2, settings=settings, protocol=Split(staleness=1))
    assert made(separated(whole, tmp_path / "apart"), tmp_path / "apart") == made(whole, tmp_path / "here")
    attacks = {name: every_attack()[name] for name in ("direct", "spectral", "residual")}
    recorded = tmp_path / "here" / "recording"
    (recorded / "run.json").unlink()
    for path in (recorded / "messages").glob("*9999999.safetensors"):
        path.unlink()  # what networks make of rows at the end of an epoch; a party doesn't keep that
    of_a = tmp_path / "apart" / "parties" / "a" / "recording"
    assert not (of_a / "labels.parquet").exists()
    shares = RecordedMessages(recorded).manifest.class_shares
    graded = {}
    for name, folder in (("kept", of_a), ("whole", recorded)):
        write_scores(folder, attacks, tmp_path / name, shares=tuple(shares))
        rows = grade_scored(tmp_path / name, recorded / "labels.parquet").rows()
        graded[name] = [astuple(row) for row in rows if row.party == "a"]
    assert graded["kept"]
    assert graded["kept"] == graded["whole"]


def test_a_cheating_label_party_is_refused(tmp_path):
    far = separated(parts(), tmp_path)
    with pytest.raises(UserError, match=r"adversary=Fsha: it takes rows of all parties' columns"):
        made(replace(far, adversaries={"fsha": Fsha()}), tmp_path)


@pytest.mark.slow
def test_a_run_goes_on_where_all_parties_are(tmp_path, monkeypatch):
    """Stopped after the first epoch and gone on in new processes, it makes the same bytes; without a party's state, none."""

    def fresh():
        return parts(2, defenses=defenses("vector_quantize"))

    whole = made(fresh(), tmp_path / "whole")
    folder = tmp_path / "stopped"
    far = separated(fresh(), folder)
    link = far.engine.links["b"]
    call, count = link.call, []

    def dying(method, content):
        count.append(method)
        if method == "learn" and count.count("learn") == 30:
            raise UserError("it is gone", key="engine")
        return call(method, content)

    monkeypatch.setattr(link, "call", dying)
    with pytest.raises(UserError, match="it is gone"):
        made(far, folder)
    kept = folder / "parties" / "a"
    aside = kept.rename(folder / "aside")
    with pytest.raises(UserError, match="party a has no checkpoint of the step at which the label party is"):
        made(separated(fresh(), folder), folder)
    aside.rename(kept)
    assert made(separated(fresh(), folder), folder) == whole
