"""Published values beside the runs that repeat them, and beside no others."""

import pytest
from report.drawn import section_of
from support.outputs_tree import marvell, write_run

from vflbench.report.experiments import measured
from vflbench.report.published import Value


def save(folder, seed, test_auc, **dataset):
    options = {"dataset": {"_target_": "vflbench.data.clicklogs.Criteo", **dataset}}
    write_run(folder, seed=seed, test_auc=test_auc, config=options, **marvell(0.5))


def value(what):
    return Value(what, 0.7, "test_auc", {"defense.marvell.sumkl": 0.5})


def test_a_value_is_compared_with_the_seeds_of_one_setting(tmp_path):
    for seed in range(3):
        save(tmp_path / f"a{seed}", seed, 0.7 + 0.01 * seed)
    one = measured(value("test AUC"), section_of(tmp_path))
    assert (one.mean, one.runs) == (pytest.approx(0.71), 3)
    save(tmp_path / "other", 0, 0.1, rows=5)
    assert measured(value("test AUC"), section_of(tmp_path)).runs == 0, "two settings are no one value"


def test_only_a_mean_over_days_is_compared_with_a_mean_over_days(tmp_path):
    for day in (2, 3):
        save(tmp_path / f"day{day}", 0, 0.6 + 0.1 * (day - 2), test_day=day)
    one = measured(value("test AUC, mean over days"), section_of(tmp_path))
    assert (one.mean, one.runs) == (pytest.approx(0.65), 2)
    assert measured(value("test AUC"), section_of(tmp_path)).runs == 0
    save(tmp_path / "fewer", 0, 0.1, test_day=2, rows=5)
    assert measured(value("test AUC, mean over days"), section_of(tmp_path)).runs == 0
