"""An audit of recorded rounds has the numbers of the run that recorded them."""

import pytest
import torch
from builders import every_attack, run_in

from vflbench.attacks.averaging import Averaging
from vflbench.attacks.base import Attack, Scores
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
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, Gradients, Known, OwnModel
from vflbench.messages.recordings import RecordedMessages
from vflbench.messages.threat import Seat, Threat
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.results.recorder import write_rows
from vflbench.run.offline import AuditResult, audit, audit_summary
from vflbench.run.settings import Audit, Settings
from vflbench.run.summary import finding_rows


def test_a_recorded_figure_of_the_model_replaces_no_other_part_of_the_summary():
    model = dict.fromkeys(("epochs", "failed", "seconds", "leak_auc", "verdict"), 0.5) | {
        "test_auc": 0.7,
        "calibration": 0.9,
    }
    empty = {"skipped": {}, "threats": {}, "layers": {}, "cut_layers": {}, "findings": [], "unscored": {}}
    made = audit_summary(AuditResult(**empty, listed=0, fingerprint="", model=model), 2.0, {"audit": [2.0, 1.5]})
    assert (made.epochs, made.failed, made.seconds, made.test_auc, made.calibration) == (0, None, 2.0, 0.7, 0.9)
    assert made.cpu_seconds == {"audit": 1.5}


class Likeness(Attack):
    """Scores rows by their likeness to the known positives among them."""

    threat = Threat(knows={Gradients}, known_rows=40)

    def batch(self, view):
        known, g = view[Known], view[Gradients].layers["f2"]
        is_known = torch.isin(view.ids, known.ids[known.labels == 1])
        return Scores(view.ids, g @ g[is_known].sum(0))


class Queries(Attack):
    """Asks its own network."""

    threat = Threat(knows={OwnModel}, known_rows=20)

    def epoch(self, view):
        return Scores(view.ids, view[OwnModel].embed(view.ids)["f2"].sum(1))


def attacks():
    return {
        "norm": Norm(),
        "spectral": Spectral(),
        "hints": Hints(k=2),
        "kmeans": Kmeans(message="gradients", map="hints"),
        "averaging": Averaging(rows=80),
        "no_message": NoMessage(k=2),
        "likeness": Likeness(),
        "queries": Queries(),
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
        write_rows(file, [row for epoch, found in enumerate(result.findings) for row in finding_rows(epoch, found)])
    return path.read_text().splitlines()


@pytest.mark.slow
def test_recorded_messages_give_the_numbers_of_the_run(tmp_path):
    run_in(tmp_path / "run", **parts("messages"))
    result = audit(tmp_path / "run" / "recording", attacks(), batches=3)
    assert result.skipped == {}
    references = {f"{name} (own columns)" for name in ("hints", "kmeans", "averaging", "likeness", "queries")}
    assert set(result.unscored) == {
        "likeness (own columns)",
        "queries (own columns)",
    }  # they read f2
    references -= set(result.unscored)
    expected = leak_lines(tmp_path / "run")
    assert audited_lines(tmp_path / "again.csv", result) == expected
    assert {line.split(",")[5] for line in expected} == {*attacks(), *references, "probe"}


ALL = sorted(name for name, attack in every_attack().items() if attack.threat.seat is Seat.NON_LABEL)
"""Attacks on a split network that need nothing but messages."""
DEFENSES = {
    "none": dict,
    "marvell": lambda: {"marvell": Marvell()},
    "label_dp": lambda: {"label_dp": LabelDp(eps=1.0)},
    "top_k, quantize": lambda: {"top_k": TopK(), "quantize": Quantize()},
}


QUICK = (2, "none", ("norm", "cosine", "averaging", "completion", "kmeans", "remainder"))
EVERY = [pytest.param(k, name, ALL, marks=pytest.mark.slow) for name, k in zip(DEFENSES, (1, 2, 1, 1), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "defense", "names"), [QUICK, *EVERY])
def test_every_attack_reads_the_same_from_disk_to_the_last_bit(tmp_path, parties, defense, names):
    """norm, cosine, hints, averaging, spectral, kmeans, remainder, exploit, completion and all others, and the probe."""

    def chosen():
        spectral = {
            f"spectral_{message}_{score}": Spectral(message=message, score=score)
            for message in ("embeddings", "gradients")
            for score in ("signed", "abs", "cluster")
        }
        return every_attack(*names) | spectral

    run_in(
        tmp_path / "run",
        dataset=Synthetic(rows=900, vocabulary=80, parties=parties),
        defenses=DEFENSES[defense](),
        attacks=chosen(),
        settings=Settings(epochs=2, batch_size=64, record="messages", audit=Audit(batches=3)),
    )
    result = audit(tmp_path / "run" / "recording", chosen())
    assert result.skipped == {}
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]
    live = [line for line in lines if line.split(",")[5] and "seconds," not in line]
    assert audited_lines(tmp_path / "again.csv", result) == live
    scored = {line.split(",")[5] for line in live}
    assert {"probe", *names} <= scored | {"recurrence", "ungroup"}


@pytest.mark.slow
def test_recording_changes_no_number_and_audited_rounds_suffice_for_most_attacks(tmp_path):
    usual = {name: attack for name, attack in attacks().items() if name != "averaging"}
    for record in ("none", "audited", "messages"):
        run_in(tmp_path / record, **parts(record, attacks=usual))
    lines = {record: leak_lines(tmp_path / record) for record in ("none", "audited", "messages")}
    assert lines["none"] == lines["audited"] == lines["messages"]
    assert not (tmp_path / "none" / "recording").exists()
    result = audit(tmp_path / "audited" / "recording", attacks(), batches=3)
    assert result.skipped == {
        "averaging": "it follows rows through every round, and this recording has the audited rounds only",
    }
    assert audited_lines(tmp_path / "again.csv", result) == leak_lines(tmp_path / "audited")
    for wanted, batches in ((1, 1), ("all", 9)):
        result = audit(RecordedMessages(tmp_path / "messages" / "recording"), {"norm": Norm()}, batches=wanted, probe=False)
        assert {leak.batches for leak in result.findings[-1].leaks} == {batches}


@pytest.mark.slow
@pytest.mark.parametrize("record", ["messages", "audited"])
def test_a_run_that_audits_its_last_epoch_only_is_repeated_as_well(tmp_path, record):
    """`direct` and `remainder` keep what earlier batches told: an audit of the first epoch too would change them."""

    def chosen():
        return {"direct": Direct(), "remainder": Remainder(), "norm": Norm()}

    settings = Settings(epochs=2, batch_size=50, record=record, audit=Audit(batches=3, epochs="last"))
    run_in(tmp_path / "run", attacks=chosen(), settings=settings)
    result = audit(tmp_path / "run" / "recording", chosen())
    assert not result.findings[0].leaks
    assert audited_lines(tmp_path / "audit.csv", result) == leak_lines(tmp_path / "run")


@pytest.mark.slow
def test_a_recording_goes_on_with_its_run(tmp_path):
    def settings(epochs):
        return Settings(epochs=epochs, batch_size=50, checkpoint="keep", record="messages", audit=Audit(batches=3))

    for folder, epochs in (("whole", 3), ("parts", 1), ("parts", 3)):
        run_in(tmp_path / folder, **parts("messages", settings=settings(epochs), attacks={}))
    some = {"norm": Norm(), "averaging": Averaging(rows=80)}
    whole, resumed = (audit(tmp_path / name / "recording", some).findings for name in ("whole", "parts"))
    assert str(whole) == str(resumed)
    assert len(resumed) == 3


@pytest.mark.slow
def test_federated_rounds_are_rebuilt_from_disk(tmp_path):
    settings = Settings(epochs="auto", record="messages", audit=Audit(batches=2))
    changes = {"dataset": Bernoulli(rows=5, features=6, batches=10), "protocol": FederatedLr(), "defenses": {}}
    attack = {"batch_reconstruction": BatchReconstruction()}
    run_in(tmp_path / "run", **parts("messages", settings=settings, **changes, attacks=attack))
    result = audit(tmp_path / "run" / "recording", attack, batches=2)
    expected = [
        line for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines() if ",batch_reconstruction," in line
    ]
    timeless = [line for line in expected if "seconds" not in line]
    assert [line for line in audited_lines(tmp_path / "again.csv", result) if "seconds" not in line] == timeless != []
    (rebuilt,) = result.findings[-1].reconstructions
    assert rebuilt.figures["contained"].mean == 1


def test_what_is_no_recording_is_refused(tmp_path):
    with pytest.raises(UserError, match="recording="):
        audit(tmp_path, {"norm": Norm()})


@pytest.mark.slow
def test_a_recording_holds_no_fact_of_another_seat(tmp_path):
    class Receiver(Attack):
        threat = Threat(knows={Embeddings})
        seen = []

        def batch(self, view):
            self.seen.append((view.party, view.visible, tuple(view[Embeddings].layers), tuple(view[Embeddings].received)))

    run_in(tmp_path / "run", **parts("audited", attacks={}))
    audit(tmp_path / "run" / "recording", {"receiver": Receiver()}, batches=3)
    assert set(Receiver.seen) == {
        ("a", True, ("f1", "f2"), ()),
        ("b", True, ("f1", "f2"), ()),
        ("label", False, ("h1",), ()),
    }
