import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "asynchronous_range.py"


def test_it_prints_every_line_of_its_table():
    command = [sys.executable, SCRIPT, "--shapes", "4x5,5x6", "--batches", "2,3", "--draws", "2", "--lowest", "1e-3"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0].split()[:3] == ["m", "d", "n"]
    cells = [tuple(map(int, line.split()[:3])) for line in told[1:]]
    assert cells == [(4, 5, 2), (4, 5, 3), (5, 6, 2), (5, 6, 3)]
    assert all("(0.0%)" in line for line in told[1:])
