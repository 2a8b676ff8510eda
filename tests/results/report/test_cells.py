import json
import subprocess
import sys
from pathlib import Path

from vflbench.results.report.cells import cells_of, cells_table, draw_cells
from vflbench.results.report.sweep import Run

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "quantification_table.py"


def one(attack, seconds, proved=1.0, batches=3, **figures):
    values = {"solver_seconds": seconds, "proved": proved, **figures}
    told = {name: {"mean": value, "low": None, "high": None} for name, value in values.items()}
    return {"attack": attack, "message": "update", "figures": told, "batches": batches}


def run(rows, columns, *found):
    config = {"dataset": {"rows": rows, "features": columns}, "defense": {}, "attack": {}}
    return Run(Path("x"), config, {"reconstructions": list(found)})


def test_batches_of_several_runs_weigh_the_same():
    runs = [run(8, 20, one("exact", 0.001, batches=1)), run(8, 20, one("exact", 0.005, batches=3))]
    assert cells_of(runs)[8, 20]["exact"]["solver_seconds"] == 0.004


def test_other_runs_are_passed_over():
    other = Run(Path("y"), {"dataset": {}}, {"reconstructions": [one("inversion", 1.0) | {"message": "embedding"}]})
    assert cells_of([other, Run(Path("z"), {"dataset": {}}, {})]) == {}


def test_the_table_has_theirs_beside_ours_and_says_what_did_not_end():
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
    done = subprocess.run([sys.executable, SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "| 9, 20 | 90 s | 2 ms |" in done.stdout
    empty = subprocess.run([sys.executable, SCRIPT, str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert empty.returncode != 0
