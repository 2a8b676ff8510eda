"""Sections and their tables: what is averaged, compared and named, and what each format makes of texts of strangers."""

import json
import math

import pandas as pd
import pytest
from report.drawn import section_of
from support.outputs_tree import interval, leak, marvell, reading, rebuilt, sweep, write_adversarial_run, write_run

from vflbench.errors import UserError
from vflbench.numerics.interval import Interval, OverRuns
from vflbench.report.group import data_parts, sections
from vflbench.report.tables import Table, attacks, csv_text, printed, resolved, tables
from vflbench.report.words import text_of
from vflbench.results.runs import read_tree

ATTACKS = {
    "direct": {"level": "messages only", "knows": ["gradients"]},
    "spectral": {"level": "messages only", "knows": ["embeddings"]},
    "completion": {"level": "known labels", "knows": ["embeddings"], "known_rows": 20},
}


def made(root, by=(), **wishes):
    """Name -> table of the only section."""
    runs = read_tree([root]).runs
    (section,) = sections(runs, by=resolved(runs, by), **wishes)
    return {table.slug.removeprefix(f"{section.slug}_"): table for table in tables(section)}


def lines(table):
    """First cell -> column -> text without the interval."""
    texts = table.texts.map(lambda text: text.split(" (")[0])
    return texts.set_index(texts.columns[0]).to_dict("index")


def test_numbers_are_means_over_seeds_with_their_spread(tmp_path):
    of = made(sweep(tmp_path))
    settings = lines(of["settings"])
    assert list(settings) == ["none", "marvell, sumkl 0.16", "marvell, sumkl 0.04"]
    one = settings["marvell, sumkl 0.04"]
    figures = {"test AUC": "0.720", "log loss": "0.500", "leak AUC": "0.530", "|leak AUC - 0.5|": "0.030", "runs": "3"}
    figures |= {"ceiling, one message": "0.540", "ceiling, all messages": "0.640", "worst attack": "norm on gradients"}
    assert one == one | figures | {"beside": "none", "change of test AUC": "-0.050"}
    distance = math.sqrt(0.5 * 0.03**2 + 0.5 * 0.05**2)
    assert float(one["DCS (beta 0.5)"]) == pytest.approx(1 / (1 + distance), abs=5e-4)
    assert [*of["worst"].texts["setting"]] == ["none", "marvell, sumkl 0.16", "marvell, sumkl 0.04"]  # what leaks most first
    assert lines(of["worst"])["marvell, sumkl 0.04"]["change of test AUC"] == "-0.050"
    cost = lines(of["cost"])["none"]
    parts = [cost[name] for name in ("seconds a run", "MB sent in training", "of which")]
    assert parts == ["2.500", "1.500", "embedding 1, gradient 0.5"]
    assert "(0.695 to 0.745)" in of["settings"].texts.set_index("setting").at["marvell, sumkl 0.04", "test AUC"]


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    of = made(sweep(tmp_path, seeds=1))["settings"]
    assert of.texts.iloc[0]["test AUC"] == "0.760 (1 run: no interval)"
    assert of.csv().startswith("setting,runs,test AUC,test AUC low,test AUC high,")
    assert "\nnone,1,0.76,,," in of.csv()


def test_recordings_of_the_same_rows_stand_in_one_table_with_their_difference(tmp_path):
    for name, reads in (("recorded", 0.95), ("defended", 0.6)):
        facts = {"kind": "audit", "source": {"path": f"/x/{name}", "state": name * 2}, "data": {"fingerprint": "f" * 64}}
        write_run(tmp_path / name, norm=reads, facts=facts, config={"recording": f"/x/{name}", "seed": None}, test_auc=None)
    change = made(tmp_path)["settings"].frame.set_index("setting").loc["defended"]
    assert change["beside"] == "recorded"
    assert change["change of leak AUC"].mean == pytest.approx(-0.35)


def test_an_adversary_stands_beside_its_honest_run(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"none{seed}", seed=seed)
        write_adversarial_run(tmp_path / f"scaled{seed}", seed=seed, test_auc=0.7, norm=0.99, honest_auc=0.76 + 0.02 * seed)
    row = lines(made(tmp_path)["settings"])["none, adversary scaled"]
    names = ("test AUC", "test AUC, honest", "change of test AUC from honest", "leak AUC, honest", "leak AUC")
    assert [row[name] for name in names] == ["0.700", "0.770", "-0.070", "0.900", "0.990"]


def test_levels_of_knowledge_are_kept_apart_in_the_verdict(tmp_path):
    for seed, value in enumerate((0.90, 0.96)):
        worst = reading("direct", value, value - 0.02, value + 0.02)
        levels = {"messages only": worst, "known labels": reading("completion", 0.8, message="embedding")}
        changed = {"on_changed": {"known labels": reading("completion", 0.7)}, "changed": ["gradient"]}
        falls = worst | {"because": "above the ceiling"} if seed else None
        judged = {"levels": levels, "references": {"probe": reading("probe", 0.99)}, "falls": falls} | changed
        write_run(tmp_path / f"m{seed}", seed=seed, verdict=judged, facts={"threats": ATTACKS}, **marvell(0.16, 0.68))
    rows = made(tmp_path)["verdicts"].frame.set_index("knows")
    falls, best, known = (rows.loc[name] for name in ("falls to", "messages only", "known labels"))
    assert (falls["worst attack"], falls["runs"], best["runs"]) == ("direct on gradients", 1, 2)
    reads = best["its leak AUC"]
    assert (reads.mean, reads.low, reads.high) == pytest.approx((0.93, 0.88, 0.98))
    assert known["worst attack"] == "completion on embeddings"
    assert rows["its leak AUC"]["known labels, of what the defense changes"].mean == pytest.approx(0.7)
    assert rows["its leak AUC"]["reference: probe"].mean == pytest.approx(0.99)


def test_a_column_for_each_number_of_known_rows(tmp_path):
    target = "vflbench.attacks.completion.Completion"
    attacks = {"few": {"_target_": target, "known": 20}, "many": {"_target_": target}, "norm": {"_target_": "x.Norm"}}
    found = [leak("few", "f2", 0.6), leak("many", "f2", 0.7), leak("norm", "f2", 0.99)]
    write_run(tmp_path / "a", leaks=found, config={"attack": attacks})
    row = lines(made(tmp_path)["known_labels"])["none"]
    assert (row["message"], row["20 known"], row["100 known"]) == ("embeddings", "0.600", "0.700")


def test_details_of_other_kinds_of_runs(tmp_path):
    classes = {"classes": {"accuracy": interval(0.3), "ami": interval(0.2), "macro_auc": interval(0.6)}}
    privacy = {"epsilon": 1.0, "delta": 1e-6, "releases": [{"defense": "d", "mechanism": "m", "epsilon": 1.0, "times": 1}]}
    clipped = {"party": "a", "layer": "f2", "message": "gradient", "figure": "clipped_share", "value": 0.25}
    given = {"dataset": "digits", "test_auc": None, "test_accuracy": 0.8, "figures": [clipped], "privacy": privacy}
    given |= {"leaks": [leak("kmeans", "f2", None, message="embedding") | classes]}
    given |= {"skipped": {"norm": "it tells 2 classes apart"}, "unscored": {"averaging": "too few rows"}}
    for seed in (0, 1):
        answers = [rebuilt(hamming=0.1 + 0.1 * seed) | {"beats_every_guess": True}]
        write_run(tmp_path / f"digits{seed}", seed=seed, reconstructions=answers, **given)
    of = {name: lines(table) for name, table in made(tmp_path).items()}
    assert of["reconstructions"]["none"]["hamming"] == "0.150"
    assert of["reconstructions"]["none"]["beats every guess"] == "2 of 2 runs"
    assert of["skipped"]["norm"]["why"] == "it tells 2 classes apart"
    assert of["figures"]["none"]["clipped share"] == "0.250"
    assert of["ledger"]["none"]["eps of all seeds together"] == "2.000"
    assert of["layers"]["none"]["adjusted mutual information"] == "0.200"
    assert of["attacks"]["none"]["kmeans on embeddings, messages only"] == "0.200"


def test_a_line_for_each_value_of_an_option_and_nothing_but_seeds_averaged_in_it(tmp_path):
    runs = read_tree([sweep(tmp_path)]).runs
    (section,) = sections(runs, by=resolved(runs, ["sumkl"]))
    table = attacks(section)
    head = [list(row)[:6] for row in table.texts.map(lambda text: text.split(" (")[0]).to_numpy()]
    assert head == [
        ["-", "none", "3", "0.770", "0.910", "norm on gradients"],
        ["0.04", "marvell, sumkl 0.04", "3", "0.720", "0.530", "norm on gradients"],
        ["0.16", "marvell, sumkl 0.16", "3", "0.752", "0.580", "norm on gradients"],
    ]
    assert all(len(line) <= 80 and line.isprintable() for line in printed(section))
    assert any("0.720" in line for line in printed(section))


def test_a_key_that_compares_nothing_or_may_be_several_is_refused_with_those_that_are_meant(tmp_path):
    for eps in (1, 2):
        write_run(tmp_path / "several" / f"l{eps}", defense={"label_dp": {"eps": eps}})
        write_run(tmp_path / "several" / f"a{eps}", defense={"alibi": {"eps": eps}})
    sweep(tmp_path / "one", seeds=1)
    for folder, key, problem in (
        ("one", "sumlk", "no run has this option; did you mean sumkl[?]; these vary: .*defense.marvell.sumkl"),
        ("one", "epochs", "it has one value in the runs of each data set and experiment; these vary: .*marvell.sumkl"),
        ("several", "eps", r"it may be defense\.\w+\.eps or defense\.\w+\.eps; write the whole key"),
    ):
        with pytest.raises(UserError, match=f"^--by={key}: .*{problem}"):
            resolved(read_tree([tmp_path / folder]).runs, [key])


@pytest.mark.slow
def test_a_leak_is_the_strongest_reading_at_any_layer_that_an_attacker_sees_or_where_it_is_asked_for(tmp_path):
    write_run(tmp_path / "a", leaks=[leak("norm", "f1", 0.9), leak("norm", "f2", 0.3), leak("norm", "h1", 1, visible=False)])
    expected = {None: 0.9, "all": 0.9, "cut": 0.7, "h1": 1.0}
    for layer, value in expected.items():
        assert section_of(tmp_path, layer=layer).values("leak_auc")[0] == pytest.approx(value)
    assert section_of(tmp_path).values("leak_auc:norm on gradients")[0] == pytest.approx(0.9)
    with pytest.raises(UserError, match="f1, f2, h1, cut, all"):
        section_of(tmp_path, layer="f9")
    with pytest.raises(UserError, match="they have leak_auc"):
        section_of(tmp_path, x="no_such_thing")


def test_only_settings_that_the_same_attacks_read_on_the_same_rows_stand_on_one_front(tmp_path):
    attacks = {"attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm"}, "spectral": {}}}
    both = [leak("norm", "f2", 0.9), leak("spectral", "f2", 0.95)]
    write_run(tmp_path / "a", leaks=both, config=attacks)
    write_run(tmp_path / "b", leaks=both, config=attacks, **marvell(0.16, 0.68))
    write_run(tmp_path / "weakly_attacked", norm=0.51, **marvell(0.04, 0.54))
    write_run(tmp_path / "longer", leaks=both, config=attacks | {"epochs": 9}, epochs=9)
    write_run(tmp_path / "coin", leaks=both, config=attacks, test_auc=0.45, **marvell(0.01, 0.52))
    write_run(tmp_path / "few", leaks=both, config=attacks, test_positives=12, test_auc_low=0.6, **marvell(0.02, 0.52))
    write_run(tmp_path / "rows", leaks=both, config=attacks, facts={"data": {"path": "x/train.txt"}}, **marvell(0.32))
    front = section_of(tmp_path).front
    assert len(front.settings) == 2
    reasons = sorted(front.left_out.values())
    assert reasons[:3] == ["it has other rows", "it was trained for 9 epochs", "it wasn't attacked by spectral"]
    assert reasons[3:] == ["its model learned nothing"] * 2


def test_a_table_of_ones_own_is_named_by_its_file(tmp_path):
    named = (("a", "csv", "x/my.csv"), ("b", "csv", "x/shop.csv"), ("c", "criteo", "x/day_0.gz"))
    for seed, (name, dataset, path) in enumerate(named):
        write_run(tmp_path / name, seed=seed, dataset=dataset, facts={"data": {"path": path, "file_sha256": name * 64}})
    assert [data for _, data, _ in data_parts(read_tree([tmp_path]).runs)] == ["criteo", "my.csv", "shop.csv"]
    write_run(tmp_path / "d", seed=3, dataset="criteo", facts={"data": {"path": "x/day_1.gz", "file_sha256": "d" * 64}})
    names = [data for _, data, _ in data_parts(read_tree([tmp_path]).runs)]
    assert names == ["criteo, day_0.gz", "criteo, day_1.gz", "my.csv", "shop.csv"]
    titles = [section.slug for section in sections(read_tree([tmp_path]).runs)]
    assert titles == ["runs_criteo_day_0_gz", "runs_criteo_day_1_gz", "runs_my_csv", "runs_shop_csv"]


def test_a_defense_has_one_colour_in_all_sections_and_its_settings_a_shape_each(tmp_path):
    sweep(tmp_path, seeds=1)
    write_run(tmp_path / "other", seed=1, dataset="avazu", **marvell(0.04))
    first, second = sections(read_tree([tmp_path]).runs)
    assert first.styles == second.styles
    looks = {name: first.styles[name] for name in ("none", "marvell, sumkl 0.04", "marvell, sumkl 0.16")}
    assert len(set(looks.values())) == 3
    assert looks["marvell, sumkl 0.04"].colour == looks["marvell, sumkl 0.16"].colour == first.styles["marvell"].colour
    for name in ("max_norm", "alibi", "dcor"):
        write_run(tmp_path / name, defense={name: {}})
    (_, section) = sections(read_tree([tmp_path]).runs)
    assert len({section.styles[name].shape for name in section.settings.index}) == 6, "in print without colours"
    assert first.styles["norm on gradients"].colour not in {style.colour for style in looks.values()}


HOSTILE = r"<script>alert(1)</script> & \input{x} 50% $a_b^c$ #1 ~{} `x` [a](b) *b* |c"


def one(*cells, **more):
    return Table("slug", f"T {HOSTILE}", pd.DataFrame([cells], columns=[f"c{i}" for i in range(len(cells))]), **more)


def test_texts_are_texts_in_every_format():
    table = one(HOSTILE, note=f"{HOSTILE}. More.")
    made_page = table.on_page()
    assert "<script" not in made_page["html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \\input" in made_page["html"]
    assert "<" not in made_page["copies"]
    latex = table.latex()
    escaped = r"<script>alert(1)</script> \& \textbackslash input\{x\} 50\% \$a\_b\textasciicircum c\$ \#1 \textasciitilde"
    assert latex.count(escaped) == 3  # caption twice, cell
    assert "<script" not in table.markdown()
    assert r"\[a\](b) \*b\* \|c" in table.markdown()
    assert r"\`x\`" in table.markdown()


def test_a_spreadsheet_computes_nothing_and_numbers_stay_numbers():
    assert one("=cmd()", -0.5, "a;@x", "-3").csv().splitlines()[1] == "'=cmd(),-0.5,a;'@x,-3"
    assert csv_text("+1.5e3") == "+1.5e3"


def test_a_cell_as_a_person_reads_it():
    for cell, text in (
        (OverRuns(0.76, math.nan, math.nan, 2), "0.760 (2 runs: no interval)"),
        (Interval(1.0, 1.0, 1.0), "1.000 (1.000 to 1.000)"),
        (Interval(math.nan, math.nan, math.nan), "-"),
        (None, "-"),
        (1234.5, "1,234"),
        (0.9996, "0.9996"),
        (0.00002, "2e-05"),
        ({"mean": 0.5, "low": 0.4, "high": None}, "0.500"),
        ({"mean": "x", "low": None, "high": None}, "mean x"),
    ):
        assert text_of(cell) == text


def test_the_page_leaves_out_what_is_empty_says_what_it_cuts_and_copies_what_it_shows():
    frame = pd.DataFrame({"a": [f"line {i}" for i in range(500)], "b": None, "c": 1.5})
    page = Table("slug", "T", frame).on_page()
    assert "<th>b</th>" not in page["html"]
    assert page["left"] == "100 more lines are in tables/slug.csv."
    copies = json.loads(page["copies"])
    assert copies["CSV"].splitlines()[:2] == ["a,c", "line 0,1.5"]
    assert len(copies["CSV"].splitlines()) == 401
    assert "line 3 & 1.500" in copies["LaTeX"]
    assert "line 3   |" in copies["Markdown"]
