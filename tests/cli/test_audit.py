"""`vflbench audit` from outside: the numbers of the recorded run, thresholds and exit codes, and what is refused."""

import json
import re
import shutil

import pytest
from support.warm_command import SMALL, command

from vflbench.cli.command_line import audit_command
from vflbench.errors import UserError
from vflbench.results.table import load

RUN = ("train", *SMALL, "record=messages", "batch_size=64", "epochs=2", "seed=3", "hydra.run.dir=live", "audit.probe=false")
NAMED = "attack=[norm,spectral,cosine]"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run that recorded its messages, and an audit of these."""
    place = tmp_path_factory.mktemp("audits")
    for arguments in ((*RUN, NAMED), ("audit", "live/recording", NAMED, "--out", "audited")):
        result = command(*arguments, cwd=place)
        assert result.returncode == 0, result.stderr
        (place / f"{arguments[0]}.txt").write_text(result.stdout)
    return place


def leak_lines(folder):
    return [line for line in (folder / "metrics.csv").read_text().splitlines() if ",leak_" in line]


def test_an_audit_has_the_numbers_of_the_run_that_recorded_the_messages(place):
    assert len(leak_lines(place / "live")) > 50
    assert leak_lines(place / "audited") == leak_lines(place / "live")
    live, audited = (json.loads((place / name / "summary.json").read_text()) for name in ("live", "audited"))
    same = ("leaks", "leak_auc", "leak_auc_two_sided", "test_auc", "train_auc", "verdict", "epochs")
    same += ("test_auc_low", "test_auc_high", "test_positives", "test_negatives")
    assert {key: audited[key] for key in same} == {key: live[key] for key in same}


def test_the_first_sentences_are_those_of_the_run(place):
    texts = [(place / name).read_text().partition("\n\n")[0] for name in ("audit.txt", "train.txt")]
    first, of_run = (" ".join(text.split()) for text in texts)
    assert first == of_run
    assert re.search(r"(Gradients|Embeddings) at .* give [\d.]+ % of label pairs away \(AUC [\d.]+; a coin 0.50\); ", first)
    assert first.startswith("The model learned nothing (test AUC 0.")
    assert first.lower() in (place / "audited" / "report" / "report.html").read_text().lower()


def test_the_folder_is_that_of_a_run(place):
    names = {file.name for file in (place / "audited").iterdir() if file.name != ".lock"}
    assert names == {"config.yaml", "manifest.json", "metrics.csv", "summary.json", "train.log", "report", "table.txt"}
    manifest = json.loads((place / "audited" / "manifest.json").read_text())
    recording = str(place / "live" / "recording")
    assert (manifest["kind"], manifest["seed"], manifest["source"]["path"]) == ("audit", 3, recording)
    assert set(manifest["threats"]) >= {"norm", "spectral", "cosine"}
    assert set(load(place)["defense"].to_pylist()) == {"none", "as recorded"}


GATES = [
    (["leak_auc_worst=0.6", "leak_ami=0.1"], 2, ["FAIL: leak_auc_worst", "NOT JUDGED: --fail-above leak_ami=0.1"]),
    pytest.param(["leak_auc_two_sided=1"], 0, ["PASS: leak_auc_two_sided is "], marks=pytest.mark.slow),
    pytest.param(["leak_auc_worst=1", "leak_ami=0.1"], 3, ["PASS: ", "NOT JUDGED"], marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("gates", "code", "words"), GATES)
def test_a_threshold_decides_the_exit_code_of_an_audit_that_was_finished_before(place, gates, code, words):
    flags = [word for gate in gates for word in ("--fail-above", gate)]
    result = command("audit", "live/recording", NAMED, "--out", "audited", *flags, cwd=place)
    assert result.returncode == code, result.stderr
    assert "finished before, so not computed again" in result.stdout
    places = [result.stdout.index(f"\n{word}") for word in words]
    assert places == sorted(places)


@pytest.mark.slow
def test_a_recording_that_changed_is_audited_again(place, tmp_path):
    shutil.copytree(place / "live" / "recording", tmp_path / "recorded")
    arguments = ("audit", "recorded", "attack=norm", "--out", "out")
    assert command(*arguments, cwd=tmp_path).returncode == 0
    manifest = tmp_path / "recorded" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"test_auc": 0.', '"test_auc": 0.0'))
    again = command(*arguments, cwd=tmp_path)
    assert "the recording has changed since it was audited here, so it was audited again" in again.stdout
    assert "test AUC 0.0" in " ".join(again.stdout.split())
    other = command("audit", "recorded", "attack=cosine", "--out", "out", cwd=tmp_path)
    assert other.returncode == 1
    assert "holds a run of another configuration" in other.stderr


@pytest.mark.slow
def test_without_a_choice_every_attack_that_the_recording_allows_is_tried(place):
    result = command("audit", "live/recording", "audit.batches=2", "audit.epochs=last", cwd=place)
    assert result.returncode == 0, result.stderr
    (folder,) = place.glob("outputs/audit_recording_every_*")
    summary = json.loads((folder / "summary.json").read_text())
    lines = command("list", "attack", cwd=place).stdout.splitlines()
    listed = {line.split()[0] for line in lines if re.match(r"  \S", line)}
    scored = {leak["attack"].split(" (")[0] for leak in summary["leaks"]} - {"probe"}
    assert scored | {*summary["skipped"]} | {*summary["unscored"]} == listed - {"none", "strongest"}
    reason = "Not run: model_inversion: peer models are not in this recording for the label party."
    assert reason in (folder / "table.txt").read_text()
    count = len(summary["skipped"] | summary["unscored"])
    assert f"not run  {count} attacks (table.txt says why): attribute, " in result.stdout


def test_a_description_attacks_nothing(place, tmp_path):
    recording = shutil.copytree(place / "live" / "recording", tmp_path / "recorded")
    for expected in (("1,800 with labels", "a (non-label party)", "attacks that can't", "gradient"), ["no labels are here"]):
        result = command("audit", "recorded", "--describe", cwd=tmp_path)
        assert result.returncode == 0
        assert [words for words in expected if words not in result.stdout] == []
        (recording / "labels.parquet").unlink(missing_ok=True)
    assert [path.name for path in tmp_path.iterdir()] == ["recorded"]


@pytest.mark.slow
def test_all_attacks_can_be_required(place):
    arguments = ("audit", "live/recording", "attack=[norm,model_inversion]", "--require-all", "--out", "required")
    result = command(*arguments, cwd=place)
    assert result.returncode == 1
    assert "not every attack could be run and scored: model_inversion (peer models" in result.stderr
    assert command(*arguments, "--fail-above", "leak_auc=0.5", cwd=place).returncode == 2  # a leak is worse news


@pytest.mark.slow
def test_a_recording_that_breaks_leaves_no_result(place, tmp_path):
    shutil.copytree(place / "live" / "recording", tmp_path / "recorded")
    arguments = ("audit", "recorded", "attack=norm", "--out", "out", "--fail-above", "leak_auc=1")
    assert command(*arguments, cwd=tmp_path).returncode == 0
    victim = sorted((tmp_path / "recorded" / "messages").glob("*.safetensors"))[3]
    victim.write_bytes(victim.read_bytes()[:200])
    result = command(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "PASS" not in result.stdout


MISTAKES = [
    ("nowhere", "vflbench audit nowhere: there is no such folder"),
    ("live", "vflbench audit live: it is the folder of a run; what it recorded is in live/recording"),
    ("live/recording epochs=3", "epochs: there is no such option"),
    ("live/recording attack=spectrl", "attack=spectrl: there is no such choice; did you mean spectral?"),
    ("live/recording attack.cosine.z=3", "attack.cosine.z: there is no such option here; attack=cosine has these options"),
    ("live/recording recording=x", "recording: it is given as RECORDING"),
    ("live/recording --fail-above leak=0.5", "did you mean leak_auc"),
    ("live/recording --fail-above leak_auc=nan", "the threshold must be a number from 0 to 1"),
    ("live/recording --require-all", "--require-all: it needs the attacks"),
    ("live/recording --labels nowhere", "--labels=nowhere: there is no such file"),
    ("live/recording --out live/recording/x", "--out=live/recording/x: results must not lie in the recording"),
]


@pytest.mark.slow
def test_a_mistake_ends_in_one_paragraph_and_writes_nothing(place):
    before = sorted(place.rglob("*"))
    for typed, said in MISTAKES:
        result = command("audit", *typed.split(), cwd=place)
        assert (result.returncode, result.stdout) == (1, ""), typed
        (line,) = result.stderr.strip().splitlines()
        assert said in line
    assert sorted(place.rglob("*")) == before


def test_the_folder_of_a_run_that_recorded_nothing_is_called_so(tmp_path):
    (tmp_path / "metrics.csv").touch()
    with pytest.raises(UserError, match="a run without recorded messages; the same command with record=messages"):
        audit_command([str(tmp_path)])


@pytest.mark.slow
def test_scores_move_in_place_of_labels_and_messages(place, tmp_path):
    no_labels = shutil.ignore_patterns("labels.parquet", "run.json")
    owner = shutil.copytree(place / "live" / "recording", tmp_path / "owner", ignore=no_labels)
    refused = command("audit", "owner", cwd=tmp_path)
    assert (refused.returncode, "--scores-only DIR attacks without any" in refused.stderr) == (1, True)
    scored = command("audit", "owner", NAMED, "--scores-only", "out", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert "attacks that scored" in scored.stdout
    assert "cosine: it is given the labels of some rows of each batch" in " ".join(scored.stdout.split())
    labels = str(place / "live" / "recording" / "labels.parquet")
    graded = command("grade", "out", labels, "--fail-above", "leak_auc_worst=0.55", "--out", "graded", cwd=tmp_path)
    assert graded.returncode == 2, graded.stderr
    assert re.match(r"(Gradients|Embeddings) at ", graded.stdout)
    shutil.copy(labels, owner)
    options = ("attack=[norm,spectral]", "audit.probe=false", "--out", "audited")
    assert command("audit", "owner", *options, cwd=tmp_path).returncode == 0
    assert leak_lines(tmp_path / "graded") == leak_lines(tmp_path / "audited") != []
    for wrong, words in (("owner", "vflbench grade owner: there is no scores.json"), ("out", "there is no such file")):
        result = command("grade", wrong, labels if wrong == "owner" else "none", cwd=tmp_path)
        assert (result.returncode, words in result.stderr) == (1, True), result.stderr
