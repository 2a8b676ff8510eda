"""The command line from outside, as a user meets it."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_command
import yaml

import vflbench

SMALL = ["dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=3"]
OPEN = {k: v for k, v in os.environ.items() if k not in ("HYDRA_FULL_ERROR", "VFLBENCH_TRACEBACK")}


def vflbench_command(*arguments, cwd, **environment):
    if set(environment) <= warm_command.UNCHANGED:
        return warm_command.run(arguments, cwd, {**OPEN, **environment})
    command = [sys.executable, "-m", "vflbench", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, env={**OPEN, **environment}
    )


def run_folders(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.rglob("summary.json"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run with everything: several parties, the wide part, a defense, two attacks, a spare epoch of log lines."""
    cwd = tmp_path_factory.mktemp("user")
    result = vflbench_command(
        *("train", *SMALL, "attack=[norm,spectral]", "defense=max_norm", "model.wide=true", "dataset.parties=2"),
        *("log_every=10", "batch_size=64", "seed=3"),
        cwd=cwd,
    )
    assert result.returncode == 0, result.stderr
    return result, *run_folders(cwd)


def test_a_run_prints_a_table_and_nothing_on_stderr(finished):
    result, folder = finished
    assert result.stderr == ""  # no progress bar: this is no terminal
    assert result.stdout.startswith("after epoch 1: test AUC 0.")
    assert f"results: {folder}" in result.stdout


def test_a_run_leaves_a_folder_that_can_be_read_without_vflbench(finished):
    _, folder = finished
    names = {file.name for file in folder.iterdir() if file.name != ".lock"}
    assert max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns).name == "summary.json"
    assert names == {
        *("config.yaml", "manifest.json", "metrics.csv", "summary.json", "train.log"),
        *("auc_per_epoch.png", "leak_per_layer.png"),
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
    for row in rows:
        if row["metric"].startswith("leak"):
            assert float(row["ci_low"]) <= float(row["value"]) <= float(row["ci_high"])
            assert row["visible"] in ("true", "false")


def test_the_log_has_a_line_every_so_many_steps(finished):
    _, folder = finished
    lines = (folder / "train.log").read_text().splitlines()
    steps = [line for line in lines if line.startswith("epoch 0 step ")]
    assert [line.split(" loss: ")[0] for line in steps] == [f"epoch 0 step {k}/28" for k in (0, 10, 20)]
    assert all(len(line.split(" loss: ")[1].split(".")[1]) == 4 for line in steps)


def test_the_written_config_runs_again_to_the_same_numbers(finished, tmp_path):
    _, folder = finished
    result = vflbench_command("train", f"--config-dir={folder}", "--config-name=config", "hydra.run.dir=again", cwd=tmp_path)
    assert result.returncode == 0, result.stderr

    def timeless(file):
        return [line for line in file.read_text().splitlines() if ",seconds," not in line]

    assert timeless(tmp_path / "again" / "metrics.csv") == timeless(folder / "metrics.csv")
    assert {file.name for file in (tmp_path / "again").iterdir()} == {file.name for file in folder.iterdir()}


def test_a_sweep_goes_on_after_a_failure_and_says_so(tmp_path):
    result = vflbench_command("train", "-m", *SMALL, "attack=norm", "epochs=1", "batch_size=0,64", "seed=0,1", cwd=tmp_path)
    assert result.returncode == 1
    assert [json.loads((f / "manifest.json").read_text())["seed"] for f in run_folders(tmp_path)] == [0, 1]
    assert result.stderr.count("batch_size=0: it must be greater than or equal to 1") == 2
    assert "Traceback" not in result.stderr
    errors = sorted(tmp_path.rglob("error.txt"))
    assert len(errors) == 2
    for error in errors:
        message, _, traceback = error.read_text().partition("\n\n")
        assert message.startswith("batch_size=0: it must be greater than or equal to 1")
        assert traceback.startswith("Traceback")
        assert f"  {message}\n  {error.parent}\n" in result.stdout
    table = [line.split()[:2] for line in result.stdout.splitlines()]
    for counted in (["4", "runs"], ["done", "2"], ["skipped", "0"], ["failed", "2"]):
        assert counted in table


def test_a_failure_is_tried_again_and_error_txt_goes_when_it_succeeds(tmp_path):
    sweep = ("train", "-m", "dataset=csv", "dataset.path=my.csv", "dataset.label=y", "model=mlp", "epochs=1", "attack=norm")
    failed = vflbench_command(*sweep, cwd=tmp_path)
    assert failed.returncode == 1
    (error,) = tmp_path.rglob("error.txt")
    assert error.read_text().startswith("dataset.path=my.csv: there is no such file")
    (tmp_path / "my.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(300)))
    again = vflbench_command(*sweep, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {file.name for file in error.parent.iterdir()} >= {"summary.json", "metrics.csv"}
    assert not error.exists()


def test_two_sweeps_on_one_folder_share_the_work(tmp_path):
    command = [
        sys.executable,
        "-m",
        "vflbench",
        "train",
        "-m",
        *SMALL,
        "epochs=8",
        "batch_size=32",
        "attack=norm",
        "seed=0,1",
    ]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=OPEN) for _ in range(2)]
    told = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert len(run_folders(tmp_path)) == 2
    counts = [
        {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if line.startswith("  ")} for text in told
    ]
    assert sum(count["done"] for count in counts) == 2  # each run by one of them
    assert sum(count["skipped"] for count in counts) == 2
    for folder in run_folders(tmp_path):
        assert "resumed" not in json.loads((folder / "manifest.json").read_text())
        assert (folder / "train.log").read_text().count("training and") == 1


def test_an_attack_of_the_users_own_is_one_yaml_and_one_class(tmp_path):
    folder = tmp_path / "mine"
    (folder / "attack").mkdir(parents=True)
    (folder / "attack" / "loud.yaml").write_text("loud:\n  _target_: loud.Loud\n  power: 2\n")
    (folder / "loud.py").write_text(
        '''from vflbench.attacks.base import Attack
from vflbench.messages.transcript import Knowledge
from vflbench.messages.wire import Kind


class Loud(Attack):
    """The largest coordinate of each gradient."""

    knows = frozenset({Knowledge.GRADIENTS})
    scores = Kind.GRADIENT

    def __init__(self, power: float = 1):
        self.power = power

    def infer(self, view):
        return {layer: g.abs().amax(dim=1) ** self.power for layer, g in view.gradients.items()}
'''
    )
    listed = vflbench_command("list", "attacks", "--config-dir", "mine", cwd=tmp_path)
    assert "loud" in listed.stdout
    assert "The largest coordinate of each gradient." in listed.stdout
    result = vflbench_command(
        "train", "--config-dir", "mine", "attack=[loud,norm]", *SMALL, "attack.loud.power=3", "epochs=1", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    (run,) = run_folders(tmp_path)
    assert set(json.loads((run / "summary.json").read_text())["leak_auc"]) == {"loud", "norm"}


def test_a_run_whose_promise_is_broken_is_written_and_ends_with_exit_code_1(tmp_path):
    folder = tmp_path / "mine"
    (folder / "defense").mkdir(parents=True)
    (folder / "defense" / "idle.yaml").write_text("idle:\n  _target_: idle.Idle\n")
    (folder / "idle.py").write_text(
        "from vflbench.defenses.label_dp import LabelDp\n\n\nclass Idle(LabelDp):\n"
        "    def labels(self, y, ids, logits, rng):\n        return y\n"
    )
    for _ in range(2):  # the second time it is only shown
        result = vflbench_command("train", "--config-dir", "mine", "defense=idle", *SMALL, "epochs=1", cwd=tmp_path)
        assert result.returncode == 1
        assert "FAILED: idle: the promise of eps = 1 is broken" in result.stdout
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        assert "marked as failed" in result.stderr
    (run,) = run_folders(tmp_path)
    assert json.loads((run / "summary.json").read_text())["failed"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "epoch=3"], ["epoch", "epochs"]),
        (["train", "attack=spectrl"], ["attack=spectrl", "none, norm, spectral"]),
        (["train", "attack=[norm,spectrl]"], ["attack=spectrl", "none, norm, spectral"]),
        (["train", "attack=null"], ["string or a list"]),
        (["train", "dataset.path=x"], ["dataset.path", "it goes with dataset=avazu, "]),
        (["train", "model.width=100000000", "dataset.rows=500"], ["not enough memory"]),
        (["train", "hydra.run.dir=/proc/x"], ["hydra.run.dir=/proc/x"]),
        (["list", "--config-dir", "nowhere"], ["--config-dir=nowhere", "no such folder"]),
        (["train", "dataset=criteo"], ["dataset.path", "must be given"]),
        (["train", "dataset=criteo", "dataset.path=nowhere.txt"], ["dataset.path=nowhere.txt", "no such file"]),
        (["train", "seed=-1"], ["seed=-1", "greater than or equal to 0"]),
        (["train", "wire._target_=os.system", "+wire.command=id"], ["wire._target_=os.system", "subclass"]),
        (["train", "attack=[norm"], ["[norm"]),
        (["list", "nothing"], ["nothing", "dataset"]),
        (["trian"], ["trian", "train"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_ends_in_one_paragraph_and_exit_code_1(tmp_path, arguments, told):
    result = vflbench_command(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stdout == ""
    for words in told:
        assert words in result.stderr
    assert run_folders(tmp_path) == []


def test_the_traceback_is_there_for_those_who_ask(tmp_path):
    result = vflbench_command("train", "seed=-1", cwd=tmp_path, HYDRA_FULL_ERROR="1")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_mistake_does_not_use_up_the_folder(tmp_path):
    failed = vflbench_command("train", "dataset=criteo", "dataset.path=nowhere", "hydra.run.dir=run", cwd=tmp_path)
    assert failed.returncode == 1
    again = vflbench_command("train", *SMALL, "epochs=1", "hydra.run.dir=run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def started(*arguments, cwd):
    """A run in a process of its own, as soon as it has finished an epoch."""
    command = [sys.executable, "-m", "vflbench", "train", *SMALL, "epochs=100000", *arguments]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=OPEN)
    deadline = time.monotonic() + 200
    while not list(cwd.rglob("checkpoint.pt")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_told_to_stop_saves_says_so_and_the_same_command_goes_on(tmp_path, number, code):
    for again in (False, True):
        process = started("hydra.run.dir=run", "log_every=1", cwd=tmp_path)
        if again:
            log = tmp_path / "run" / "train.log"
            while " loss: " not in log.read_text().partition("going on before epoch ")[2] and process.poll() is None:
                time.sleep(0.05)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        assert process.returncode == code
        assert len(told.strip().splitlines()) == 1
    assert re.match(r"\nstopped before epoch \d+.*, and saved; the same command goes on from there", told)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_two_at_once_in_one_folder_are_one_too_many(tmp_path):
    first = started(cwd=tmp_path)
    second = vflbench_command("train", *SMALL, "epochs=100000", cwd=tmp_path)
    first.kill()
    first.communicate()
    assert second.returncode == 1
    assert "another process is at work in this folder" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    assert len(list((tmp_path / "outputs").iterdir())) == 1


def test_what_was_finished_is_shown_and_not_computed_again_unless_asked_to(finished, tmp_path):
    result, folder = finished
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    own = ("train", f"--config-dir={copy}", "--config-name=config", "hydra.run.dir=run")
    shown = vflbench_command(*own, "log_every=7", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("finished before, so not computed again (overwrite=true would)")
    assert shown.stdout.splitlines()[1:-1] == result.stdout.splitlines()[:-1]  # the last line names the folder
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    mistaken = vflbench_command(*own, "overwrite=true", "epochs=0", cwd=tmp_path)
    assert mistaken.returncode == 1
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    other = vflbench_command("train", *SMALL, "overwrite=true", "epochs=1", "hydra.run.dir=run", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert json.loads((copy / "summary.json").read_text())["epochs"] == 1
    assert yaml.safe_load((copy / "config.yaml").read_text())["overwrite"] is False


def test_a_folder_that_holds_another_run_is_not_overwritten(finished, tmp_path):
    _, folder = finished
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    result = vflbench_command("train", *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert result.returncode == 1
    assert "holds a run of another configuration (batch_size: 64 -> auto" in result.stderr
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_sweep_computes_what_is_missing_and_shares_its_folders_with_single_runs(tmp_path, launcher):
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    options = (*SMALL, "epochs=1", "attack=norm")
    sweep = ("train", "-m", *options, f"hydra/launcher={launcher}")
    alone = vflbench_command("train", *options, "seed=1", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    (folder,) = run_folders(tmp_path)
    swept = vflbench_command(*sweep, "seed=0,1", cwd=tmp_path)
    assert swept.returncode == 0, swept.stderr
    assert swept.stdout.count(f"finished before, so not computed again (overwrite=true would): {folder}") == 1
    if launcher == "joblib":  # as many workers as runs, and no more threads than cores
        (fresh,) = set(run_folders(tmp_path)) - {folder}
        assert json.loads((fresh / "manifest.json").read_text())["threads"] <= len(os.sched_getaffinity(0))
    before = {file: file.read_bytes() for f in run_folders(tmp_path) for file in f.iterdir()}
    assert len(run_folders(tmp_path)) == 2
    extended = vflbench_command(*sweep, "seed=0,1,2", cwd=tmp_path)
    assert extended.stdout.count("finished before") == 2
    assert len(run_folders(tmp_path)) == 3
    assert {file: file.read_bytes() for file in before} == before


def test_the_folder_is_the_same_for_a_config_of_ones_own(finished):
    _, folder = finished
    result = vflbench_command("train", f"--config-dir={folder}", "--config-name=config", cwd=folder.parent.parent)
    assert result.returncode == 0, result.stderr
    assert f"(overwrite=true would): {folder}" in result.stdout


def test_data_that_changed_since_is_pointed_out(tmp_path):
    (tmp_path / "my.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(300)))
    options = ("train", "dataset=csv", "dataset.path=my.csv", "dataset.label=y", "model=mlp", "epochs=1")
    assert vflbench_command(*options, cwd=tmp_path).returncode == 0
    assert "no longer" not in vflbench_command(*options, cwd=tmp_path).stdout
    (tmp_path / "my.csv").write_text("x,y\n" + "".join(f"{i % 5},{i % 2}\n" for i in range(300)))
    assert "mind: the data file is no longer as it was" in vflbench_command(*options, cwd=tmp_path).stdout


def test_a_mistake_leaves_no_folder_behind(tmp_path):
    for arguments in (["dataset=criteo"], ["seed=-1"], ["dataset=criteo", "dataset.path=nowhere"]):
        assert vflbench_command("train", *arguments, cwd=tmp_path).returncode == 1
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_data_set_is_prepared_once_and_train_finds_it(tmp_path):
    lines = "".join(f"{i % 2}\t{i}\t" + "\t".join(["7"] * 12 + [f"{i % 9:08x}"] * 26) + "\n" for i in range(600))
    (tmp_path / "day_1").write_text(lines)
    (tmp_path / "day_2").write_text(lines + "bad\n")
    data = ["dataset=criteo", "dataset.path=day_*", "dataset.bad_rows=skip"]
    cache = {"VFLBENCH_CACHE": str(tmp_path / "cache")}
    first, second = (vflbench_command("prepare", *data, cwd=tmp_path, **cache) for _ in range(2))
    assert first.stderr == second.stderr == ""
    assert first.stdout.startswith("prepared: 1,200 rows, 39 columns, 234 ids, bad rows left out: 1; ")
    assert second.stdout == f"already {first.stdout}"
    (prepared,) = (tmp_path / "cache" / "prepared").iterdir()
    before = prepared.stat().st_mtime_ns
    run = vflbench_command("train", *data, "epochs=1", "model.width=8", "batch_size=100", cwd=tmp_path, **cache)
    assert run.returncode == 0, run.stderr
    assert "bad rows left out: 1 (line 601: 1 fields where labelled Criteo data" in run.stdout
    assert list((tmp_path / "cache" / "prepared").iterdir()) == [prepared]
    assert prepared.stat().st_mtime_ns == before
    (folder,) = run_folders(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["data"]["bad_rows"]["count"] == 1
    assert manifest["data"]["path"] == [str(tmp_path / "day_1"), str(tmp_path / "day_2")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "dataset: Synthetic is read from no file"),
        (["dataset=criteo"], "dataset.path: it must be given"),
        (["dataset=criteo", "dataset.path=none_*"], "dataset.path=none_*: no file matches this pattern"),
        (["-m", "dataset=criteo"], "one data set at a time"),
    ],
)
def test_what_cannot_be_prepared_is_told(tmp_path, arguments, told):
    result = vflbench_command("prepare", *arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_help_version_and_the_shown_config(tmp_path):
    assert "vflbench train" in vflbench_command("--help", cwd=tmp_path).stdout
    assert vflbench_command("--version", cwd=tmp_path).stdout.split() == ["vflbench", vflbench.__version__]
    shown = vflbench_command("train", "--help", cwd=tmp_path).stdout
    for word in ("dataset: ", "criteo", "attack: ", "batch_size: auto", "--config-dir"):
        assert word in shown
    job = vflbench_command("train", "defense=max_norm", "--cfg", "job", cwd=tmp_path).stdout
    assert yaml.safe_load(job)["defense"] == {"max_norm": {"_target_": "vflbench.defenses.max_norm.MaxNorm"}}
    assert list(tmp_path.iterdir()) == []


def test_tab_completion_knows_commands_groups_and_options(tmp_path):
    def complete(line):
        return vflbench_command("-sc", "query=bash", cwd=tmp_path, COMP_LINE=line).stdout.split()

    assert complete("vflbench tr") == ["train", "prepare", "report", "list"]
    assert complete("vflbench train attack=s") == ["attack=spectral"]
    assert complete("/opt/train/bin/vflbench train attack=s") == ["attack=spectral"]
    assert {"dataset", "attack"} <= set(complete("vflbench list "))
    assert "dataset.rows=" in complete("vflbench train dataset.")
    install = vflbench_command("-sc", "install=bash", cwd=tmp_path)
    assert "complete -o nospace" in install.stdout


def test_the_list_has_a_line_for_every_choice_with_threat_model_and_source(tmp_path):
    lines = vflbench_command("list", cwd=tmp_path).stdout.splitlines()
    for name in (
        "criteo",
        "avazu",
        "synthetic",
        "breast_cancer",
        "wide_deep",
        "mlp",
        "max_norm",
        "norm",
        "spectral",
        "published",
    ):
        assert sum(line.split()[:1] == [name] for line in lines) == 1, name
    (spectral,) = (line for line in lines if line.startswith("  spectral"))
    assert "[non-label party; knows embeddings, prior]" in spectral
    assert "Sun et al." in spectral
