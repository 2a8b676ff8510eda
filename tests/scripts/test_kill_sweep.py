"""The script that kills sweeps, run shortly."""

import subprocess
import sys

import pytest
from script_runs import SCRIPTS, load


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_same_bytes_and_recomputes_nothing():
    command = [sys.executable, SCRIPTS / "kill_sweep.py", "--runs", "4", "--kills", "2", "--epochs", "3", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kills, 4 runs: the same bytes" in done.stdout


def test_a_difference_is_seen(tmp_path):
    differences = load("kill_sweep").differences
    for name, loss in (("peace", "0.5"), ("fire", "0.25")):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "metrics.csv").write_text(f"epoch\n0,train,,,,,loss,{loss},,,\n")
        (tmp_path / name / "run" / "summary.json").write_text('{"seconds": 1}')
    peace, fire = tmp_path / "peace", tmp_path / "fire"
    assert differences(peace, peace) == []
    assert differences(peace, fire)[0] == "the aggregated tables differ"
    (fire / "another").mkdir()
    assert differences(peace, fire) == ["other runs: ['another']"]
