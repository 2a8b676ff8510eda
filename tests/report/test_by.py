"""`vflbench report --by`: tables along options, and nothing in a line but the seeds of one setting."""

import math

import pytest
from outputs_tree import leak, marvell, sweep, write_run

from vflbench.errors import UserError
from vflbench.report.by import WIDTH, aligned, by_table, by_tables, printed, resolved
from vflbench.report.comparison import lines, option_value
from vflbench.report.section_tables import headlines, settings
from vflbench.report.sections import Wishes, sections
from vflbench.results.tree import read_tree


def made(*folders, by):
    """The sections, with the keys resolved as the command does."""
    runs = read_tree(folders).runs
    return sections(runs, Wishes(by=resolved(runs, by)))


def test_a_line_is_a_value_with_means_over_its_seeds(tmp_path):
    (section,) = made(sweep(tmp_path), by=["sumkl"])
    (table,) = by_tables(section)
    assert table.columns[:6] == (
        "defense.marvell.sumkl",
        "defense",
        "runs",
        "test AUC",
        "leak AUC at the cut",
        "worst attack",
    )
    head = [(row[0], row[1], row[2], round(row[3].mean, 3), round(row[4].mean, 3), row[5]) for row in table.rows]
    assert head == [
        ("", "none", 3, 0.77, 0.91, "norm on gradients"),
        ("0.04", "marvell", 3, 0.72, 0.53, "norm on gradients"),
        ("0.16", "marvell", 3, 0.752, 0.58, "norm on gradients"),
    ]
    assert table.rows[0][3].runs == 3


def test_every_leak_that_is_no_worst_of_all_layers_names_its_layer(tmp_path):
    runs = read_tree([sweep(tmp_path)]).runs
    names = {None: "leak AUC at the cut", "all": "leak AUC at any layer", "f1": "leak AUC at layer f1"}
    for layer, name in names.items():
        (section,) = sections(runs, Wishes(layer=layer, by=("defense.marvell.sumkl",)))
        assert name in settings(section).columns
        assert f"its {name}" in headlines(section).columns
        assert name in by_table(section, lines(section.runs, section.by)).columns


def test_nothing_but_seeds_is_averaged_whatever_a_folder_mixes(tmp_path):
    """Of two data sets, two files, two options, two devices, two versions of the code and of the data: a line each."""
    identity = {"vflbench": "0.2.0", "code": "c" * 64, "plugins": [], "data": {"dataset.path": "d" * 64}}
    other = {
        "another file": {"config": {"dataset": {"_target_": "vflbench.data.criteo.Criteo", "path": "other.txt"}}},
        "epochs": {"config": {"epochs": 3}},
        "attack": {"config": {"attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm", "known": 3}}}},
        "device": {"facts": {"identity": identity, "device": "cuda:0"}},
        "code": {"facts": {"identity": identity | {"code": "e" * 64}}},
        "version": {"facts": {"identity": identity | {"vflbench": "0.1.0"}}},
        "data": {"facts": {"identity": identity | {"data": {"dataset.path": "e" * 64}}}},
        "older": {"facts": {}},
        "another data set": {"dataset": "synthetic", "config": {"dataset": {"_target_": "vflbench.data.synthetic.X"}}},
    }
    for seed in range(2):
        write_run(tmp_path / f"a{seed}", seed=seed, facts={"identity": identity}, **marvell(0.5))
        write_run(tmp_path / f"b{seed}", seed=seed, facts={"identity": identity}, **marvell(1.0))
    for place, (name, how) in enumerate(other.items()):
        write_run(tmp_path / name, seed=5 + place, test_auc=0.3, **{"facts": {"identity": identity}, **how}, **marvell(0.5))
    tables = [table for section in made(tmp_path, by=["sumkl"]) for table in by_tables(section)]
    counts = [(row[0], row[2]) for table in tables for row in table.rows]
    assert sorted(counts) == [*[("0.5", 1)] * (len(other) - 1), ("0.5", 2), ("1", 2)]  # the other data set is no sweep
    by_name = {(row[0], row[1]): row[3].mean for table in tables for row in table.rows}
    assert len(by_name) == len(counts), "two lines have one name"
    assert sorted(round(mean, 2) for mean in by_name.values()) == [*[0.3] * (len(other) - 1), 0.76, 0.76]
    everything = lines(read_tree([tmp_path]).runs, ["defense.marvell.sumkl"])
    assert sorted(len(line.runs) for line in everything) == [*[1] * len(other), 2, 2]


def test_lines_of_one_name_and_value_have_their_options_digest_in_it(tmp_path):
    for number in (0, 1):
        attack = {"norm": {"_target_": "vflbench.attacks.norm.Norm", **dict.fromkeys("abcd", number)}}
        write_run(tmp_path / str(number), config={"attack": attack})
    names = [line.defense for line in lines(read_tree([tmp_path]).runs, [])]
    assert len(set(names)) == 2
    assert all(", options " in name for name in names)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("seed", "runs that differ in nothing but the seed are averaged"),
        ("sumlk", "no run has this option; did you mean sumkl?"),
        ("defense.dcor.alpha_d", "no run has this option"),
        ("epochs", "it is 2 in all runs, so there is nothing to compare; these vary: defense, defense.marvell.sumkl"),
        ("dataset.path", "it is train.txt in all runs"),
    ],
)
def test_a_key_that_compares_nothing_is_refused_with_those_that_do(tmp_path, key, words):
    with pytest.raises(UserError) as caught:
        made(sweep(tmp_path, seeds=1), by=[key])
    assert str(caught.value).startswith(f"--by={key}: ")
    assert words in str(caught.value)
    assert "defense.marvell.sumkl" in str(caught.value)


def test_a_key_that_varies_only_between_data_sets_has_no_table(tmp_path):
    for name in ("criteo", "avazu"):
        config = {"dataset": {"_target_": f"vflbench.data.{name}.X", "path": name}}
        write_run(tmp_path / name, dataset=name, config=config)
    with pytest.raises(UserError, match="share no table.*no option varies"):
        made(tmp_path, by=["dataset.path"])


def test_one_of_several_keys_may_have_a_single_value(tmp_path):
    (section,) = made(sweep(tmp_path, seeds=1), by=["sumkl", "epochs"])
    (table,) = by_tables(section)
    assert [row[:2] for row in table.rows] == [["", "2"], ["0.04", "2"], ["0.16", "2"]]


def test_a_short_key_that_means_several_options_is_refused(tmp_path):
    for eps in (1, 2):
        write_run(tmp_path / f"l{eps}", defense={"label_dp": {"eps": eps}})
        write_run(tmp_path / f"a{eps}", defense={"alibi": {"eps": eps}})
    with pytest.raises(UserError, match=r"it may be defense\.alibi\.eps or defense\.label_dp\.eps; write the whole key"):
        made(tmp_path, by=["eps"])
    (section,) = made(tmp_path, by=["defense.alibi.eps", "defense.label_dp.eps"])
    assert len(by_tables(section)[0].rows) == 4


def test_what_was_chosen_is_a_key_too(tmp_path):
    (section,) = made(sweep(tmp_path, seeds=2), by=["defense"])
    rows = [row[:3] for row in by_tables(section)[0].rows]
    assert rows == [["none", "", 2], ["marvell", "sumkl 0.04", 2], ["marvell", "sumkl 0.16", 2]]
    run = section.runs[0]
    assert option_value(run, "model") == "wide_deep"
    assert option_value(run, "attack") == "norm"
    assert option_value(run, "nowhere.at.all") is None


def test_values_of_any_type_stand_in_order_and_infinity_too(tmp_path):
    for place, value in enumerate((10.0, 9, math.inf, "auto", True, None, 1e-9, [1, 2])):
        write_run(tmp_path / str(place), defense={"mine": {"_target_": "mine.D", "size": value}})
    (section,) = made(tmp_path, by=["size"])
    values = [row[0] for row in by_tables(section)[0].rows]
    assert values == ["", "true", "[1, 2]", "auto", "1e-09", "9", "10", "inf"]


def test_every_printed_line_fits_a_terminal(tmp_path):
    long = {"a_very_long_name_of_a_defense_that_somebody_wrote": {"_target_": "mine.D", "x" * 60: 1, "size": "y" * 90}}
    write_run(tmp_path / "long", defense=long, leaks=[leak("z" * 90, "f2", 0.9)])
    sweep(tmp_path / "sweep", seeds=1)
    (section,) = made(tmp_path, by=["sumkl", "defense"])
    text = printed(section)
    assert len(text) == 6
    assert all(len(line) <= WIDTH for line in text)
    assert aligned([["a" * 50] * 40]) == ["  ".join(["aaa…"] * 40)[:WIDTH]]


def test_hostile_texts_reach_no_terminal(tmp_path):
    for text in ("\x1b[31mred", "a\nb", "\u202egnp", "<b>&"):
        write_run(
            tmp_path / str(ord(text[0])), defense={text: {"_target_": text, "size": text}}, leaks=[leak(text, "f2", 0.9)]
        )
    (section,) = made(tmp_path, by=["defense"])
    assert all(line.isprintable() for line in printed(section))


def test_rebuilt_data_have_a_line_for_each_value_and_attack(tmp_path):
    def entry(attack, mse, **more):
        figures = {"mse": {"mean": mse, "low": None, "high": None}}
        return {"attack": attack, "message": "embedding", "party": "a", "layer": "f2", "figures": figures, **more}

    for levels in (2, 16):
        for seed in range(2):
            entries = [entry("inversion", 1 / levels + seed, beats_every_guess=True), entry("unsplit", 0.5)]
            defense = {"quantize": {"levels": levels}}
            write_run(tmp_path / f"q{levels}{seed}", seed=seed, defense=defense, reconstructions=entries)
    (section,) = made(tmp_path, by=["levels"])
    _, table = by_tables(section)
    assert [(row[0], row[2], row[3], row[6].mean, row[7]) for row in table.rows] == [
        ("2", "inversion", 2, 1.0, "2 of 2"),
        ("2", "unsplit", 2, 0.5, None),
        ("16", "inversion", 2, 0.5625, "2 of 2"),
        ("16", "unsplit", 2, 0.5, None),
    ]


def test_a_layer_that_no_run_has_is_refused(tmp_path):
    runs = read_tree([sweep(tmp_path)]).runs
    with pytest.raises(UserError, match="no run has a leak at this layer; they are .*, all"):
        sections(runs, Wishes(layer="zz"))
    assert sections(runs, Wishes(layer="all"))


def test_what_tells_the_lines_apart_is_cut_last():
    rows = [
        ["gaussian", f"gaussian, sigma {s}, batches auto", "2", "0.367", "0.459", "kmeans on embeddings"] for s in (0.1, 1)
    ]
    printed_lines = aligned(
        [["gaussian", "defense", "runs", "test accuracy", "adjusted mutual information", "worst"], *rows], spared=1
    )
    assert all(len(line) <= WIDTH for line in printed_lines)
    assert "sigma 0.1, " in printed_lines[1]
    assert "sigma 1, " in printed_lines[2]


def test_options_that_came_with_another_attack_are_not_among_those_that_vary(tmp_path):
    for seed, more in enumerate(({}, {"attribute": {"values": 2, "known": 100}})):
        attack = {"norm": {"_target_": "vflbench.attacks.norm.Norm", "top": 0.1 * (seed + 1)}, **more}
        write_run(tmp_path / str(seed), config={"attack": attack})
    with pytest.raises(UserError, match="it is none in all runs, .*; these vary: attack, attack.norm.top$"):
        resolved(read_tree([tmp_path]).runs, ["defense"])
