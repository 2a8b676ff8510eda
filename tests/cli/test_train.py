"""`vflbench train` from outside: what a run leaves, and what becomes of it when the same command comes again."""

import csv
import json
import shutil

import pytest
import yaml
from support.warm_command import SMALL, command

import vflbench
from vflbench.results.folder import alone_in, finished_folders


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run with everything: several parties, the wide part, a defense, two attacks, a spare epoch of log lines."""
    cwd = tmp_path_factory.mktemp("user")
    result = command(
        *("train", *SMALL, "attack=[norm,spectral]", "defense=max_norm", "model.wide=true", "dataset.parties=2"),
        *("log_every=10", "batch_size=64", "seed=3"),
        cwd=cwd,
    )
    assert result.returncode == 0, result.stderr
    return result, *finished_folders(cwd)


def test_a_run_prints_a_sentence_and_six_lines_and_on_stderr_how_far_it_has_come(finished):
    result, folder = finished
    assert all(line.endswith((" so far", " left")) for line in result.stderr.splitlines())  # of a slow machine
    sentence, lines = result.stdout.split("\n\n")
    assert sentence.startswith("The model learned nothing (test AUC 0.")  # 2,000 rows are few
    assert "With max_norm: " in sentence
    names = [line.split()[0] for line in lines.splitlines() if not line.startswith(" ")]
    assert names == ["attack", "try", "model", "details", "next"]
    assert f"next     vflbench report outputs/{folder.name} --open\n" in result.stdout
    table = (folder / "table.txt").read_text()
    assert table.startswith("The model learned nothing (test AUC 0.")
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if folder.name not in line)


def test_a_run_leaves_a_folder_that_can_be_read_without_vflbench(finished):
    _, folder = finished
    assert folder.name.startswith("synthetic_max_norm_norm+spectral_seed3_")
    names = {file.name for file in folder.iterdir() if file.name != ".lock"}
    assert max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns).name == "summary.json"
    assert names == {
        *("config.yaml", "manifest.json", "metrics.csv", "summary.json", "train.log", "table.txt"),
    }
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["defense"] == {"max_norm": {"_target_": "vflbench.defenses.max_norm.MaxNorm"}}
    assert (config["seed"], config["model"]["wide"]) == (3, True)
    assert "${" not in (folder / "config.yaml").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["vflbench"] == vflbench.__version__
    assert manifest["seed"] == 3
    assert manifest["device"] == "cpu" or manifest["device"].startswith("cuda")
    assert len(manifest["data"]["fingerprint"]) == 64
    assert manifest["overrides"][-1] == "seed=3"
    assert manifest["end"] >= manifest["start"]
    assert manifest["versions"]["torch"]
    assert manifest["threads"] == manifest["machine"]["threads"] == 1
    summary = json.loads((folder / "summary.json").read_text())
    assert 0.4 < summary["test_auc"] < 1
    assert 0.4 < summary["train_auc"] < 1
    assert set(summary["leak_auc"]["norm"]["gradient"]) == {"f1", "f2", "wide"}
    assert set(summary["leak_auc"]["spectral"]["embedding"]) == {"f1", "f2", "wide", "h1", "h2", "h3"}


def test_metrics_hold_everything_that_was_promised(finished):
    _, folder = finished
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    have = {(r["split"], r["metric"]) for r in rows if r["epoch"] == "1"}
    assert have >= {("train", "loss"), ("train", "auc"), ("test", "auc"), ("test", "log_loss")}
    assert have >= {("train", "leak_auc"), ("train", "leak_auc_two_sided"), ("train", "bytes_sent"), ("train", "seconds")}
    spent = {f"{r['split']}/{r['attack']}".strip("/") for r in rows if r["metric"] == "cpu_seconds"}
    assert spent == {"train", "train_prediction", "test_prediction", "audit", "audit/norm", "audit/spectral"}
    assert json.loads((folder / "summary.json").read_text())["cpu_seconds"].keys() == spent
    for row in rows:
        if row["metric"].startswith("leak") and row["metric"] != "leak_auc_surest":  # few batches have it
            assert float(row["ci_low"]) <= float(row["value"]) <= float(row["ci_high"])
            assert row["visible"] in ("true", "false")


def test_the_log_has_a_line_every_so_many_steps(finished):
    _, folder = finished
    lines = (folder / "train.log").read_text().splitlines()
    steps = [line for line in lines if line.startswith("epoch 0 step ")]
    assert [line.split(" loss: ")[0] for line in steps] == [f"epoch 0 step {k}/28" for k in (0, 10, 20)]
    assert all(len(line.split(" loss: ")[1].split(".")[1]) == 4 for line in steps)


@pytest.mark.slow
def test_the_written_config_runs_again_to_the_same_numbers(finished, tmp_path):
    _, folder = finished
    result = command("train", f"--config-dir={folder}", "--config-name=config", "hydra.run.dir=again", cwd=tmp_path)
    assert result.returncode == 0, result.stderr

    def timeless(file):
        return [line for line in file.read_text().splitlines() if "seconds," not in line]

    assert timeless(tmp_path / "again" / "metrics.csv") == timeless(folder / "metrics.csv")
    assert {file.name for file in (tmp_path / "again").iterdir()} == {file.name for file in folder.iterdir()}


def test_the_folder_is_the_same_for_a_config_of_ones_own(finished):
    _, folder = finished
    result = command("train", f"--config-dir={folder}", "--config-name=config", cwd=folder.parent.parent)
    assert result.returncode == 0, result.stderr
    assert f"(overwrite=true would): outputs/{folder.name}\n" in result.stdout


@pytest.mark.slow
def test_a_finished_run_is_shown_and_not_computed_again_unless_asked_to(finished, tmp_path):
    result, folder = finished
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    same = ("train", f"--config-dir={copy}", "--config-name=config", "hydra.run.dir=run")
    shown = command(*same, "log_every=7", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("finished before, so not computed again (overwrite=true would)")
    again, first = (text.partition("\ndetails ")[0] for text in (shown.stdout, result.stdout))
    assert again.partition("\n")[2] == first  # but for the folder
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    other = command("train", *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert other.returncode == 1
    assert 'holds a run of another configuration (batch_size: 64 -> "auto"' in other.stderr
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    mistaken = command(*same, "overwrite=true", "epochs=0", cwd=tmp_path)
    assert mistaken.returncode == 1
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    replaced = command("train", *SMALL, "overwrite=true", "epochs=1", "hydra.run.dir=run", cwd=tmp_path)
    assert replaced.returncode == 0, replaced.stderr
    assert json.loads((copy / "summary.json").read_text())["epochs"] == 1
    assert yaml.safe_load((copy / "config.yaml").read_text())["overwrite"] is False


def test_two_at_once_in_one_folder_are_one_too_many(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with alone_in(folder):
        second = command("train", *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert second.returncode == 1
    assert "hydra.run.dir=" in second.stderr
    assert "another process is at work in this folder" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    assert finished_folders(tmp_path) == []
