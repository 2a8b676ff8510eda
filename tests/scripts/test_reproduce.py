"""The script that runs the published experiments: what it puts on the command line, and what it leaves."""

import argparse
import subprocess
import sys

import pytest
from script_runs import SCRIPTS, load

from vflbench.errors import UserError
from vflbench.results.report.reproductions import PublishedExperiment, read_experiments


@pytest.fixture(scope="module")
def script():
    return load("reproduce")


@pytest.fixture
def data(tmp_path):
    for name in ("criteo/train.txt.gz", "criteo/larger_than_that.txt", "mnist/images.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x" * len(name))
    return tmp_path


def test_times_are_read(script):
    assert [script.parse_minutes(text) for text in ("90m", "2h", "1h30m", "0.5h")] == [90, 120, 90, 30]
    with pytest.raises(UserError, match="not a time"):
        script.parse_minutes("soon")


def test_the_scale_fits_the_budget(script):
    chosen = [PublishedExperiment(str(i), "", "", f"{minutes} minutes", {}) for i, minutes in enumerate((30, 10))]
    left = script.SPENT * 30 - 2 * script.START
    assert script.fitting_scale(chosen, 30, jobs=2) == pytest.approx(left / 40)
    assert script.fitting_scale(chosen, 600, jobs=2) == 1
    assert script.fitting_scale(chosen, 0.1, jobs=1) == script.LEAST_SCALE


def test_the_data_set_its_file_and_the_scale_stand_on_the_command_line(script, data):
    options = argparse.Namespace(data=data, dataset="criteo")
    words = script.overrides(read_experiments()["marvell_sumkl"], options, 0.25)
    assert words[:3] == ["dataset=criteo", f"dataset.path={data}/criteo/train.txt.gz", "dataset.sample=0.25"]
    assert "seed=0,1" in words
    assert not [word for word in script.overrides(read_experiments()["marvell_sumkl"], options, 1.0) if "s" in word[:2]]
    own = PublishedExperiment("own", "", "", "", {"defaults": [{"override /dataset": "digits"}]})
    assert script.overrides(own, options, 1.0) == []
    told = PublishedExperiment("told", "", "", "", {}, reproduce=("dataset=mnist", "dataset.path={data}/mnist/images.gz"))
    assert script.overrides(told, options, 0.1) == ["dataset=mnist", f"dataset.path={data}/mnist/images.gz"]
    with pytest.raises(UserError, match="no file"):
        script.overrides(read_experiments()["marvell_sumkl"], argparse.Namespace(data=data, dataset="avazu"), 1.0)


@pytest.mark.slow
def test_it_runs_reports_and_goes_on(tmp_path, data):
    """On the embedded data: what is done is not done again."""
    command = [
        sys.executable,
        SCRIPTS / "reproduce.py",
        "--only",
        "bytedance_max_norm",
        "--data",
        data,
        "--dataset",
        "synthetic",
    ]
    command += ["--scale", "1", "--out", tmp_path / "out", "--jobs", "1"]
    command += ["--set", "dataset.rows=2000", "dataset.vocabulary=300", "model.width=8", "epochs=1", "seed=0", "attack=norm"]
    first = subprocess.run(command, capture_output=True, text=True)
    assert first.returncode == 0, first.stdout + first.stderr
    page = (tmp_path / "out" / "index.html").read_text()
    assert "2 finished runs" in page
    assert "bytedance_max_norm on synthetic" in page
    assert (tmp_path / "out" / "bytedance_max_norm" / "report" / "report.html").exists()
    again = subprocess.run([*command, "--budget", "0.0001m"], capture_output=True, text=True)
    assert again.returncode == 1
    assert "the time was up" in (tmp_path / "out" / "index.html").read_text()
    assert "2 finished runs" in (tmp_path / "out" / "index.html").read_text()
    unknown = subprocess.run([*command[:3], "nothing", *command[4:]], capture_output=True, text=True)
    assert unknown.returncode == 1
    assert "there is no such experiment" in unknown.stderr
