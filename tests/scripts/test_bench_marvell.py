import bench
import pytest
from script_runs import run


@pytest.mark.slow
def test_it_has_every_line_of_its_table():
    done = run(bench, "marvell", "--problems", 50, "--slsqp", 5, "--digits", 0, "--rounds", 1)
    for line in ("solve_target, one by one", "solve_power, one by one", "SLSQP", "Marvell.gradient"):
        assert line in done.stdout, done.stderr
