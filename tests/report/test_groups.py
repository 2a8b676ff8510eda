"""Runs of one setting, and the runs that they are compared with, against scipy."""

import math

import pytest
from outputs_tree import leak, marvell, sweep, write_adversarial_run, write_run
from scipy import stats

from vflbench.report.groups import baseline_of, group_runs, paired
from vflbench.report.sections import Wishes, sections
from vflbench.results.tree import read_tree


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return group_runs(read_tree([sweep(tmp_path_factory.mktemp("sweep"))]).runs)


def test_runs_that_differ_only_in_the_seed_are_one_setting_with_a_name(groups):
    assert [(g.name, g.seeds) for g in groups] == [
        ("none", [0, 1, 2]),
        ("marvell, sumkl 0.04", [0, 1, 2]),
        ("marvell, sumkl 0.16", [0, 1, 2]),
    ]


def test_means_have_students_interval_over_seeds(groups):
    values = [0.74, 0.752, 0.764]
    interval = groups[2].interval("test_auc")
    assert interval.mean == pytest.approx(sum(values) / 3)
    assert (interval.low, interval.high) == pytest.approx(stats.t.interval(0.95, 2, interval.mean, stats.sem(values)))


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
    interval = group.interval("test_auc")
    assert interval.mean == pytest.approx(0.76)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


def test_the_undefended_run_has_all_other_options_equal(tmp_path):
    sweep(tmp_path, seeds=1)
    write_run(tmp_path / "longer", config={"epochs": 9}, **marvell(0.04, 0.54))
    groups = {g.name: g for g in group_runs(read_tree([tmp_path]).runs)}
    baselines = {name: baseline_of(g, groups.values()) for name, g in groups.items()}
    none = groups["none, epochs 2"]
    assert baselines["marvell, sumkl 0.04, epochs 2"] is none
    assert baselines["none, epochs 2"] is none
    assert baselines["marvell, sumkl 0.04, epochs 9"] is None


def test_many_attacks_are_counted_in_a_name_and_settings_of_one_name_told_apart(tmp_path):
    few = {name: {"_target_": f"vflbench.attacks.{name}.A"} for name in ("norm", "spectral")}
    many = {f"a{n}": {"_target_": f"vflbench.attacks.a{n}.A"} for n in range(9)}
    for number, attacks in enumerate((few, many, {**many, "last": {"_target_": "vflbench.attacks.last.A"}})):
        write_run(tmp_path / str(number), config={"attack": attacks})
    names = [g.name for g in group_runs(read_tree([tmp_path]).runs)]
    assert sorted(names) == [
        "none, attacked by a0+a1+7 more",
        "none, attacked by a0+a1+8 more",
        "none, attacked by norm+spectral",
    ]
    write_run(tmp_path / "other", config={"attack": {**many, "first": {"_target_": "vflbench.attacks.first.A"}}})
    names = [g.name for g in group_runs(read_tree([tmp_path]).runs)]
    assert len(set(names)) == 4
    assert sum(", options " in name for name in names) == 2


def test_a_defense_that_changes_nothing_counts_as_none(tmp_path):
    for number, (defense, neutral) in enumerate(
        (
            ({"dcor": {"alpha_d": 0}}, True),
            ({"dcor": {"alpha_d": 0.003}}, False),
            (marvell(math.inf)["defense"], True),
            ({"marvell": {"sumkl": math.inf, "error_bound": 0.3}}, False),
            ({"dcor": {"alpha_d": 0}, "max_norm": {}}, False),
        )
    ):
        write_run(tmp_path / str(number), defense=defense)
        (group,) = group_runs(read_tree([tmp_path / str(number)]).runs)
        assert group.undefended == neutral, defense


def test_the_worst_attack_reads_messages_and_has_the_largest_mean_over_seeds(tmp_path):
    for seed, (norm, cosine) in enumerate([(0.9, 0.8), (0.7, 0.85), (0.7, 0.85)]):
        alone = leak("no_message", "features", 0.99, message="none")
        write_run(tmp_path / f"{seed}", seed=seed, leaks=[leak("norm", "f2", norm), leak("cosine", "f2", 1 - cosine), alone])
    (group,) = group_runs(read_tree([tmp_path]).runs)
    assert group.worst_attack() == "cosine on gradients"
    assert group.values("leak_auc") == pytest.approx({0: 0.8, 1: 0.85, 2: 0.85})
    assert group.interval("leak_raw").mean == pytest.approx((0.9 + 0.7 + 0.7) / 3)  # one-sided, cosine looks harmless
    assert group.interval("leak_raw:cosine").mean == pytest.approx((0.2 + 0.15 + 0.15) / 3)


def test_a_rebuilt_figure_is_a_quantity_and_those_of_guesses_are_not(tmp_path):
    def rebuilt(attack, party, value, message="embedding"):
        figures = {"recognised": {"mean": value, "low": None, "high": None}}
        return {"attack": attack, "message": message, "party": party, "layer": "f2", "visible": True, "figures": figures}

    entries = [rebuilt("white", "all", 0.7), rebuilt("black", "all", 0.4), rebuilt("white", "all", 1.0, "none")]
    write_run(tmp_path / "run", leaks=[], reconstructions=entries)
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    assert section.leak == "rebuilt.recognised"
    (group,) = section.groups
    assert group.interval("rebuilt.recognised").mean == 0.7
    assert group.interval("rebuilt.recognised:black").mean == 0.4
    assert not group.values("rebuilt.ssim")


def test_runs_with_an_adversary_are_a_setting_of_their_own_beside_their_honest_runs(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"none{seed}", seed=seed)
        write_adversarial_run(tmp_path / f"scaled{seed}", seed=seed, test_auc=0.7, honest_auc=0.76)
    none, scaled = group_runs(read_tree([tmp_path]).runs)
    assert (none.name, none.honest, none.adversary) == ("none", None, "none")
    assert (scaled.name, scaled.adversary) == ("none, adversary scaled", "scaled")
    difference, pairs = paired(scaled, scaled.honest, "test_auc")
    assert (difference.mean, pairs) == (pytest.approx(-0.06), 2)


def test_a_leak_is_at_the_cut_if_its_layer_is_a_cut_layer_of_its_party(tmp_path):
    leaks = [leak("norm", "f1", 0.99), leak("norm", "f2", 0.6), leak("norm", "f1", 0.7, party="b")]
    leaks += [leak("norm", "wide", 0.8), leak("norm", "f2", 1.0, party="label", visible=False)]
    for facts, worst in (
        ({"cut_layers": {"a": ["f2"], "b": ["f1"]}}, 0.7),
        ({"cut_layers": {"a": ["f2", "wide"], "b": ["f1"]}}, 0.8),
        ({"cut_layers": {"a": ["f1"], "b": ["f2"]}}, 0.99),
        ({"cut_layers": {}}, math.nan),
        (None, 0.8),  # an older run: the last visible layers and the linear part
    ):
        folder = write_run(tmp_path / str(worst) / str(facts is None), leaks=leaks, facts=facts)
        (group,) = group_runs(read_tree([folder]).runs)
        assert group.interval("leak_auc").mean == pytest.approx(worst, nan_ok=True), facts
    assert group.interval("leak_auc", "all").mean == 0.99
    assert group.interval("leak_auc", "f2").mean == 1.0  # a named layer counts although it is hidden
