"""The script that kills runs, run shortly."""

import subprocess
import sys

import pytest
from script_runs import SCRIPTS, load, run


@pytest.mark.slow
@pytest.mark.parametrize(("how", "kills"), [("kill", 5), ("mixed", 3)])
def test_deaths_change_no_byte(how, kills):
    command = [sys.executable, SCRIPTS / "kill_test.py", "--kills", str(kills), "--seed", "3", "--signal", how]
    command += ["defense=max_norm", "dataset.parties={a: [I*], b: [C1*], label: [C2*]}", "model.wide=true"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no difference" in done.stdout


def test_it_says_what_it_does_and_refuses_a_folder_that_is_there(tmp_path):
    assert "--kills" in run("kill_test", "--help").stdout
    refused = run("kill_test", "--folder", tmp_path)
    assert refused.returncode == 2
    assert "it is there already" in refused.stderr


def test_a_difference_is_seen(tmp_path):
    differing = load("kill_test").differing
    for name, loss in (("one", "0.5"), ("other", "0.25")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text(f"epoch\n0,train,,,,,loss,{loss},,,\n0,train,,,,,seconds,{loss},,,\n")
        (tmp_path / name / "summary.json").write_text('{"seconds": 1}')
    assert differing(tmp_path / "one", tmp_path / "one") == []
    assert differing(tmp_path / "one", tmp_path / "other") == ["metrics.csv differs (line without `seconds`: 1)"]
