import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "bench_dcor.py"


def test_it_prints_every_line_of_its_table():
    command = [sys.executable, SCRIPT, "--rows", "600", "--width", "8", "--rounds", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("vflbench", "straightforward", "dcor"):
        assert f"    600  {name}" in told
    assert "relative error at 4,096 rows" in told
