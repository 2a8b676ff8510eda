"""The script that kills sweeps, run shortly."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kill_sweep.py"


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_same_bytes_and_recomputes_nothing():
    command = [sys.executable, SCRIPT, "--runs", "4", "--kills", "2", "--epochs", "3", "--seed", "3"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 kills, 4 runs: the same bytes" in result.stdout


def test_a_difference_is_seen(tmp_path):
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from kill_sweep import differences
    finally:
        sys.path.remove(str(SCRIPT.parent))
    for name, loss in (("peace", "0.5"), ("fire", "0.25")):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "metrics.csv").write_text(f"epoch\n0,train,,,,,loss,{loss},,,\n")
        (tmp_path / name / "run" / "summary.json").write_text('{"seconds": 1}')
    peace, fire = tmp_path / "peace", tmp_path / "fire"
    assert differences(peace, peace) == []
    assert differences(peace, fire)[0] == "the aggregated tables differ"
    (fire / "another").mkdir()
    assert differences(peace, fire) == ["other runs: ['another']"]
