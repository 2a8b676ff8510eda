import bench
import pytest
from script_runs import run


@pytest.mark.slow
def test_every_batch_of_few_rows_and_many_columns_is_proved_and_alone():
    done = run(bench, "reconstruction", "--cells", "3x12", "--seeds", 4)
    assert done.returncode == 0, done.stderr
    assert "ambiguous 0.0%" in done.stdout
    assert "proved 4/4" in done.stdout
