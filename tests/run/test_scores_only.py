"""Scored where the messages are and graded where the labels are, an audit has the numbers of one in one place."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from support.builders import every_attack, run_in

from vflbench.cli.audit import scores_only
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.errors import UserError
from vflbench.run.offline import AuditOptions, audit_recording, grade_scored, write_scores
from vflbench.run.settings import Audit, Settings

FEW = ("norm", "spectral", "cosine")
OTHERS = ("direct", "kmeans", "averaging", "directions", "completion", "residual", "no_message", "model_inversion", "esa")
"""On one message, on all, on embeddings, with known rows and own columns; and some that can't run here."""
SKIPPED = {"averaging", "cosine", "no_message", "model_inversion", "esa"}
"""Three need labels of a batch."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """As another program would write it: without run.json. Some labels are coins."""
    folder = tmp_path_factory.mktemp("recorded")
    settings = Settings(epochs=2, batch_size=32, record="messages", audit=Audit(batches=4, canaries=20))
    dataset, defenses = Synthetic(rows=240, vocabulary=80, parties=2), {"label_dp": LabelDp(eps=3.0)}
    run_in(folder, dataset=dataset, defenses=defenses, attacks={}, settings=settings)
    (folder / "recording" / "run.json").unlink()
    for path in (folder / "recording" / "messages").glob("*9999999.safetensors"):
        path.unlink()  # what networks make of rows at the end of an epoch
    return folder / "recording"


def without_labels(recording, folder):
    return shutil.copytree(recording, folder, ignore=shutil.ignore_patterns("labels.parquet", "private"))


@pytest.mark.parametrize("names", [FEW, pytest.param(FEW + OTHERS, marks=pytest.mark.slow)], ids=["few", "of each kind"])
def test_two_halves_are_one_audit(recording, tmp_path, names):
    """Attacks on messages, with known rows and own columns, that answer about batches, epochs or rows that they follow."""
    owner = without_labels(recording, tmp_path / "owner")
    head = write_scores(owner, every_attack(*names), tmp_path / "scores")
    assert set(head.skipped) == SKIPPED & set(names)
    assert "labels of some rows of each batch" in head.skipped["cosine"]
    graded = grade_scored(tmp_path / "scores", recording / "labels.parquet")
    whole = audit_recording(recording, every_attack(*set(names) - SKIPPED), probe=False)
    assert str(graded.rows()) == str([row for row in whole.rows() if "(own columns)" not in row.attack])  # where nan is nan
    of_messages = [leak for leak in whole.findings[-1].leaks if "(own columns)" not in leak.attack]
    assert [leak.guesses for leak in graded.findings[-1].leaks] == [leak.guesses for leak in of_messages]
    assert {"norm", "spectral"} <= {leak.attack for leak in of_messages}
    assert (graded.layers, graded.cut_layers, whole.skipped) == (whole.layers, whole.cut_layers, {})
    for name in {*names} - SKIPPED:
        assert graded.threats[name] == whole.threats[name], name


@pytest.mark.slow
def test_only_ids_and_scores_leave_the_owner(recording, tmp_path):
    attacks = every_attack("norm", "directions", "completion")
    write_scores(without_labels(recording, tmp_path / "owner"), attacks, tmp_path / "scores")
    assert sorted(path.name for path in (tmp_path / "scores").iterdir()) == ["scores.json", "scores.parquet"]
    table = pq.read_table(tmp_path / "scores" / "scores.parquet")
    assert set(table.column("attack").unique().to_pylist()) == {"norm", "directions", "completion"}
    for name in ("scores", "candidates", "difference"):  # of values, embeddings could be made again
        values = table.column(name).combine_chunks().flatten().to_numpy()
        assert (values == values.round()).all()
        assert not len(values) or values.max() < 1000
    with pytest.raises(UserError, match="holds scores already"):
        write_scores(recording, every_attack("norm"), tmp_path / "scores")


WITHOUT_SHARES = {
    "direct": "1 more with the class shares: give --class-shares S0,S1, and another folder",
    "averaging": "attacks that scored 214 rows (1): norm",
}


@pytest.mark.parametrize("name", WITHOUT_SHARES)
def test_that_class_shares_are_missing_is_said_first(recording, tmp_path, name):
    owner = without_labels(recording, tmp_path / "owner")
    manifest = json.loads((owner / "manifest.json").read_text()) | {"class_shares": None}
    (owner / "manifest.json").write_text(json.dumps(manifest))
    printed = scores_only(owner, every_attack("norm", name), AuditOptions(), tmp_path / "scores")
    assert " ".join(printed.split()).startswith(WITHOUT_SHARES[name])


def test_wrong_class_shares_are_named_once(recording, tmp_path):
    for shares, problem in (
        ("0.8,0.3", "they must add up to 1"),
        ("0.2", "there are 1, for 2 classes"),
        ("a,b", "it must be a number for each class, as 0.9,0.1"),
    ):
        with pytest.raises(UserError, match=f"^--class-shares={shares}: {problem}$"):
            scores_only(recording, every_attack("norm"), AuditOptions(), tmp_path / "scores", shares)


def test_no_attack_without_labels_is_an_error_and_leaves_nothing(recording, tmp_path):
    with pytest.raises(UserError, match="no attack can run on this recording without labels"):
        write_scores(recording, every_attack("cosine"), tmp_path / "scores")
    assert not (tmp_path / "scores").exists()


@pytest.fixture
def scores(recording, tmp_path):
    """The folder with scores of `norm`."""
    write_scores(recording, every_attack("norm"), tmp_path / "scores")
    return tmp_path / "scores"


def test_a_changed_head_is_refused(recording, scores):
    head = json.loads((scores / "scores.json").read_text())
    for changes, problem in (
        ({"epochs": 1}, "which scores.json doesn't know"),
        ({"model": {"test_auc": 1e300}}, "Input should be less than or equal to 1"),
        ({"attacks": ["other"]}, "attack 'other' must be there"),
    ):
        (scores / "scores.json").write_text(json.dumps(head | changes))
        with pytest.raises(UserError, match=problem):
            grade_scored(scores, recording / "labels.parquet")


def test_damaged_scores_and_missing_labels_are_refused(recording, scores, tmp_path):
    labels = pq.read_table(recording / "labels.parquet")
    pq.write_table(labels.slice(0, 100), tmp_path / "few.parquet")
    for name, problem in (("few", "there is no label of"), ("none", "there is no such file")):
        with pytest.raises(UserError, match=problem):
            grade_scored(scores, tmp_path / f"{name}.parquet")
    path = scores / "scores.parquet"
    for damaged in (path.read_bytes()[:1000], (tmp_path / "few.parquet").read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="can't be read"):
            grade_scored(scores, recording / "labels.parquet")


@pytest.mark.parametrize("content", ["id,label\n1,0\n", ""])
def test_labels_in_another_format_are_refused_with_the_one_that_is_read(recording, scores, tmp_path, content):
    labels, problem = tmp_path / "all.csv", r"=\S+all.csv: .*; it must be a Parquet file with the columns id and label$"
    labels.write_text(content)
    with pytest.raises(UserError, match=f"^LABELS{problem}"):
        grade_scored(scores, labels)
    with pytest.raises(UserError, match=f"^--labels{problem}"):
        audit_recording(recording, every_attack("norm"), labels=labels)
