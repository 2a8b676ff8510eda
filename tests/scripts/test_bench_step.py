import math

import bench
import pytest
from benches import step
from script_runs import run


def test_goals_are_of_one_size_and_what_is_missing_has_a_reason(monkeypatch, tmp_path):
    """Medians of the quietest round; an alternative that fails leaves the others their lines."""
    options = bench.topic_options("step", ["--rounds", "2", "--only", "lazy-numba,bf16,usual,matmuls"])
    ms = {"lazy-numba": 50.0, "bf16": 30.0, "matmuls": 40.0}
    asked = []

    def figures(name, _folder):
        asked.append(name)
        if name not in ms:
            raise RuntimeError("killed")
        slower = 1 + asked.count(name)
        return {"ms": [9.0, 2 * ms[name], 999.0], "cpu_ms": [1.0, slower * ms[name], 999.0], "peak": 100}

    table = step.Bench(options, tmp_path)
    monkeypatch.setattr(table, "_run", figures)
    monkeypatch.setattr(table, "_table", lambda *_: tmp_path)
    lines = list(table.compare(10_000_000, options.only.split(",")))
    assert [(line.what.split(",")[0], line.alternative) for line in lines] == [
        (ours, "usual") for ours in ("lazy-numba", "bf16")
    ]
    assert lines[0].ours.cpu == pytest.approx(0.1)
    assert lines[0].verdict() == "<= 1.4 x limit: met"
    assert lines[0].theirs is None
    assert "killed" in lines[0].note
    assert lines[1].least is None  # of bf16, which was not asked for
    assert asked.count("usual") == 1
    assert next(table.compare(1000, ["lazy-numba", "matmuls"])).verdict() == ""
    assert math.isnan(next(table.compare(1000, ["usual", "adam"])).ours.cpu)


@pytest.mark.slow
def test_it_runs_small():
    done = run(bench, "step", "--quick", "--only", "lazy-torch,bf16,matmuls-bf16")
    assert done.returncode == 0, done.stderr
    assert "lazy-torch, 512 rows" in done.stdout
