"""The verdict of runs: a run's last lines, and the first table of a report."""

import csv

import pytest
from outputs_tree import interval, leak, marvell, write_run

from vflbench.report.sections import Wishes, sections
from vflbench.report.site import write_report
from vflbench.report.verdict_table import reading_of_changed, verdicts
from vflbench.results.runs import read_run
from vflbench.results.tree import read_tree

THREATS = {
    "remainder": {"knows": ["gradients"], "level": "messages only"},
    "completion": {"knows": ["gradients", "known labels"], "known_rows": 100, "level": "known labels"},
}


def reading(attack, value, half, *, message="gradient", **more):
    place = {"attack": attack, "message": message, "party": "a", "layer": "f2", "figure": "AUC"}
    return place | {"value": value, "low": value - half, "high": value + half, "readings": 30} | more


def verdict(remainder, half=0.01, *, falls=None):
    return {
        "levels": {
            "messages only": reading("remainder", remainder, half),
            "known labels": reading("completion", 0.8, 0.02, message="embedding", own_columns=0.65),
        },
        "on_changed": {"known labels": reading("completion", 0.7, 0.02)},
        "references": {"probe": reading("probe", 0.99, 0.005)},
        "falls": falls,
        "changed": ["gradient"],
    }


def exceeding(value, bounds="the leak"):
    keywords = marvell(0.16, 0.68)
    keywords["guarantees"]["marvell"] |= {
        "bounds": bounds,
        "message": "gradient",
        "assumption": "the classes are isotropic Gaussians",
        "tested": [{"party": "a", "layer": "f2", "anisotropy": 812.0, "effective_dimension_0": 3.1}],
        "assumption_holds": False,
        "exceeded": [reading("remainder", value, 0.001, ceiling=0.68, level="messages only")],
    }
    return keywords


def test_the_first_table_keeps_levels_apart_and_spans_the_intervals_of_all_seeds(tmp_path):
    falls = reading("remainder", 0.9, 0.02, because="above the ceiling of 0.680", level="messages only")
    for seed, (value, half) in enumerate([(0.90, 0.02), (0.96, 0.01)]):
        keywords = {"verdict": verdict(value, half, falls=falls if seed else None), "facts": {"threats": THREATS}}
        write_run(tmp_path / f"m{seed}", seed=seed, **keywords, **exceeding(value))
    write_run(tmp_path / "none", verdict=verdict(0.99) | {"levels": {}}, facts={"threats": THREATS})
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    table = verdicts(section)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    ours = rows["marvell"]
    assert ours["falls to"] == "remainder on gradients (1 of 2 runs)"
    assert ours["worst attack, without labels"] == "remainder on gradients"
    reads = ours["its leak AUC, without labels"]
    assert (reads.mean, reads.low, reads.high) == pytest.approx((0.93, 0.88, 0.97))
    assert ours["worst attack, with known labels"] == "completion on embeddings"
    assert ours["worst attack on changed messages, with known labels"] == "completion on gradients"
    assert ours["its leak AUC on changed messages, with known labels"].mean == pytest.approx(0.7)
    assert ours["probe, reference"].mean == pytest.approx(0.99)
    assert rows["none"]["its leak AUC, without labels"] is None


def test_a_seed_whose_worst_attack_is_on_changed_messages_counts_among_those_on_changed_messages(tmp_path):
    """Else one seed of three stands beside `runs 3`, and the worst over all layers may be below the value at the cut."""
    of_gradients = {"levels": {"known labels": reading("completion", 0.9, 0.02)}, "on_changed": {}}
    write_run(tmp_path / "m0", seed=0, verdict=verdict(0.6), facts={"threats": THREATS}, **marvell(0.16, 0.68))
    write_run(
        tmp_path / "m1", seed=1, verdict=verdict(0.6) | of_gradients, facts={"threats": THREATS}, **marvell(0.16, 0.68)
    )
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    table = verdicts(section)
    reads = dict(zip(table.columns, table.rows[0], strict=True))["its leak AUC on changed messages, with known labels"]
    assert (reads.mean, reads.low, reads.high) == pytest.approx((0.8, 0.68, 0.92))
    unread = verdict(0.6) | of_gradients | {"changed": ["embedding"]}
    assert reading_of_changed(read_run(write_run(tmp_path / "none", verdict=unread)), "known labels") is None


def test_the_page_opens_with_it_and_says_what_is_above_its_ceiling(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.report.site.files", lambda *_: ())
    keywords = {"verdict": verdict(0.9999), "facts": {"threats": THREATS}}
    write_run(tmp_path / "run", **keywords, **exceeding(0.9999))
    page = write_report([tmp_path], tmp_path / "report")
    text = page.read_text()
    assert '<p class="alarm">marvell: ABOVE THE CEILING of marvell' in text
    assert text.index("Verdict: the worst attack at each level") < text.index("Headline numbers")
    with (page.parent / "tables" / "runs_criteo_guarantees.csv").open() as file:
        (row,) = csv.DictReader(file)
    sentence = "The ceiling of marvell assumes that the classes are isotropic Gaussians, which does not hold in 1 of 1 runs."
    assert sentence in (page.parent / "tables" / "runs_criteo_settings.md").read_text()
    assert row["assumes"] == "the classes are isotropic Gaussians (tested: does not hold)"


def test_the_worst_attack_is_the_one_that_reads_most_and_not_the_largest_two_sided_mean(tmp_path):
    """Marvell's hints of 0.537 two-sided beside its cosine of 0.594, whose direction flips."""
    hidden = leak("cosine", "f2", 0.505) | {"oriented": interval(0.6), "net": interval(0.594), "coin": 0.52}
    write_run(tmp_path / "run", leaks=[leak("hints", "f2", 0.537), hidden])
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    (group,) = section.groups
    assert group.worst_attack() == "cosine on gradients"
    assert group.interval("leak_auc").mean == pytest.approx(0.594)
    assert group.interval("leak_two_sided").mean == pytest.approx(0.537)
