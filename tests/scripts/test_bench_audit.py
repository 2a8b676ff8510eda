import subprocess
import sys

import pytest
from script_runs import SCRIPTS, load


def test_each_pass_is_measured(tmp_path):
    script = load("bench_audit")
    script.write(tmp_path, 2, 60, 4)
    for name in script.PASSES:
        wall, cpu, memory = script.measure(name, tmp_path)
        assert wall > 0, name
        assert cpu > 0, name
        assert memory > 0, name


@pytest.mark.slow
def test_it_prints_every_line_of_its_table():
    sizes = ["--batches", "2", "--rows", "50", "--width", "4", "--turns", "1", "--cold"]
    command = [sys.executable, SCRIPTS / "bench_audit.py", *sizes]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("2 batches", "read 1 ", "read 2, a thread", "audit ", "audit / the faster read 1"):
        assert f"\n{name}" in f"\n{printed}"
