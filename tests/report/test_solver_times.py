import itertools
from pathlib import Path

from vflbench.report.solver_figures import draw_cells
from vflbench.report.solver_times import cells_of, cells_table, published_cells
from vflbench.results.runs import Run


def one(attack, seconds, proved=1.0, batches=3, **figures):
    values = {"solver_seconds": seconds, "proved": proved, **figures}
    figures = {name: {"mean": value, "low": None, "high": None} for name, value in values.items()}
    return {"attack": attack, "message": "update", "party": "all", "layer": "model", "figures": figures, "batches": batches}


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
    lines = cells_table(cells).splitlines()
    assert "| 8, 20 | 4.43 s | 2 ms | > 2 s (50% ended) | 1 | 0% |" in lines
    assert r"| 11, 5 | \* | not run | not run | - | - |" in lines
    figure = draw_cells(cells)
    drawn = figure.spec["datasets"]["cells"]
    assert len(drawn) == 3 * 5 * 4  # published, exact, cbc: all rows and columns
    assert {cell["words"] for cell in drawn[40:]} == {"", ">2"}
    assert [cell["words"] for cell in drawn[:20]].count("*") == 2
    (slow,) = (cell for cell in drawn[:20] if cell["words"] == "1635")
    assert slow["shade"] == "#a50026"
    assert figure.note.startswith("Seconds; > marks")


def test_all_20_published_cells_are_there_and_two_are_marked():
    cells = published_cells()
    assert set(cells) == set(itertools.product((3, 5, 8, 9, 11), (5, 10, 15, 20)))
    assert {cell for cell, value in cells.items() if value.number is None} == {(9, 5), (11, 5)}
    assert all((value.mark == "*") == (value.number is None) for value in cells.values())
