import subprocess
import sys

import pytest
from script_runs import SCRIPTS


@pytest.mark.slow
def test_it_prints_every_line_of_its_table():
    command = [sys.executable, SCRIPTS / "bench_dcor.py", "--rows", "600", "--width", "8", "--rounds", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("vflbench", "straightforward", "dcor"):
        assert f"    600  {name}" in printed
    assert "relative error at 4,096 rows" in printed
