"""What an audit of recorded rounds reproduces of a run with canaries, and what a recording is not enough for."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch
from builders import every_attack, run_in

from vflbench.attacks.averaging import Averaging
from vflbench.attacks.base import Attack, RebuiltRows, Scores
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, Predictions
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.recording_format import Manifest, PartyLayers, RunHead, write_batch_file, write_manifest
from vflbench.messages.tables import read_labels, write_rows
from vflbench.messages.threat import Seat, Threat
from vflbench.results.schema import Leak
from vflbench.run.offline import audit, grade, write_scores
from vflbench.run.settings import Audit, Settings


def attacks():
    return {
        "cosine": Cosine(k=2),
        "spectral": Spectral(message="gradients", score="cluster"),
        "by_ratios": Kmeans(),
        "averaging_norm": Averaging(base="norm", rows=60),
        "averaging_hints": Averaging(base="hints", k=2, rows=60),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder and the summary of a run with canaries, all of whose rounds are recorded."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    summary = run_in(
        folder,
        dataset=Synthetic(rows=500, vocabulary=100),
        defenses={"label_dp": LabelDp(eps=2.0)},
        attacks=attacks(),
        settings=Settings(epochs=2, batch_size=50, seed=3, record="messages", audit=Audit(batches=3, canaries=100)),
    )
    return folder / "recording", summary


@pytest.fixture
def copied(run, tmp_path):
    """A recording that a test may damage."""
    return shutil.copytree(run[0], tmp_path / "recording")


def recorded(result) -> str:
    """The leaks of an audit's last epoch, as a summary has them."""
    return str([Leak.model_validate(asdict(leak)).written() for leak in result.findings[-1].leaks])


@pytest.mark.slow
def test_audits_of_rounds_with_canaries_have_the_numbers_of_the_run(run):
    """Leak AUCs, their intervals, guesses about canaries and figures of classes, all equal."""
    folder, summary = run
    result = audit(folder, attacks())  # the seed and the audited batches are those of the recorded run
    assert (result.skipped, result.unscored) == ({}, {})
    assert recorded(result) == str(summary["leaks"])
    references = {f"{name} (own columns)" for name in ("cosine", "averaging_hints")}
    assert {leak.attack for leak in result.findings[-1].leaks} == {*attacks(), *references, "probe"}
    assert all(leak.guesses.total for leak in result.findings[-1].leaks if leak.visible and leak.attack != "probe")
    assert int(read_labels(folder / "labels.parquet", 2).canary.sum()) == 100


@pytest.mark.slow
def test_another_seed_and_other_batches_are_another_audit(run):
    folder, summary = run
    lines = [
        recorded(audit(folder, attacks(), **options))
        for options in ({"seed": 3, "batches": 3}, {"seed": 4, "batches": 3}, {"seed": 3, "batches": 2})
    ]
    assert lines[0] == str(summary["leaks"])
    assert len(set(lines)) == 3


@pytest.mark.slow
def test_what_a_recording_is_not_enough_for_is_skipped_with_the_missing_fact(run):
    class Inverter(Attack):
        threat = Threat(Seat.LABEL, {Embeddings, Auxiliary})

        def batch(self, view):
            return RebuiltRows(view.ids, "f1", view[Auxiliary].columns)

    class Reader(Attack):
        threat = Threat(knows={OwnColumns, Gradients})

        def epoch(self, view):
            return Scores(view.ids, view[OwnColumns].numeric[:, 0])

    class Cheat(Attack):
        threat = Threat(knows={Gradients}, active=True)

        def batch(self, view):
            return None

    class Curious(Attack):
        threat = Threat(Seat.LABEL, {Predictions})
        seen = []

        def batch(self, view):
            self.seen.append(view[Predictions].logits.shape)

    chosen = {"inverter": Inverter(), "reader": Reader(), "cheat": Cheat(), "curious": Curious(), "norm": Norm()}
    result = audit(run[0], chosen, batches=3)
    assert result.skipped == {
        "inverter": "auxiliary rows are not in this recording for the label party",
        "cheat": "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)",
    }
    assert set(Curious.seen) == {(50, 1)}
    assert {leak.attack for leak in result.findings[-1].leaks} == {"reader", "norm", "probe"}


@pytest.mark.slow
def test_a_party_that_cheated_makes_attacks_active(copied):
    class Cheat(Attack):
        threat = Threat(knows={Gradients}, active=True)
        seen = []

        def batch(self, view):
            self.seen.append(view.threat.active)

    (copied / "run.json").write_text(json.dumps(asdict(replace(RunHead.read(copied), cheating=["a"]))))
    assert audit(copied, {"cheat": Cheat()}, batches=2).skipped == {}
    assert Cheat.seen == [True] * 4


def test_rows_that_come_again_in_an_epoch_are_scored_once_and_said(tmp_path):
    rng = torch.Generator().manual_seed(3)
    write_manifest(tmp_path, Manifest(2, {"a": PartyLayers({"cut": 4})}))
    for step in range(12):
        ids = torch.randperm(120, generator=rng)[:40]
        tensors = {f"{kind}/cut": torch.randn(40, 4, generator=rng) for kind in ("embedding", "gradient")}
        write_batch_file(tmp_path, "a", ids, tensors, epoch=0, step=step)
    write_rows(tmp_path / "labels.parquet", {"id": torch.arange(120), "label": torch.arange(120) % 3 == 0})
    result = audit(tmp_path, every_attack("alignment", "mixture", "directions", "completion", "norm"), probe=False)
    assert {leak.attack for leak in result.findings[0].leaks} == {"alignment", "mixture", "directions", "completion", "norm"}
    (note,) = result.notes
    assert note.startswith("rows come up to 4.1 times in an epoch")


def test_a_threat_says_how_many_rows_were_known(tmp_path):
    rng = torch.Generator().manual_seed(4)
    write_manifest(tmp_path, Manifest(2, {"a": PartyLayers({"cut": 4})}))
    for step, ids in enumerate(torch.arange(120).split(40)):
        write_batch_file(tmp_path, "a", ids, {"embedding/cut": torch.randn(40, 4, generator=rng)}, epoch=0, step=step)
    labels = {"id": torch.arange(120), "label": (torch.arange(120) % 3 == 0).long()}
    write_rows(tmp_path / "labels.parquet", labels)
    write_rows(tmp_path / "known.parquet", {name: values[:30] for name, values in labels.items()})
    result = audit(tmp_path, every_attack("completion"), probe=False)
    assert result.notes == ["known.parquet has 30 rows of the first epoch, and an attack would know 100"]
    assert audit(tmp_path, every_attack("norm"), probe=False).notes == [
        "no attack has read the embeddings, so nothing is said of what they give away"
    ]
    assert result.threats["completion"].known_rows == 30
    assert "the labels of 30 rows" in result.threats["completion"].text


@pytest.mark.parametrize(
    ("holder", "labels", "expected"),
    [
        ("a", [0, 1, 0, 1], "all messages are of party a, which holds the labels"),
        ("b", [1, 1, 1, 1], "of one class, so that no"),
    ],
)
def test_why_nothing_can_be_scored_is_said(tmp_path, holder, labels, expected):
    write_manifest(tmp_path, Manifest(2, {"a": PartyLayers({"cut": 2})}, labels=holder))
    ids, values = torch.arange(4), torch.eye(4)[:, :2]
    write_batch_file(tmp_path, "a", ids, {"gradient/cut": values, "embedding/cut": values}, epoch=0, step=0)
    write_rows(tmp_path / "labels.parquet", {"id": ids, "label": labels})
    result = audit(tmp_path, every_attack("norm", "spectral"), probe=False)
    assert any(expected in note for note in result.notes), result.notes


def test_a_row_of_huge_values_costs_only_the_attacks_that_make_no_finite_score_of_it(tmp_path):
    rng = torch.Generator().manual_seed(3)
    write_manifest(tmp_path, Manifest(2, {"a": PartyLayers({"cut": 4})}, class_shares=[2 / 3, 1 / 3]))
    labels = torch.arange(400) % 3 == 0
    for step, ids in enumerate(torch.arange(400).split(50)):
        h, g = torch.randn(50, 4, generator=rng), torch.randn(50, 4, generator=rng) + labels[ids, None].float()
        if step == 3:
            h[9] = g[7] = torch.tensor([3e38, -3e38, 3e38, 1.0])
        write_batch_file(tmp_path, "a", ids, {"embedding/cut": h, "gradient/cut": g}, epoch=0, step=step)
    write_rows(tmp_path / "labels.parquet", {"id": torch.arange(400), "label": labels})
    result = audit(tmp_path, every_attack("norm", "spectral", "directions"), probe=False)
    assert set(result.unscored) == {"spectral", "directions"}
    assert all("must be finite numbers" in reason for reason in result.unscored.values())
    alone = audit(tmp_path, every_attack("norm"), probe=False)
    assert str(result.findings) == str(alone.findings)
    (tmp_path / "labels.parquet").rename(tmp_path / "mine.parquet")
    head = write_scores(tmp_path, every_attack("norm", "spectral"), tmp_path / "scores")
    assert (head.attacks, list(head.skipped)) == (["norm"], ["spectral"])
    assert str(grade(tmp_path / "scores", tmp_path / "mine.parquet").findings[0].leaks) == str(alone.findings[0].leaks)
