"""The figures of docs/experiments/real_clicks.md."""

import csv

import pytest
from builders import run_in

from vflbench.data.clicklogs import Avazu, Criteo
from vflbench.defenses.max_norm import MaxNorm
from vflbench.models.optimizers.adam import Adam
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings

pytestmark = [pytest.mark.data, pytest.mark.slow]


def full_run(folder, dataset, **changes):
    settings = Settings(**{"audit": Audit(), **changes.pop("settings", {})})
    return run_in(folder, dataset=dataset, model=WideDeep(), optimizer=Adam(), settings=settings, **changes)


def criteo(data_folder):
    return Criteo(path=str(data_folder / "criteo" / "train.txt.gz"), min_count=5, numeric_transform="log")


def test_criteo_learns_and_leaks_at_the_cut(tmp_path, data_folder):
    summary = full_run(tmp_path / "run", criteo(data_folder))
    assert summary["test_auc"] >= 0.750
    spectral = summary["leak_auc_two_sided"]["spectral"]["embedding"]
    assert max(spectral["f4"], spectral["f5"]) >= 0.70
    assert spectral["f1"] < spectral["f5"] - 0.05
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        first = [r for r in csv.DictReader(file) if (r["epoch"], r["attack"], r["layer"]) == ("0", "norm", "f5")]
    assert float(next(r["value"] for r in first if r["metric"] == "leak_auc")) >= 0.90


def test_max_norm_hides_the_norm_on_criteo(tmp_path, data_folder):
    summary = full_run(tmp_path / "run", criteo(data_folder), defenses={"max_norm": MaxNorm()})
    assert summary["leak_auc_two_sided"]["norm"]["gradient"]["f5"] <= 0.60
    assert summary["test_auc"] >= 0.73


@pytest.mark.parametrize("name", ["train", "train_head"])
def test_avazu_learns(tmp_path, data_folder, name):
    dataset = Avazu(path=str(data_folder / "avazu" / f"{name}.csv.gz"), min_count=10)
    assert full_run(tmp_path / "run", dataset)["test_auc"] >= 0.65
