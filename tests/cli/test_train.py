"""`vflbench train` from outside: what a run leaves, and what becomes of it when the same command comes again."""

import csv
import json
import re
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
    assert (folder / "table.txt").read_text().startswith("The model learned nothing (test AUC 0.")
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if folder.name not in line)


def test_a_run_leaves_a_folder_that_can_be_read_without_vflbench(finished):
    _, folder = finished
    assert folder.name.startswith("synthetic_max_norm_norm+spectral_seed3_")
    names = {file.name for file in folder.iterdir() if file.name != ".lock"}
    assert max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns).name == "summary.json"
    assert names == {"config.yaml", "manifest.json", "metrics.csv", "summary.json", "train.log", "table.txt"}
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["defense"] == {"max_norm": {"_target_": "vflbench.defenses.max_norm.MaxNorm"}}
    assert "${" not in (folder / "config.yaml").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["vflbench"], manifest["seed"], config["seed"]) == (vflbench.__version__, 3, 3)
    assert manifest["device"] == "cpu" or manifest["device"].startswith("cuda")
    assert manifest["overrides"][-1] == "seed=3"
    assert manifest["end"] >= manifest["start"]
    assert manifest["threads"] == manifest["machine"]["threads"] == 1
    summary = json.loads((folder / "summary.json").read_text())
    assert all(0.4 < summary[name] < 1 for name in ("test_auc", "train_auc"))
    assert set(summary["leak_auc"]["norm"]["gradient"]) == {"f1", "f2", "wide"}
    assert set(summary["leak_auc"]["spectral"]["embedding"]) == {"f1", "f2", "wide", "h1", "h2", "h3"}


def test_metrics_hold_everything_that_was_promised(finished):
    _, folder = finished
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    have = {f"{r['split']} {r['metric']}" for r in rows if r["epoch"] == "1"}
    assert have >= {"train loss", "train auc", "test auc", "test log_loss", "train leak_auc", "train leak_auc_two_sided"}
    assert have >= {"train bytes_sent", "train seconds"}
    spent = {f"{r['split']}/{r['attack']}".strip("/") for r in rows if r["metric"] == "cpu_seconds"}
    assert spent == {"train", "train_prediction", "test_prediction", "audit", "audit/norm", "audit/spectral"}
    assert json.loads((folder / "summary.json").read_text())["cpu_seconds"].keys() == spent
    for row in rows:
        if row["metric"].startswith("leak") and row["metric"] != "leak_auc_surest":  # few batches have it
            assert float(row["ci_low"]) <= float(row["value"]) <= float(row["ci_high"])
            assert row["visible"] in ("true", "false")


def test_the_log_has_a_line_every_so_many_steps(finished):
    _, folder = finished
    steps = re.findall(r"^epoch 0 step (\S+) .*loss: \d+\.\d{4}$", (folder / "train.log").read_text(), re.MULTILINE)
    assert steps == ["0/28", "10/28", "20/28"]


@pytest.mark.slow
def test_the_written_config_runs_again_to_the_same_numbers(finished, tmp_path):
    _, folder = finished
    result = command("train", f"--config-dir={folder}", "--config-name=config", "hydra.run.dir=again", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    again, first = ((place / "metrics.csv").read_text().splitlines() for place in (tmp_path / "again", folder))
    assert [line for line in again if "seconds," not in line] == [line for line in first if "seconds," not in line]
    assert {file.name for file in (tmp_path / "again").iterdir()} == {file.name for file in folder.iterdir()}


def test_the_folder_is_the_same_for_a_config_of_ones_own(finished):
    _, folder = finished
    result = command("train", f"--config-dir={folder}", "--config-name=config", cwd=folder.parent.parent)
    assert f"(overwrite=true would): outputs/{folder.name}\n" in result.stdout, result.stderr


@pytest.mark.slow
def test_a_finished_run_is_shown_and_not_computed_again_unless_asked_to(finished, tmp_path):
    """Options that change no result may differ, but must be right."""
    result, folder = finished
    copy = shutil.copytree(folder, tmp_path / "run")
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    same = ("train", f"--config-dir={copy}", "--config-name=config", "hydra.run.dir=run")
    shown = command(*same, "log_every=7", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("finished before, so not computed again (overwrite=true would)")
    again, first = (text.partition("\ndetails ")[0] for text in (shown.stdout, result.stdout))
    assert again.partition("\n")[2] == first  # but for the folder
    for words, said in {
        (*same, "log_every=0"): "log_every=0",
        (*same, "checkpoint=never"): "checkpoint=never",
        (*same, "logger.csv=3"): "logger.csv",
        (*same, "overwrite=true", "epochs=0"): "epochs=0",
        ("train", *SMALL, "hydra.run.dir=run"): 'holds a run of another configuration (batch_size: 64 -> "auto"',
    }.items():
        refused = command(*words, cwd=tmp_path)
        assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    replaced = command("train", *SMALL, "overwrite=true", "epochs=1", "hydra.run.dir=run", cwd=tmp_path)
    assert replaced.returncode == 0, replaced.stderr
    assert json.loads((copy / "summary.json").read_text())["epochs"] == 1
    assert yaml.safe_load((copy / "config.yaml").read_text())["overwrite"] is False


def test_two_at_once_in_one_folder_are_one_too_many(tmp_path):
    (tmp_path / "run").mkdir()
    with alone_in(tmp_path / "run"):
        second = command("train", *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert second.returncode == 1
    assert re.match("hydra.run.dir=.*: another process is at work in this folder", second.stderr)
    assert finished_folders(tmp_path) == []
