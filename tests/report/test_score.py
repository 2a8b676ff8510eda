"""Pareto front, tolerable leak, and the defense capability score in closed form."""

import math

import pytest
from outputs_tree import sweep
from scipy import stats

from vflbench.report.groups import group_runs
from vflbench.report.score import dcs, dcs_of, pareto, utility_at_tolerable_leak
from vflbench.results.tree import read_tree


def test_dcs_in_closed_form():
    assert dcs(0.5, 0.76, ideal_attack=0.5, ideal_utility=0.76) == 1
    assert dcs(1.0, 0.76, ideal_attack=0.5, ideal_utility=0.76) == pytest.approx(1 / (1 + 0.5 * math.sqrt(0.5)))
    assert dcs(0.8, 0.36, ideal_attack=0.5, ideal_utility=0.76) == pytest.approx(1 / (1 + math.sqrt(0.5 * (0.09 + 0.16))))
    assert dcs(0.8, 0.36, ideal_attack=0.5, ideal_utility=0.76, beta=1) == pytest.approx(1 / 1.4)
    assert dcs(0.8, 0.36, ideal_attack=0.5, ideal_utility=0.76, beta=0) == pytest.approx(1 / 1.3)


def test_dcs_takes_the_utility_of_the_undefended_run_with_the_same_seed(tmp_path):
    none, tight, _ = group_runs(read_tree([sweep(tmp_path)]).runs)
    score, pairs = dcs_of(tight, none, "test_auc", "leak_auc", None)
    assert pairs == 3
    assert (score.mean, score.low) == pytest.approx([1 / (1 + math.sqrt(0.5 * (0.03**2 + 0.05**2)))] * 2)
    undefended, _ = dcs_of(none, none, "test_auc", "leak_auc", None)
    each = [1 / (1 + math.sqrt(0.5) * (leak - 0.5)) for leak in (0.9, 0.91, 0.92)]
    assert (undefended.low, undefended.high) == pytest.approx(stats.t.interval(0.95, 2, sum(each) / 3, stats.sem(each)))
    assert dcs_of(tight, None, "test_auc", "leak_auc", None)[1] == 0


def test_the_front_is_what_nothing_dominates():
    points = [(0.7, 0.5), (0.75, 0.6), (0.74, 0.65), (0.76, 0.9), (0.76, 0.95), (math.nan, 0.1)]
    assert pareto(points) == [0, 1, 3]
    assert pareto([(-x, -y) for x, y in points], x_low=True, y_low=False) == [3, 1, 0]
    assert pareto([(1, 1), (1, 1)]) == [0, 1]  # equal points don't dominate each other


def test_utility_at_a_tolerable_leak(tmp_path):
    groups = group_runs(read_tree([sweep(tmp_path)]).runs)
    best = utility_at_tolerable_leak(groups, "test_auc", "leak_auc", None)
    assert (best.group.name, best.surely) == ("marvell, sumkl 0.04", True)
    assert best.utility.mean == pytest.approx(0.72)
    assert utility_at_tolerable_leak(groups[:1], "test_auc", "leak_auc", None) is None
