import json
from pathlib import Path

import script_runs

from vflbench.results.report.solver_times import cells_of, cells_table, draw_cells
from vflbench.results.runs import Run


def one(attack, seconds, proved=1.0, batches=3, **figures):
    values = {"solver_seconds": seconds, "proved": proved, **figures}
    figures = {name: {"mean": value, "low": None, "high": None} for name, value in values.items()}
    return {"attack": attack, "message": "update", "figures": figures, "batches": batches}


def run(rows, columns, *reconstructions):
    config = {"dataset": {"rows": rows, "features": columns}, "defense": {}, "attack": {}}
    return Run(Path("x"), config, {"reconstructions": list(reconstructions)})


def test_batches_of_several_runs_have_the_same_weight():
    runs = [run(8, 20, one("exact", 0.001, batches=1)), run(8, 20, one("exact", 0.005, batches=3))]
    assert cells_of(runs)[8, 20]["exact"]["solver_seconds"] == 0.004


def test_runs_that_rebuilt_no_batch_from_updates_are_left_out():
    other = Run(Path("y"), {"dataset": {}}, {"reconstructions": [one("inversion", 1.0) | {"message": "embedding"}]})
    assert cells_of([other, Run(Path("z"), {"dataset": {}}, {})]) == {}


def test_the_table_has_published_and_measured_seconds_and_marks_searches_that_did_not_end():
    cells = cells_of([run(8, 20, one("exact", 0.002, matches=1.0, unique=1.0), one("cbc", 2.0, proved=0.5))])
    line = cells_table(cells).splitlines()[2]
    assert line == "| 8, 20 | 4.4 s | 2 ms | > 2 s (50% ended) | 1 | 100% |"
    figure = draw_cells(cells)
    assert [axes.get_title() for axes in figure.axes[:3]] == ["published", "exact", "cbc"]
    assert ">2" in [text.get_text() for text in figure.axes[2].texts]


def test_the_script_prints_the_table_of_a_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("dataset: {rows: 9, features: 20}\ndefense: {}\nattack: {}\n")
    (folder / "summary.json").write_text(json.dumps({"reconstructions": [one("exact", 0.002)]}))
    assert "| 9, 20 | 90 s | 2 ms |" in script_runs.run("quantification_table", tmp_path).stdout
    assert script_runs.run("quantification_table", tmp_path / "none").returncode != 0
