"""Lines of runs: means over seeds, and the worst party at the cut."""

import math

import pytest
from outputs_tree import leak, write_run
from scipy import stats

from vflbench.report.comparison import attacks_of, leak_of, lines, read_runs

BY = ["defense.marvell.sumkl"]
CUTS = {"cut_layers": {"a": ["f5"], "b": ["f5"]}}


def save(folder, raw, *, defense=None, promise=None, **options):
    """A run whose largest leak at the cut is that of party a."""
    leaks = [leak("norm", "f1", 0.99), leak("norm", "f5", raw), leak("norm", "f5", 0.5, party="b")]
    leaks += [leak("norm", layer, value, party="label", visible=False) for layer, value in (("f5", 1.0), ("h3", 0.7))]
    guarantees = dict.fromkeys(defense or {}, promise)
    write_run(folder, defense=defense, leaks=leaks, guarantees=guarantees, facts=CUTS, **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed, (test_auc, raw) in enumerate([(0.76, 0.9), (0.75, 0.92), (0.77, 0.91)]):
        save(folder / f"none{seed}", raw, seed=seed, test_auc=test_auc)
    for sumkl, raw in ((math.inf, 0.91), (0.16, 0.52), (0.04, 0.45)):
        promise = None if math.isinf(sumkl) else {"leak_auc_one_message": 0.5 + sumkl, "leak_auc_all_messages": 0.9}
        for seed in range(2):
            defense = {"marvell": {"sumkl": sumkl}}
            save(folder / f"m{sumkl}{seed}", raw, seed=seed, test_auc=0.7, defense=defense, promise=promise)
    (folder / "unfinished").mkdir()
    return read_runs([folder])


def test_runs_that_differ_only_in_their_seed_make_one_line(runs):
    assert [(line.defense, line.options[0], len(line.runs)) for line in lines(runs, BY)] == [
        ("none", None, 3),
        ("marvell", 0.04, 2),
        ("marvell", 0.16, 2),
        ("marvell", math.inf, 2),
    ]
    assert attacks_of(runs) == ["norm"]


def test_means_have_students_interval_over_seeds(runs):
    interval = lines(runs, BY)[0].over_seeds("test_auc")
    expected = stats.t.interval(0.95, 2, 0.76, stats.sem([0.75, 0.76, 0.77]))
    assert (interval.low, interval.high) == pytest.approx(expected)


def test_the_leak_is_that_of_the_worst_party_at_the_cut(runs):
    none, tight = lines(runs, BY)[:2]
    assert none.over_seeds("raw", "norm").mean == pytest.approx(0.91)
    assert none.over_seeds("raw", "norm", "f1").mean == pytest.approx(0.99)
    assert tight.over_seeds("two_sided", "norm").mean == pytest.approx(0.55)
    assert tight.over_seeds("distance", "norm").mean == pytest.approx(0.05)
    assert none.over_seeds("raw", "norm", "h3").mean == pytest.approx(0.7)
    assert math.isnan(none.over_seeds("raw", "cosine").mean)


def test_each_party_has_a_cut_layer_of_its_own(tmp_path):
    leaks = [leak("norm", "f1", 0.99), leak("norm", "f3", 0.6), leak("norm", "f1", 0.7, party="b")]
    write_run(tmp_path / "run", leaks=leaks, facts={"cut_layers": {"a": ["f3"], "b": ["f1"]}})
    (run,) = read_runs([tmp_path])
    assert leak_of(run, "norm")["raw"] == 0.7
