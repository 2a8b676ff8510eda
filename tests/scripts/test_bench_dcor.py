import bench
import pytest
from benches import dcor
from script_runs import run

from vflbench.numerics.distance_correlation import distance_correlation


def test_the_naive_form_is_what_ours_computes():
    x, y = dcor.data(300, 8)
    assert abs(distance_correlation(x, y).item() / dcor.naive_value(x.double(), y).item() - 1) < 1e-6


@pytest.mark.slow
def test_it_prints_every_line_of_its_table():
    done = run(bench, "dcor", "--quick")
    assert done.returncode == 0, done.stderr
    for part in ("naive", "products alone", "600 x 8, value and gradient", "relative error"):
        assert part in done.stdout
