"""An audit of recorded rounds has the numbers of the run that recorded them."""

import json
import math
import shutil
from dataclasses import asdict, replace

import pytest
import torch
from support.audited import scripted
from support.builders import every_attack, run_in

from vflbench import Auxiliary, Embeddings, Gradients, PartyFeatures, Predictions, Role, Scores, UserError
from vflbench.attacks.averaging import Averaging
from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction
from vflbench.attacks.direct import Direct
from vflbench.attacks.hints import Hints
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.remainder import Remainder
from vflbench.attacks.spectral import Spectral
from vflbench.data.synthetic import Bernoulli, Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.top_k import TopK
from vflbench.messages.recording_format import (
    Claims,
    LabelDpClaim,
    PartyLayers,
    RecordingManifest,
    RunHead,
    write_batch_file,
    write_manifest,
)
from vflbench.messages.recordings import RecordedMessages
from vflbench.messages.tables import read_labels, write_rows
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.results.recorder import write_metric_rows as write_metrics
from vflbench.run.offline import audit_recording
from vflbench.run.settings import Audit, Settings
from vflbench.run.summary import finding_rows


def attacks():
    return {
        "norm": Norm(),
        "spectral": Spectral(),
        "hints": Hints(k=2),
        "kmeans": Kmeans(message="gradients", map="hints"),
        "averaging": Averaging(rows=80),
        "no_message": NoMessage(k=2),
    }


def parts(record, **changes):
    settings = Settings(epochs=2, batch_size=50, record=record, audit=Audit(batches=3, canaries=40))
    return {
        "dataset": Synthetic(rows=500, vocabulary=100, parties=2),
        "defenses": {"marvell": Marvell()},
        "attacks": attacks(),
        "settings": settings,
        **changes,
    }


def leak_lines(folder, *, without=()):
    lines = (folder / "metrics.csv").read_text().splitlines()
    return [line for line in lines if ",leak_" in line and not any(f",{name}," in line for name in without)]


def audited_lines(path, result):
    with path.open("w", newline="") as file:
        write_metrics(file, [row for epoch, found in enumerate(result.findings) for row in finding_rows(epoch, found)])
    return path.read_text().splitlines()


ALL = sorted(name for name, attack in every_attack().items() if attack.threat.role is Role.NON_LABEL)
"""Attacks on a split network that need nothing but messages."""


@pytest.mark.slow
def test_every_attack_reads_the_same_from_disk_to_the_last_bit(tmp_path):
    """norm, cosine, hints, averaging, spectral, kmeans, remainder, exploit, completion and all others, and the probe."""

    def chosen():
        spectral = {
            f"spectral_{message}_{score}": Spectral(message=message, score=score)
            for message, score in (("embeddings", "abs"), ("gradients", "cluster"))
        }
        return every_attack(*ALL) | spectral

    run_in(
        tmp_path / "run",
        dataset=Synthetic(rows=900, vocabulary=80, parties=2),
        defenses={"label_dp": LabelDp(eps=1.0), "marvell": Marvell(), "top_k": TopK(), "quantize": Quantize()},
        attacks=chosen(),
        settings=Settings(epochs=2, batch_size=64, record="messages", audit=Audit(batches=3)),
    )
    result = audit_recording(tmp_path / "run" / "recording", chosen())
    assert result.skipped == {}
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]
    live = [line for line in lines if line.split(",")[5] and "seconds," not in line]
    assert audited_lines(tmp_path / "again.csv", result) == live
    scored = {line.split(",")[5] for line in live}
    assert {"probe", *ALL} <= scored | {"recurrence", "ungroup"}


@pytest.mark.slow
def test_recording_changes_no_number_and_audited_rounds_suffice_for_most_attacks(tmp_path):
    usual = {name: attack for name, attack in attacks().items() if name != "averaging"}
    for record in ("none", "audited", "messages"):
        run_in(tmp_path / record, **parts(record, attacks=usual))
    lines = {record: leak_lines(tmp_path / record) for record in ("none", "audited", "messages")}
    assert lines["none"] == lines["audited"] == lines["messages"]
    assert not (tmp_path / "none" / "recording").exists()
    result = audit_recording(tmp_path / "audited" / "recording", attacks(), batches=3)
    assert result.skipped == {
        "averaging": "it follows rows through every round, and this recording has the audited rounds only",
    }
    assert audited_lines(tmp_path / "again.csv", result) == leak_lines(tmp_path / "audited")
    for wanted, batches in ((1, 1), ("all", 9)):
        result = audit_recording(
            RecordedMessages(tmp_path / "messages" / "recording"), {"norm": Norm()}, batches=wanted, probe=False
        )
        assert {leak.batches for leak in result.findings[-1].leaks} == {batches}


@pytest.mark.slow
def test_a_run_that_audits_its_last_epoch_only_is_repeated_as_well(tmp_path):
    """`direct` and `remainder` keep what earlier batches told: an audit of the first epoch too would change them."""

    def chosen():
        return {"direct": Direct(), "remainder": Remainder(), "norm": Norm()}

    settings = Settings(epochs=2, batch_size=50, record="audited", audit=Audit(batches=3, epochs="last"))
    run_in(tmp_path / "run", attacks=chosen(), settings=settings)
    result = audit_recording(tmp_path / "run" / "recording", chosen())
    assert not result.findings[0].leaks
    assert audited_lines(tmp_path / "audit.csv", result) == leak_lines(tmp_path / "run")


@pytest.mark.slow
def test_federated_rounds_are_rebuilt_from_disk(tmp_path):
    settings = Settings(epochs="auto", record="messages", audit=Audit(batches=2))
    changes = {"dataset": Bernoulli(rows=5, features=6, batches=10), "protocol": FederatedLr(), "defenses": {}}
    attack = {"batch_reconstruction": BatchReconstruction()}
    run_in(tmp_path / "run", **parts("messages", settings=settings, **changes, attacks=attack))
    result = audit_recording(tmp_path / "run" / "recording", attack, batches=2)
    expected = [
        line for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines() if ",batch_reconstruction," in line
    ]
    timeless = [line for line in expected if "seconds" not in line]
    assert [line for line in audited_lines(tmp_path / "again.csv", result) if "seconds" not in line] == timeless != []
    (rebuilt,) = result.findings[-1].reconstructions
    assert rebuilt.figures["contained"].mean == 1


def test_what_is_no_recording_is_refused(tmp_path):
    with pytest.raises(UserError, match="recording="):
        audit_recording(tmp_path, {"norm": Norm()})


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Of a run with canaries, all of whose rounds are recorded."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    settings = Settings(epochs=2, batch_size=50, seed=3, record="messages", audit=Audit(batches=3, canaries=100))
    defenses = {"label_dp": LabelDp(eps=2.0)}
    run_in(folder, dataset=Synthetic(rows=500, vocabulary=100), defenses=defenses, attacks={}, settings=settings)
    assert int(read_labels(folder / "recording" / "labels.parquet", 2).canary.sum()) == 100
    return folder / "recording"


@pytest.fixture
def copied(recording, tmp_path):
    """A recording that a test may damage."""
    return shutil.copytree(recording, tmp_path / "recording")


@pytest.mark.slow
def test_what_a_recording_is_not_enough_for_is_skipped_with_the_missing_fact(recording):
    shapes, received = set(), set()

    def receive(view):
        received.add((view.party, view.visible, *view[Embeddings].layers, *view[Embeddings].received))

    label_party = {"role": Role.LABEL}
    chosen = {
        "inverter": scripted(Embeddings, Auxiliary, threat=label_party, batch=lambda _: None),
        "reader": scripted(PartyFeatures, Gradients, epoch=lambda v: Scores(v.ids, v[PartyFeatures].numeric[:, 0])),
        "cheat": scripted(Gradients, threat={"active": True}, batch=lambda _: None),
        "curious": scripted(Predictions, threat=label_party, batch=lambda v: shapes.add(v[Predictions].logits.shape)),
        "receiver": scripted(Embeddings, batch=receive),
        "norm": Norm(),
    }
    result = audit_recording(recording, chosen, batches=3)
    assert result.skipped == {
        "inverter": "auxiliary rows are not in this recording for the label party",
        "cheat": "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)",
    }
    assert shapes == {(50, 1)}
    assert received == {("a", True, "f1", "f2"), ("label", False, "h1")}  # none of another party
    assert {leak.attack for leak in result.findings[-1].leaks} == {"reader", "norm", "probe"}


@pytest.mark.slow
def test_a_party_that_cheated_makes_attacks_active(copied):
    seen = []
    cheat = scripted(Gradients, threat={"active": True}, batch=lambda view: seen.append(view.threat.active))
    (copied / "run.json").write_text(json.dumps(asdict(replace(RunHead.read(copied), cheating=["a"]))))
    assert audit_recording(copied, {"cheat": cheat}, batches=2).skipped == {}
    assert seen == [True] * 4


def write_noise(folder, batches, kinds, rng):
    """A recording of noise about 120 rows, every third of them positive. batches: ids. Returns ids and labels."""
    write_manifest(folder, RecordingManifest(2, {"a": PartyLayers({"cut": 4})}))
    for step, ids in enumerate(batches):
        tensors = {f"{kind}/cut": torch.randn(len(ids), 4, generator=rng) for kind in kinds}
        write_batch_file(folder, "a", ids, tensors, epoch=0, step=step)
    labels = {"id": torch.arange(120), "label": (torch.arange(120) % 3 == 0).long()}
    write_rows(folder / "labels.parquet", labels)
    return labels


def test_rows_that_come_again_in_an_epoch_are_scored_once_and_said(tmp_path):
    rng = torch.Generator().manual_seed(3)
    batches = [torch.randperm(120, generator=rng)[:40] for _ in range(12)]
    write_noise(tmp_path, batches, ("embedding", "gradient"), rng)
    result = audit_recording(tmp_path, every_attack("alignment", "mixture", "directions", "completion", "norm"), probe=False)
    assert {leak.attack for leak in result.findings[0].leaks} == {"alignment", "mixture", "directions", "completion", "norm"}
    (note,) = result.notes
    assert note.startswith("rows come up to 4.0 times in an epoch")


def test_a_threat_says_how_many_rows_were_known(tmp_path):
    rng = torch.Generator().manual_seed(4)
    labels = write_noise(tmp_path, torch.arange(120).split(40), ["embedding"], rng)
    write_rows(tmp_path / "known.parquet", {name: values[:30] for name, values in labels.items()})
    result = audit_recording(tmp_path, every_attack("completion"), probe=False)
    assert result.notes == ["known.parquet has 30 rows of the first epoch, and an attack would know 100"]
    assert audit_recording(tmp_path, every_attack("norm"), probe=False).notes == [
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
    write_manifest(tmp_path, RecordingManifest(2, {"a": PartyLayers({"cut": 2})}, labels=holder))
    ids, values = torch.arange(4), torch.eye(4)[:, :2]
    write_batch_file(tmp_path, "a", ids, {"gradient/cut": values, "embedding/cut": values}, epoch=0, step=0)
    write_rows(tmp_path / "labels.parquet", {"id": ids, "label": labels})
    result = audit_recording(tmp_path, every_attack("norm", "spectral"), probe=False)
    assert any(expected in note for note in result.notes), result.notes


EPOCHS, ROWS, BATCH = 3, 3000, 250


def audit_of_claim(folder, *, eps, fresh, claim):
    """Messages about labels that went through randomized response. Features tell labels, and embeddings are features."""
    rng = torch.Generator().manual_seed(7)
    x = torch.randn(ROWS, 3, generator=rng)
    y = (torch.rand(ROWS, generator=rng) < torch.sigmoid(2 * x[:, 0] - 1)).long()
    keep = 1 / (1 + math.exp(-eps))
    write_manifest(folder, RecordingManifest(2, {"a": PartyLayers({"cut": 3})}, claims=claim))
    released = None
    direction = torch.tensor([1.0, -0.5, 0.3])
    for epoch in range(EPOCHS):
        if released is None or fresh:
            released = torch.where(torch.rand(ROWS, generator=rng) < keep, y, 1 - y)
        for step, ids in enumerate(torch.randperm(ROWS, generator=rng).split(BATCH)):
            residual = torch.sigmoid(x[ids, 0])[:, None] - released[ids, None]
            tensors = {"embedding/cut": x[ids], "gradient/cut": residual * direction}
            write_batch_file(folder, "a", ids, tensors, epoch=epoch, step=step)
    write_rows(folder / "labels.parquet", {"id": torch.arange(ROWS), "label": y})
    return audit_recording(folder, {"norm": Norm()}, probe=False).observed


def promise(eps, *, fresh=False):
    return Claims(LabelDpClaim(eps, fresh))


@pytest.mark.slow
def test_flips_drawn_again_in_each_epoch_are_found_and_a_kept_promise_is_not(tmp_path):
    kept = audit_of_claim(tmp_path / "kept", eps=1.0, fresh=False, claim=promise(1.0))
    assert (kept.outcome, kept.claimed) == ("nothing", 1.0)
    assert 0 < kept.eps_low <= 1
    assert "This proves nothing." in kept.verdict
    again = audit_of_claim(tmp_path / "again", eps=1.0, fresh=True, claim=promise(1.0))
    assert again.outcome == "against"
    assert 1.3 < again.eps_low <= 3
    assert again.attack == "direct on every batch at a cut"  # the audit's own attack knows nothing of the sign
    honest = audit_of_claim(tmp_path / "honest", eps=1.0, fresh=True, claim=promise(1.0, fresh=True))
    assert (honest.outcome, honest.claimed) == ("nothing", 3.0)


def test_without_a_claim_nothing_is_checked(tmp_path):
    assert audit_of_claim(tmp_path, eps=1.0, fresh=False, claim=Claims()) is None
