"""`load` returns the measurements of all finished runs as one Arrow table, without torch."""

import json
import subprocess
import sys

import pyarrow
import pyarrow.compute as pc
import pytest
from outputs_tree import marvell, write_adversarial_run, write_run

from vflbench.errors import UserError
from vflbench.results import load
from vflbench.results.read import read_metrics
from vflbench.results.rows import COLUMNS, HEADER


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "none", seed=3, norm=0.9)
    write_run(tmp_path / "deep" / "marvell", experiment="marvell_sumkl", norm=0.53, **marvell(0.04, 0.54))
    write_adversarial_run(tmp_path / "scaled")
    write_run(tmp_path / "broken promise", seed=9, failed="the promise is broken")
    write_run(tmp_path / "stopped").joinpath("summary.json").unlink()
    torn = write_run(tmp_path / "torn", seed=5)
    (torn / "summary.json").write_text((torn / "summary.json").read_text()[:40])
    for name, text in (("no rows", None), ("wrong rows", HEADER + "0,train,a\n"), ("wrong number", HEADER + "x" + "," * 10)):
        file = write_run(tmp_path / name, seed=6) / "metrics.csv"
        file.unlink() if text is None else file.write_text(text)
    return tmp_path


def test_every_finished_run_is_there_with_what_users_group_by(folder):
    table = load(folder)
    groups = ["run", "experiment", "dataset", "defense", "adversary", "seed", "made_by", "failed"]
    assert table.column_names == [*groups, "level", *COLUMNS]
    assert {(row["attack"], row["level"]) for row in table.to_pylist()} == {(None, None), ("norm", "messages only")}
    runs = {tuple(row[name] for name in groups if name != "made_by") for row in table.to_pylist()}
    assert len(set(table["made_by"].to_pylist())) == 1
    assert runs == {
        ("none", None, "criteo", "none", "none", 3, None),
        ("deep/marvell", "marvell_sumkl", "criteo", "marvell", "none", 0, None),
        ("scaled", None, "criteo", "none", "scaled", 0, None),
        ("broken promise", None, "criteo", "none", "none", 9, "the promise is broken"),
    }
    assert {row["run"] for row in load(folder / "none").to_pylist()} == {"."}


def test_rows_have_the_types_and_values_of_metrics_csv(folder):
    table = load(folder / "none")
    types = {name: str(table.schema.field(name).type) for name in COLUMNS}
    assert {name for name, type_ in types.items() if type_ == "double"} == {"value", "ci_low", "ci_high"}
    assert (types["epoch"], types["visible"], types["layer"]) == ("int64", "bool", "string")
    expected = [
        {name: None if value in ("", None) or value != value else value for name, value in vars(row).items()}
        for row in read_metrics(folder / "none")
    ]
    assert table.select(COLUMNS).to_pylist() == expected


def test_numbers_keep_every_bit(tmp_path):
    numbers = [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -1 / 3, 12.0, float("inf")]
    lines = "".join(f'0,train,"a, b",,,,loss,{number},,,\n' for number in numbers)
    (write_run(tmp_path / "run") / "metrics.csv").write_text(HEADER + lines)
    table = load(tmp_path)
    assert table["value"].to_pylist() == numbers
    assert set(table["party"].to_pylist()) == {"a, b"}


def test_the_table_is_filtered_and_grouped_without_pandas(folder):
    table = load(folder, options=["defense.marvell.sumkl", "model.bottom_layers", "attack.norm", "epochs"])
    leaks = table.filter((pc.field("attack") == "norm") & (pc.field("epoch") == 1) & pc.field("failed").is_null())
    means = leaks.group_by(["defense", "defense.marvell.sumkl", "adversary"]).aggregate([("value", "mean")])
    assert {tuple(row.values()) for row in means.to_pylist()} == {
        ("none", None, "none", 0.9),
        ("marvell", 0.04, "none", 0.53),
        ("none", None, "scaled", 0.99),
    }
    assert table.schema.field("model.bottom_layers").type == pyarrow.int64()
    assert set(table["attack.norm"].to_pylist()) == {"{'_target_': 'vflbench.attacks.norm.Norm'}"}
    for kinds, type_ in (([1, 2.5], "double"), ([True, False], "bool"), ([1, "auto"], "string"), ([True, 1], "string")):
        for run, value in zip(("none", "scaled"), kinds, strict=True):
            config = json.dumps({"seed": 0, "defense": {}, "mine": value})
            (folder / run / "config.yaml").write_text(config)
        assert str(load(folder, ["mine"]).schema.field("mine").type) == type_, kinds


def test_a_folder_without_a_finished_run_is_refused(folder):
    for place, problem in (("stopped", "no finished run"), ("torn", "no finished run"), ("nowhere", "no such folder")):
        with pytest.raises(UserError, match=problem):
            load(folder / place)
    with pytest.raises(UserError, match="options=epoch: the table has another column of this name"):
        load(folder, ["epoch"])


@pytest.mark.slow
def test_importing_it_needs_neither_torch_nor_pyarrow(folder):
    code = (
        "import sys; from vflbench.results import load; early = set(sys.modules);"
        f"rows = load({str(folder / 'none')!r}).num_rows;"
        "sys.exit(bool({'torch', 'pyarrow', 'numpy', 'altair'} & early) or 'torch' in sys.modules or not rows)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
