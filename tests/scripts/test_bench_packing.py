import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "bench_packing.py"


def test_it_prints_a_line_for_each_width():
    command = [sys.executable, SCRIPT, "--rows", "10", "--width", "8", "--rounds", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[:2] for line in told.splitlines()[3:]] == [
        [str(bits), str(80 * bits // 8)] for bits in (1, 2, 3, 4, 8, 10, 14)
    ]
