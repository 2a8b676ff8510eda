"""The script that kills runs, run shortly."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kill_test.py"


def kill_test(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=900)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "kills"), [("kill", 10), ("mixed", 4)])
def test_deaths_change_no_byte(how, kills):
    overrides = ("defense=max_norm", "dataset.parties={a: [I*], b: [C1*], label: [C2*]}", "model.wide=true")
    result = kill_test("--kills", str(kills), "--seed", "3", "--signal", how, *overrides)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no difference" in result.stdout


def test_it_says_what_it_does_and_refuses_a_folder_that_is_there(tmp_path):
    assert "--kills" in kill_test("--help").stdout
    assert "it is there already" in kill_test("--folder", str(tmp_path)).stderr


def test_a_difference_is_seen(tmp_path):
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from kill_test import differing
    finally:
        sys.path.remove(str(SCRIPT.parent))
    for name, loss in (("one", "0.5"), ("other", "0.25")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text(f"epoch\n0,train,,,,,loss,{loss},,,\n0,train,,,,,seconds,{loss},,,\n")
        (tmp_path / name / "summary.json").write_text('{"seconds": 1}')
    assert differing(tmp_path / "one", tmp_path / "one") == []
    assert differing(tmp_path / "one", tmp_path / "other") == ["metrics.csv differs (line without `seconds`: 1)"]
