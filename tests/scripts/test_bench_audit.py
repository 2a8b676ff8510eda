import bench
import pytest
from benches import audit
from script_runs import run


def test_each_pass_is_measured(tmp_path):
    audit.write(tmp_path, 2, 60, 4)
    for name in audit.PASSES:
        cost = audit.one_pass(name, tmp_path)
        assert min(cost.wall, cost.cpu, cost.memory) > 0, name


@pytest.mark.slow
def test_it_prints_every_line_of_its_table():
    sizes = ["--batches", "2", "--rows", "50", "--width", "4", "--turns", "1"]
    done = run(bench, "audit", *sizes)
    for name in ("read 1", "read 2", "read 2, a thread"):
        assert "audit of 2 batches" in done.stdout
        assert f"  {name}  " in done.stdout, done.stderr
