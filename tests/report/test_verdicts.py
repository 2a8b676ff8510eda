"""The verdict of runs: a run's last lines, and the first table of a report."""

import csv

import pytest
from outputs_tree import interval, leak, marvell, write_run

from vflbench.report.sections import Wishes, sections
from vflbench.report.site import write_report
from vflbench.report.terminal import final_table
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


def test_the_last_line_names_the_worst_attack_at_each_level_and_the_probe(tmp_path):
    write_run(tmp_path / "run", test_auc=0.729, verdict=verdict(0.6), facts={"threats": THREATS}, **marvell(0.16, 0.68))
    assert final_table(tmp_path / "run").splitlines()[-1] == (
        "marvell: test AUC 0.729; without labels remainder reads 0.6000 (the worst: 0.590 .. 0.610) of gradients at a f2; "
        "with 100 known labels completion reads 0.8000 (the worst: 0.780 .. 0.820) of embeddings at a f2, own columns "
        "0.650, which marvell leaves as they are (completion reads 0.7000 (the worst: 0.680 .. 0.720) of gradients at a "
        "f2); probe 0.990"
    )
    write_run(tmp_path / "none", test_auc=0.76, verdict=verdict(0.6), facts={"threats": THREATS})
    assert final_table(tmp_path / "none").splitlines()[-1].startswith("no defense: test AUC 0.760; without labels remainder")


def test_a_leak_above_a_ceiling_that_rounds_to_one_has_digits_that_show_it(tmp_path):
    keywords = exceeding(1.0, "what the messages add about one row, given everything else")
    keywords["guarantees"]["marvell"]["exceeded"][0] |= {"low": 1.0, "ceiling": 1 - 8e-13}
    write_run(tmp_path / "run", verdict=verdict(0.6), **keywords)
    assert "at least 1, above the ceiling of 1 - 8e-13" in final_table(tmp_path / "run")


def test_the_last_line_says_who_cheats_and_what_was_rebuilt(tmp_path):
    none = {"levels": {}, "on_changed": {}, "references": {}, "falls": None, "changed": []}
    entries = [
        {
            "attack": attack,
            "message": "embedding",
            "party": party,
            "layer": "f2",
            "visible": True,
            "figures": {},
            "batches": 1,
        }
        | {"notes": {}, "beats_every_guess": beats, "beats_guesses": {}, "told_apart": True, "rows": 32}
        for attack, party, beats in (("hijack", "a", True), ("hijack", "b", False), ("unsplit", "a", False))
    ]
    cheat = {"hijack": {"party": "label", "text": "It sends gradients of its own."}}
    more = {"leaks": [], "reconstructions": entries, "facts": {"adversary": cheat}}
    write_run(tmp_path / "run", test_auc=0.9, verdict=none, **more)
    assert final_table(tmp_path / "run").splitlines()[-1] == (
        "no defense: hijack cheats at party label; test AUC 0.900; hijack rebuilds a better than every guess; "
        "unsplit does not significantly beat every guess"
    )


def test_a_defense_that_falls_says_so_first_and_its_ceiling_is_printed_with_what_was_tested(tmp_path):
    falls = reading("remainder", 0.9999, 0.0001, because="above the ceiling of 0.680", level="messages only")
    run = {"verdict": verdict(0.9999, 0.0001, falls=falls), "facts": {"threats": THREATS}}
    table = final_table(write_run(tmp_path / "run", **run, **exceeding(0.9999)))
    *_, alarm, last = table.splitlines()
    assert alarm == (
        "ABOVE THE CEILING of marvell, whose assumption does not hold here: the classes are isotropic Gaussians; remainder, "
        "without labels, reads 0.9999 of gradients at a f2, at least 0.999, above the ceiling of 0.680"
    )
    assert last.startswith("marvell FALLS to remainder, which reads 0.9999, above the ceiling of 0.680: test AUC")
    assert "tested on the messages of this run, IT DOES NOT HOLD, so nothing is promised (anisotropy 812.0 standard" in table


def test_a_ceiling_of_label_privacy_is_explained(tmp_path):
    bounds = "what the messages add about one row, given everything else"
    run = {"verdict": verdict(0.8), "facts": {"threats": THREATS}}
    table = final_table(write_run(tmp_path / "run", **run, **exceeding(0.8, bounds)))
    assert "This breaks no promise: the ceiling is on what the messages add about one row" in table.splitlines()[-2]


def test_many_leaks_are_shown_by_their_worst_layer_and_the_cut(tmp_path):
    names = ["norm", *(f"attack{i}" for i in range(4))]
    leaks = [leak(name, f"f{layer}", 0.5 + 0.04 * layer) for name in names for layer in (1, 3, 4, 5, 2, 6)]
    facts = {"cut_layers": {"a": ["f2"]}, "layers": {"a": [f"f{i}" for i in range(1, 7)], "label": []}}
    table = final_table(write_run(tmp_path / "run", leaks=leaks, facts=facts))
    rows = [line.split() for line in table.splitlines() if line.split()[:1] and line.split()[0] in names]
    assert [(row[0], row[3]) for row in rows] == [(name, layer) for name in names for layer in ("f2", "f6")]
    assert "20 more rows, of other layers, are in metrics.csv and in summary.json" in table


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


def test_an_older_run_has_its_worst_attacks_without_an_interval(tmp_path):
    leaks = [leak("norm", "f2", 0.3), leak("hints", "f2", 0.8), leak("no_message", "features", 0.9, message="none")]
    threats = {
        "norm": {"knows": ["gradients"]},
        "hints": {"knows": ["gradients", "known positives of each batch"], "hints": 3},
    }
    write_run(tmp_path / "run", leaks=leaks, facts={"threats": threats})
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    table = verdicts(section)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["worst attack, without labels"], row["worst attack, with known labels"]) == (
        "norm on gradients",
        "hints on gradients",
    )
    assert row["its leak AUC, without labels"].mean == pytest.approx(0.7)
    assert "FALLS" not in final_table(tmp_path / "run")


def test_the_worst_attack_is_the_one_that_reads_most_and_not_the_largest_two_sided_mean(tmp_path):
    """Marvell's hints of 0.537 two-sided beside its cosine of 0.594, whose direction flips."""
    hidden = leak("cosine", "f2", 0.505) | {"oriented": interval(0.6), "net": interval(0.594), "coin": 0.52}
    write_run(tmp_path / "run", leaks=[leak("hints", "f2", 0.537), hidden])
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    (group,) = section.groups
    assert group.worst_attack() == "cosine on gradients"
    assert group.interval("leak_auc").mean == pytest.approx(0.594)
    assert group.interval("leak_two_sided").mean == pytest.approx(0.537)
