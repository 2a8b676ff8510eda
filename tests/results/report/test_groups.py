"""Runs of one setting, and what they are compared with, against scipy."""

import math

import pytest
from outputs_tree import leak, marvell, sweep, write_run
from scipy import stats

from vflbench.results.report.groups import baseline_of, group_runs, paired
from vflbench.results.report.sections import Wishes, sections
from vflbench.results.report.tree import read_tree


@pytest.fixture
def groups(tmp_path):
    return group_runs(read_tree([sweep(tmp_path)]).runs)


def test_runs_that_differ_in_the_seed_alone_are_one_setting_with_a_name(groups):
    assert [(g.name, g.seeds) for g in groups] == [
        ("none", [0, 1, 2]),
        ("marvell, sumkl 0.04", [0, 1, 2]),
        ("marvell, sumkl 0.16", [0, 1, 2]),
    ]


def test_means_have_students_interval_over_seeds(groups):
    values = [0.74, 0.752, 0.764]
    found = groups[2].interval("test_auc")
    assert found.mean == pytest.approx(sum(values) / 3)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 2, found.mean, stats.sem(values)))


def test_differences_are_paired_by_seed(groups):
    difference, pairs = paired(groups[2], groups[0], "test_auc")
    each = [0.74 - 0.76, 0.752 - 0.77, 0.764 - 0.78]
    assert pairs == 3
    assert (difference.low, difference.high) == pytest.approx(stats.t.interval(0.95, 2, sum(each) / 3, stats.sem(each)))
    assert difference.high < 0  # unpaired, the intervals of both means overlap


def test_a_seed_that_only_one_of_them_has_makes_no_pair(tmp_path):
    sweep(tmp_path)
    write_run(tmp_path / "more", seed=7, test_auc=0.1, norm=0.6, **marvell(0.04, 0.54))
    none, tight, _ = group_runs(read_tree([tmp_path]).runs)
    difference, pairs = paired(tight, none, "test_auc")
    assert (len(tight.runs), pairs) == (4, 3)
    assert difference.mean == pytest.approx(-0.05)


def test_one_seed_has_no_interval(tmp_path):
    (group,) = group_runs(read_tree([sweep(tmp_path, seeds=1) / "none0"]).runs)
    found = group.interval("test_auc")
    assert found.mean == pytest.approx(0.76)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_the_undefended_run_is_that_with_all_else_equal(tmp_path):
    sweep(tmp_path, seeds=1)
    write_run(tmp_path / "longer", config={"epochs": 9}, **marvell(0.04, 0.54))
    groups = {g.name: g for g in group_runs(read_tree([tmp_path]).runs)}
    beside = {name: baseline_of(g, groups.values()) for name, g in groups.items()}
    none = groups["none, epochs 2"]
    assert beside["marvell, sumkl 0.04, epochs 2"] is none
    assert beside["none, epochs 2"] is none
    assert beside["marvell, sumkl 0.04, epochs 9"] is None


@pytest.mark.parametrize(
    ("defense", "neutral"),
    [
        ({"dcor": {"alpha_d": 0}}, True),
        ({"dcor": {"alpha_d": 0.003}}, False),
        (marvell(math.inf)["defense"], True),
        ({"marvell": {"sumkl": math.inf, "error_bound": 0.3}}, False),
        ({"dcor": {"alpha_d": 0}, "max_norm": {}}, False),
    ],
)
def test_a_defense_that_changes_nothing_is_none(tmp_path, defense, neutral):
    write_run(tmp_path / "run", defense=defense)
    (group,) = group_runs(read_tree([tmp_path]).runs)
    assert group.undefended == neutral


def test_the_worst_attack_is_that_with_the_largest_mean_over_seeds_and_reads_messages(tmp_path):
    for seed, (norm, cosine) in enumerate([(0.9, 0.8), (0.7, 0.85), (0.7, 0.85)]):
        own = leak("no_message", "features", 0.99, message="none")
        write_run(tmp_path / f"{seed}", seed=seed, leaks=[leak("norm", "f2", norm), leak("cosine", "f2", 1 - cosine), own])
    (group,) = group_runs(read_tree([tmp_path]).runs)
    assert group.worst_attack() == "cosine on gradients"
    assert group.values("leak_auc") == pytest.approx({0: 0.8, 1: 0.85, 2: 0.85})
    assert group.interval("leak_raw").mean == pytest.approx((0.9 + 0.7 + 0.7) / 3)  # one-sided, cosine looks harmless
    assert group.interval("leak_raw:cosine").mean == pytest.approx((0.2 + 0.15 + 0.15) / 3)


def test_what_was_rebuilt_is_a_number_of_a_run_and_guesses_are_not(tmp_path):
    def rebuilt(attack, party, value, message="embedding"):
        figures = {"recognised": {"mean": value, "low": None, "high": None}}
        return {"attack": attack, "message": message, "party": party, "layer": "f2", "visible": True, "figures": figures}

    found = [rebuilt("white", "all", 0.7), rebuilt("black", "all", 0.4), rebuilt("white", "all", 1.0, "none")]
    write_run(tmp_path / "run", leaks=[], reconstructions=found)
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    assert section.leak == "rebuilt.recognised"
    (group,) = section.groups
    assert group.interval("rebuilt.recognised").mean == 0.7
    assert group.interval("rebuilt.recognised:black").mean == 0.4
    assert not group.values("rebuilt.ssim")
