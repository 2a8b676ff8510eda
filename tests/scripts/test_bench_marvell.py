import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "bench_marvell.py"


def test_it_prints_every_line_of_its_tables():
    command = [sys.executable, SCRIPT, "--problems", "50", "--slsqp", "5", "--digits", "0", "--rounds", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in ("solve_target, one by one", "solve_power, batched, 20,000", "SLSQP, one by one", "Marvell.gradient"):
        assert line in told
