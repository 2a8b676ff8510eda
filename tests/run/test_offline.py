"""A recording as a run writes it; an audit of recorded rounds has the numbers of the run that recorded them."""

import errno
import io
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from support.audited import scripted
from support.builders import every_attack, run_in

from vflbench import Auxiliary, Embeddings, Gradients, PartyFeatures, Predictions, Role, Scores, UserError
from vflbench.attacks.averaging import Averaging
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.spectral import Spectral
from vflbench.data.synthetic import Bernoulli, Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.top_k import TopK
from vflbench.messages import recording_format as files
from vflbench.messages.recordings import RecordedMessages
from vflbench.messages.tables import LabelTable, write_rows
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.results.recorder import write_metric_rows
from vflbench.run import recording as run_recording
from vflbench.run.offline import audit_recording
from vflbench.run.settings import Audit, Settings


def recorded(folder, attacks, record="messages", audit=None, **changes):
    """The summary of a run on 450 rows whose rounds are recorded."""
    settings = {"epochs": 2, "batch_size": 50, "seed": 3, **changes.pop("settings", {})}
    settings = Settings(**settings, record=record, audit=audit or Audit(batches=3, canaries=40))
    parts = {"dataset": Synthetic(rows=500, vocabulary=100, parties=2), "defenses": {"marvell": Marvell()}, **changes}
    return run_in(folder, attacks=attacks, settings=settings, **parts)


def of_attacks(lines):
    return [line for line in lines if line.split(",")[5] and "seconds" not in line]


def live(folder):
    """The lines of a run about its attacks, times aside."""
    return of_attacks((folder / "metrics.csv").read_text().splitlines()[1:])


def again(folder, attacks, **options):
    """An audit of what a run recorded, and its lines."""
    result, file = audit_recording(folder / "recording", attacks, **options), io.StringIO(newline="")
    write_metric_rows(file, result.rows())
    return result, of_attacks(file.getvalue().splitlines())


ALL = sorted(name for name, attack in every_attack().items() if attack.threat.role is Role.NON_LABEL)
"""Attacks on a split network that need nothing but messages."""


@pytest.mark.slow
def test_every_attack_reads_the_same_from_disk_to_the_last_bit(tmp_path):
    def chosen():
        spectral = {"of_embeddings": Spectral(message="embeddings"), "cut": Spectral(message="gradients", score="cluster")}
        return every_attack(*ALL) | spectral

    defenses = {"label_dp": LabelDp(eps=1.0), "marvell": Marvell(), "top_k": TopK(), "quantize": Quantize()}
    recorded(tmp_path, chosen(), dataset=Synthetic(rows=900, vocabulary=80, parties=2), defenses=defenses)
    result, lines = again(tmp_path, chosen())
    assert result.skipped == {}
    assert lines == live(tmp_path)
    assert {"probe", *ALL} <= {line.split(",")[5] for line in lines} | {"recurrence", "ungroup"}


@pytest.mark.slow
def test_recording_changes_no_number_and_audited_rounds_suffice_for_most_attacks(tmp_path):
    usual = every_attack("norm", "hints", "no_message") | {"kmeans": Kmeans(message="gradients", map="hints")}
    for record in ("none", "audited", "messages"):
        recorded(tmp_path / record, usual, record)
    assert live(tmp_path / "none") == live(tmp_path / "audited") == live(tmp_path / "messages")
    assert not (tmp_path / "none" / "recording").exists()
    result, lines = again(tmp_path / "audited", usual | {"averaging": Averaging(rows=80)})
    why = "it follows rows through every round, and this recording has the audited rounds only"
    assert result.skipped == {"averaging": why}
    assert lines == live(tmp_path / "audited")
    messages = RecordedMessages(tmp_path / "messages" / "recording")
    for wanted, batches in ((1, 1), ("all", 9)):
        result = audit_recording(messages, every_attack("norm"), batches=wanted, probe=False)
        assert {leak.batches for leak in result.findings[-1].leaks} == {batches}


@pytest.mark.slow
def test_a_run_that_audits_its_last_epoch_only_is_repeated_as_well(tmp_path):
    """`direct` and `remainder` keep what earlier batches told: an audit of the first epoch too would change them."""
    attacks = every_attack("direct", "remainder", "norm")
    recorded(tmp_path, attacks, "audited", Audit(batches=3, epochs="last"))
    result, lines = again(tmp_path, attacks)
    assert not result.findings[0].leaks
    assert lines == live(tmp_path)


@pytest.mark.slow
def test_federated_rounds_are_rebuilt_from_disk(tmp_path):
    attacks = every_attack("batch_reconstruction")
    changes = {"dataset": Bernoulli(rows=5, features=6, batches=10), "protocol": FederatedLr(), "defenses": {}}
    recorded(tmp_path, attacks, audit=Audit(batches=2), settings={"epochs": "auto", "batch_size": "auto"}, **changes)
    result, lines = again(tmp_path, attacks)
    assert lines == live(tmp_path) != []
    (rebuilt,) = result.findings[-1].reconstructions
    assert rebuilt.figures["contained"].mean == 1


def test_a_recording_of_many_rows_knows_its_seed_its_audited_rounds_and_its_canaries(tmp_path, monkeypatch):
    monkeypatch.setattr(run_recording, "BUFFER_ROWS", 100)  # as where there are too many rows to keep
    attacks = every_attack("norm") | {"averaging": Averaging(base="norm", rows=50)}
    audit = Audit(batches=4, canaries=300, probe=False)
    recorded(tmp_path, attacks, "audited", audit, settings={"epochs": 1}, defenses={})
    messages = tmp_path / "recording" / "messages"
    assert len(list(messages.glob("a-*"))) == 4 + 1  # and what the network makes of rows at the end
    assert again(tmp_path, every_attack("norm"))[1] == [line for line in live(tmp_path) if ",norm," in line]
    for path in messages.glob("*-00000000.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match="of epoch 0 are missing, the first at step 0"):
        again(tmp_path, every_attack("norm"))


@pytest.mark.parametrize("name", ["write_batch_file", "write_rows", "write_manifest"])
def test_a_full_disk_is_one_line(tmp_path, monkeypatch, name):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_recording if name == "write_rows" else run_recording.files, name, full)
    with pytest.raises(UserError, match=r"^record=messages: messages can't be recorded: No space left on device$"):
        recorded(tmp_path, {}, settings={"epochs": 1})


def test_rows_have_one_fingerprint_in_any_order():
    ids, labels, coin = np.array([7, 2, 5]), np.array([0, 1, 1]), np.zeros(3, dtype=bool)
    tables = (
        LabelTable(ids, labels, coin),
        LabelTable(ids[[2, 1, 0]], labels[[2, 1, 0]], coin),
        LabelTable(ids, 1 - labels, coin),
    )
    first, turned, other = (run_recording.RecordedRows(table, 2).fingerprint for table in tables)
    assert first == turned != other


@pytest.mark.slow
def test_what_a_recording_is_not_enough_for_is_skipped_with_the_missing_fact(tmp_path):
    recorded(tmp_path, {}, dataset=Synthetic(rows=500, vocabulary=100), defenses={"label_dp": LabelDp(eps=2.0)})
    shapes, received, active = set(), set(), []

    def receive(view):
        received.add((view.party, view.visible, *view[Embeddings].layers, *view[Embeddings].received))

    label_party = {"role": Role.LABEL}
    cheat = scripted(Gradients, threat={"active": True}, batch=lambda view: active.append(view.threat.active))
    attacks = {
        "inverter": scripted(Embeddings, Auxiliary, threat=label_party, batch=lambda _: None),
        "reader": scripted(PartyFeatures, Gradients, epoch=lambda v: Scores(v.ids, v[PartyFeatures].numeric[:, 0])),
        "cheat": cheat,
        "curious": scripted(Predictions, threat=label_party, batch=lambda v: shapes.add(v[Predictions].logits.shape)),
        "receiver": scripted(Embeddings, batch=receive),
        **every_attack("norm"),
    }
    result, _ = again(tmp_path, attacks)
    assert result.skipped == {
        "inverter": "auxiliary rows are not in this recording for the label party",
        "cheat": "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)",
    }
    assert shapes == {(50, 1)}
    assert received == {("a", True, "f1", "f2"), ("label", False, "h1")}  # none of another party
    assert {leak.attack for leak in result.findings[-1].leaks} == {"reader", "norm", "probe"}
    head = replace(files.RunHead.read(tmp_path / "recording"), cheating=["a"])
    (tmp_path / "recording" / "run.json").write_text(json.dumps(asdict(head)))
    assert again(tmp_path, {"cheat": cheat})[0].skipped == {}
    assert active == [True] * 6


def write_noise(folder, batches, kinds, rng):
    """A recording of noise about 120 rows, every third of them positive. batches: ids. Returns ids and labels."""
    files.write_manifest(folder, files.RecordingManifest(2, {"a": files.PartyLayers({"cut": 4})}))
    for step, ids in enumerate(batches):
        tensors = {f"{kind}/cut": torch.randn(len(ids), 4, generator=rng) for kind in kinds}
        files.write_batch_file(folder, "a", ids, tensors, epoch=0, step=step)
    labels = {"id": torch.arange(120), "label": (torch.arange(120) % 3 == 0).long()}
    write_rows(folder / "labels.parquet", labels)
    return labels


def test_rows_that_come_again_in_an_epoch_are_scored_once_and_said(tmp_path, rng):
    batches = [torch.randperm(120, generator=rng)[:40] for _ in range(12)]
    write_noise(tmp_path, batches, ("embedding", "gradient"), rng)
    attacks = every_attack("alignment", "mixture", "directions", "completion", "norm")
    result = audit_recording(tmp_path, attacks, probe=False)
    assert {leak.attack for leak in result.findings[0].leaks} == {*attacks}
    (note,) = result.notes
    assert note.startswith("rows come up to 4.0 times in an epoch")
    assert result.observed is None  # as nothing is claimed


def test_a_threat_says_how_many_rows_were_known(tmp_path, rng):
    labels = write_noise(tmp_path, torch.arange(120).split(40), ["embedding"], rng)
    write_rows(tmp_path / "known.parquet", {name: values[:30] for name, values in labels.items()})
    result = audit_recording(tmp_path, every_attack("completion"), probe=False)
    assert result.notes == ["known.parquet has 30 rows of the first epoch, and an attack would know 100"]
    assert audit_recording(tmp_path, every_attack("norm"), probe=False).notes == [
        "no attack has read the embeddings, so nothing is said of what they give away"
    ]
    assert result.threats["completion"].known_rows == 30
    assert "the labels of 30 rows" in result.threats["completion"].text


ALL_OF_HOLDER, ONE_CLASS = "all messages are of party a, which holds the labels", "of one class, so that no"


@pytest.mark.parametrize(
    ("holder", "labels", "expected"), [("a", [0, 1, 0, 1], ALL_OF_HOLDER), ("b", [1, 1, 1, 1], ONE_CLASS)]
)
def test_why_nothing_can_be_scored_is_said(tmp_path, holder, labels, expected):
    files.write_manifest(tmp_path, files.RecordingManifest(2, {"a": files.PartyLayers({"cut": 2})}, labels=holder))
    ids, values = torch.arange(4), torch.eye(4)[:, :2]
    files.write_batch_file(tmp_path, "a", ids, {"gradient/cut": values, "embedding/cut": values}, epoch=0, step=0)
    write_rows(tmp_path / "labels.parquet", {"id": ids, "label": labels})
    result = audit_recording(tmp_path, every_attack("norm", "spectral"), probe=False)
    assert any(expected in note for note in result.notes), result.notes


def audit_of_claim(folder, *, fresh, claimed_fresh=False):
    """What is said of a promise of eps = 1 from messages about labels that went through randomized response with this eps.
    Features tell labels, and embeddings are features.
    """
    rng, n = torch.Generator().manual_seed(7), 3000
    x = torch.randn(n, 3, generator=rng)
    y = (torch.rand(n, generator=rng) < torch.sigmoid(2 * x[:, 0] - 1)).long()
    claims = files.Claims(files.LabelDpClaim(1.0, claimed_fresh))
    files.write_manifest(folder, files.RecordingManifest(2, {"a": files.PartyLayers({"cut": 3})}, claims=claims))
    for epoch in range(3):
        if fresh or epoch == 0:
            released = torch.where(torch.rand(n, generator=rng) < 1 / (1 + math.exp(-1)), y, 1 - y)
        for step, ids in enumerate(torch.randperm(n, generator=rng).split(250)):
            residual = torch.sigmoid(x[ids, 0])[:, None] - released[ids, None]
            tensors = {"embedding/cut": x[ids], "gradient/cut": residual * torch.tensor([1.0, -0.5, 0.3])}
            files.write_batch_file(folder, "a", ids, tensors, epoch=epoch, step=step)
    write_rows(folder / "labels.parquet", {"id": torch.arange(n), "label": y})
    return audit_recording(folder, every_attack("norm"), probe=False).observed


@pytest.mark.slow
def test_flips_drawn_again_in_each_epoch_are_found_and_a_kept_promise_is_not(tmp_path):
    kept = audit_of_claim(tmp_path / "kept", fresh=False)
    assert (kept.outcome, kept.claimed) == ("nothing", 1.0)
    assert 0 < kept.eps_low <= 1
    assert "This proves nothing." in kept.verdict
    anew = audit_of_claim(tmp_path / "anew", fresh=True)
    assert anew.outcome == "against"
    assert 1.3 < anew.eps_low <= 3
    assert anew.attack == "direct on every batch at a cut"  # the audit's own attack knows nothing of the sign
    honest = audit_of_claim(tmp_path / "honest", fresh=True, claimed_fresh=True)
    assert (honest.outcome, honest.claimed) == ("nothing", 3.0)
