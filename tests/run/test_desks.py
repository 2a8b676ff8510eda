"""Attacks that are asked in the process of their party: the numbers of a run in one process."""

import json
from dataclasses import astuple, replace

import pytest
import torch
from builders import every_attack, run_in
from separated_runs import HERE, both, figures, parts, same, separated

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.hints import Hints
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.norm import Norm
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.quantize import Quantize
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, Gradients, Known, OwnModel
from vflbench.messages.message import Kind
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.threat import Seat, Threat
from vflbench.protocols.adversaries.malicious_optimizer import MaliciousOptimizer
from vflbench.protocols.split import Split
from vflbench.results.recorder import Recorder
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.experiment import run
from vflbench.run.graded import grade
from vflbench.run.offline import audit
from vflbench.run.scores_only import write_scores
from vflbench.run.settings import Audit, Settings

ELSEWHERE = {name: attack for name, attack in every_attack().items() if attack.threat.seat is Seat.LABEL}
SOME = {name: HERE[name] for name in ("norm", "cosine", "spectral", "completion", "no_message", "averaging")}
DEFENSES = {
    "marvell": {"marvell": Marvell()},
    "label_dp": {"label_dp": LabelDp(eps=1.0)},
    "quantize+binomial": {"quantize": Quantize(), "binomial": Binomial()},
}


def noted(folder, name):
    return json.loads((folder / "manifest.json").read_text())[name]


@pytest.mark.slow
def test_numbers_are_those_of_one_process(tmp_path):
    attacks = {name: HERE[name] for name in ("norm", "completion")}
    here, there, links = both(tmp_path, attacks, parties=2)
    assert same(tmp_path)
    assert {leak["attack"] for leak in there["leaks"]} == {*attacks, "completion (own columns)", "probe"}
    assert here["leak_auc_two_sided"] == there["leak_auc_two_sided"]
    assert [link.calls.count("ask") for link in links.values()] == [2 * (2 + 1)] * 2  # a call a batch, and one at the end


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_each_attack(tmp_path, name):
    both(tmp_path, {name: HERE[name]})
    assert same(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFENSES)
def test_all_attacks_behind_defenses(tmp_path, name):
    both(tmp_path, HERE, parties=2 if name == "marvell" else 1, defenses=DEFENSES[name])
    assert same(tmp_path)


@pytest.mark.slow
def test_all_attacks_of_a_party_that_cheats(tmp_path):
    cheats = {"malicious_optimizer": MaliciousOptimizer(party="a")}
    both(tmp_path, SOME, parties=2, adversaries=cheats)
    assert same(tmp_path)
    assert figures(tmp_path / "here" / "honest") == figures(tmp_path / "apart" / "honest")
    assert figures(tmp_path / "here") != figures(tmp_path / "here" / "honest")


@pytest.mark.slow
def test_in_bfloat16(tmp_path):
    settings = Settings(epochs=1, batch_size=64, precision="bf16", audit=Audit(batches=2))
    both(tmp_path, SOME, settings=settings)
    assert same(tmp_path)


@pytest.mark.slow
def test_of_rounds_that_parties_are_behind_with(tmp_path):
    """Embeddings come one batch early. What a party knows of a round is what it has when it has learned from it."""
    both(tmp_path, {**SOME, "residual": HERE["residual"]}, parties=2, protocol=Split(staleness=1))
    assert same(tmp_path)


@pytest.mark.slow
def test_attacks_with_hints_count_batches_that_they_are_not_asked_about(tmp_path):
    """Some batches, and all of them, have fewer positives than these attacks need."""
    attacks = {"some": Hints(k=9), "none": Hints(k=60), "kmeans": Kmeans(map="hints")}
    both(tmp_path, attacks, dataset=Synthetic(rows=700, vocabulary=100, positive_ratio=0.07))
    assert same(tmp_path)
    assert "60 known positives" in noted(tmp_path / "apart", "unscored")["none"]
    assert noted(tmp_path / "here", "unscored") == noted(tmp_path / "apart", "unscored")


class Everything(Attack):
    """Answers about batches and epochs, about some rows, and with what it heard before; knows fewer rows than classes."""

    threat = Threat(knows={Embeddings, Gradients, OwnModel, Known}, known_rows=1, hints=2)
    attends = True

    def __init__(self):
        self.met = 0

    def batch(self, view):
        self.met += len(view.ids)
        some = torch.randperm(len(view.ids), generator=view.rng)[: len(view.ids) // 2]
        norms = {layer: g[some].norm(dim=1) + self.met for layer, g in view[Gradients].layers.items()}
        embedded = view[OwnModel].embed(view.ids[some])
        apart = {layer: h.sum(1) for layer, h in embedded.items()}
        wide = {layer: torch.stack([h, h], 1) for layer, h in apart.items()}
        return [Scores(view.ids[some], norms), Scores(view.ids[some], apart, Kind.EMBEDDING, wide)]

    def epoch(self, view):
        known = view[OwnModel].embed(view[Known].ids)
        rows = view[OwnModel].embed(view.ids)
        return Scores(view.ids.flip(0), {layer: (h @ known[layer].T).sum(1).flip(0) for layer, h in rows.items()})


@pytest.mark.slow
def test_an_attack_that_does_everything(tmp_path):
    both(tmp_path, {"everything": Everything()}, parties=2)
    assert same(tmp_path)
    assert any("everything (epoch)" in line for line in figures(tmp_path / "apart"))


class Fussy(Attack):
    """Can't do without the layer f2."""

    threat = Threat(knows={Gradients}, hints=1)

    def batch(self, view):
        return Scores(view.ids, {"f2": view[Gradients].layers["f2"].sum(1)})


class Broken(Attack):
    threat = Threat(knows={Gradients})

    def batch(self, view):
        raise ZeroDivisionError("no number")


@pytest.mark.slow
def test_an_attack_that_fails_is_named_with_its_party(tmp_path):
    both(tmp_path, {"fussy": Fussy()})
    reason = noted(tmp_path / "apart", "unscored")["fussy (own columns)"]
    assert reason == noted(tmp_path / "here", "unscored")["fussy (own columns)"]
    assert "can't read own columns" in reason
    whole = parts({"broken": Broken()})
    with pytest.raises(UserError, match=r"attack=broken: it fails at party a .ZeroDivisionError: no number"):
        run_in(tmp_path / "broken", **{**whole, "engine": separated(tmp_path / "broken", whole).engine})


@pytest.mark.slow
def test_attacks_that_would_need_two_processes_are_skipped(tmp_path):
    whole = parts({"norm": Norm(), **ELSEWHERE})
    summary = run_in(tmp_path, **{**whole, "engine": separated(tmp_path, whole).engine})
    assert set(noted(tmp_path, "skipped")) == set(ELSEWHERE)
    reason = noted(tmp_path, "skipped")["model_inversion"]
    assert reason.startswith("the process of the label party would have to hold the network of every other party")
    assert {leak["attack"] for leak in summary["leaks"]} == {"norm", "probe"}


def stopped(whole, folder, at):
    """A run that its first party leaves at that call, and that goes on in new processes."""
    far = separated(folder, whole)
    link = far.engine.links["a"]
    call, count = link.call, iter(range(10**6))

    def dying(method, content):
        if next(count) == at:
            raise UserError("it is gone", key="engine")
        return call(method, content)

    link.call = dying
    with pytest.raises(UserError, match="it is gone"):
        made(far, folder)
    return made(separated(folder, whole), folder)


def made(far, folder):
    recorder, checkpoint = Recorder(folder, "", {}, quiet=True), Checkpoint(folder, "keep")
    recorder.finish(run(far, recorder, checkpoint))
    return figures(folder)


@pytest.mark.slow
def test_attacks_go_on_from_checkpoints_of_their_parties(tmp_path):
    attacks = {**SOME, "everything": Everything(), "exploit": HERE["exploit"]}
    whole = parts(attacks, parties=2)
    run_in(tmp_path / "here", **whole)
    assert stopped(whole, tmp_path / "apart", at=50) == figures(tmp_path / "here")


@pytest.mark.slow
def test_what_is_not_measured_or_recorded_is_said(tmp_path):
    settings = Settings(epochs=1, batch_size=64, record="messages", audit=Audit(batches=2, dcor=True))
    whole = parts({"norm": Norm()}, settings=settings)
    far = separated(tmp_path, whole)
    recorder = Recorder(tmp_path, "", {})
    run(replace(far, settings=settings), recorder, Checkpoint(tmp_path, "none"))
    said = (tmp_path / "train.log").read_text()
    assert "audit.dcor=true: of a, only embeddings that cross are measured, as they arrive" in said
    assert "record=messages: of a, only what crosses is recorded here" in said
    rows = [line for line in figures(tmp_path) if "distance_correlation" in line]
    assert any(",f2," in line for line in rows)
    found = audit(tmp_path / "recording", {"norm": Norm(), "completion": HERE["completion"]})  # of others: no run.json
    assert {leak.layer for leak in found.findings[-1].leaks if leak.attack == "norm"} == {"f2"}
    assert {leak.attack for leak in found.findings[-1].leaks} >= {"norm", "completion"}


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_party_attacks_from_its_own_recording_and_the_label_party_grades_the_scores(tmp_path, staleness):
    """The leak AUC is that of a recording by one process, of which the labels were taken away before it was attacked."""
    settings = Settings(epochs=2, batch_size=64, record="messages", audit=Audit(batches=2))
    both(tmp_path, {}, parties=2, settings=settings, protocol=Split(staleness=staleness))
    attacks = {name: HERE[name] for name in ("direct", "spectral", "residual")}
    recorded = tmp_path / "here" / "recording"
    (recorded / "run.json").unlink()
    for path in (recorded / "messages").glob("*9999999.safetensors"):
        path.unlink()  # what networks make of rows at the end of an epoch; a party doesn't keep that
    own = tmp_path / "apart" / "parties" / "a" / "recording"
    assert not (own / "labels.parquet").exists()
    shares = RecordedMessages(recorded).manifest.class_shares
    found = {}
    for name, folder in (("own", own), ("whole", recorded)):
        write_scores(folder, attacks, tmp_path / name, shares=tuple(shares))
        rows = grade(tmp_path / name, recorded / "labels.parquet").rows()
        found[name] = [astuple(row) for row in rows if row.party == "a"]
    assert found["own"]
    assert found["own"] == found["whole"]
