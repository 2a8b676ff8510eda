import subprocess
import sys

import bench
import pytest
from benches import dcor
from benches.lines import BENCH, Cost, Line, measured
from support.script_runs import run

from vflbench.numerics.distance_correlation import distance_correlation


def test_a_ratio_is_of_cpu_seconds_where_both_are_known_and_of_the_clock_otherwise():
    """A goal without anything to hold it against is not measured."""
    line = Line("x", Cost(4.0, 1.0), "peer", Cost(8.0, 9.0), "limit", Cost(2.0), faster=9, within=1.9, cpu=0.5)
    assert (line.cells()[7], line.cells()[11]) == ("9", "2 by the clock")
    assert line.verdict() == ">= 9 x faster: met; <= 1.9 x limit: missed; <= 0.5 CPU s: missed"
    line = Line("x", Cost(1.0), "peer", faster=9, limit="limit", within=2, cpu=0.5)
    assert line.verdict() == ">= 9 x faster: not measured; <= 2 x limit: not measured; <= 0.5 CPU s: not measured"


def test_the_naive_distance_correlation_is_what_ours_computes():
    x, y = dcor.data(300, 8)
    assert abs(distance_correlation(x, y).item() / dcor.naive_value(x.double(), y).item() - 1) < 1e-6


def test_a_topic_that_is_not_there_is_refused():
    done = run(bench, "dcor", "nothing")
    assert done.returncode == 2
    assert "there is no topic nothing" in done.stderr


def test_each_topic_says_what_it_measures():
    lines = run(bench, "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == bench.TOPICS
    assert all(len(line.split()) > 3 for line in lines)


def test_a_command_that_fails_is_no_figure():
    with pytest.raises(RuntimeError, match="ended with 3: no such thing"):
        measured([sys.executable, "-c", "import sys; print('no such thing', file=sys.stderr); sys.exit(3)"])


SMALL = {
    "audit": ("--batches 2 --rows 50 --width 4 --turns 1", ("audit of 2 batches", "  read 1  ", "  read 2, a thread  ")),
    "marvell": ("--problems 50 --slsqp 5 --rounds 1", ("solve_power, one by one", "SLSQP", "Marvell.gradient")),
    "reconstruction": ("--cells 3x12 --seeds 4", ("ambiguous 0.0%", "proved 4/4")),
    "step": ("--quick --only lazy-torch,bf16,matmuls-bf16", ("lazy-torch, 512 rows",)),
}
"""Topic -> options, and what is printed."""


@pytest.mark.slow
@pytest.mark.parametrize("topic", sorted({*bench.TOPICS} - {"prepare"}))
def test_a_topic_runs_small(topic):
    options, printed = SMALL.get(topic, ("--quick", ("\nwhat ",)))
    done = subprocess.run([sys.executable, BENCH, topic, *options.split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in printed), done.stdout
