"""Tables that a section has because of what was run, from runs written by hand."""

import json
import math

import numpy as np
import pytest
from outputs_tree import interval, leak, write_run

from vflbench.report.extra_figures import extra_figures
from vflbench.report.extra_plots import extra_plots
from vflbench.report.extras import extra_tables
from vflbench.report.price_of_privacy import commands
from vflbench.report.sections import Wishes, sections
from vflbench.results.table_formats import text_of
from vflbench.results.tree import read_tree

THREATS = {
    "direct": {"level": "messages only", "text": "", "knows": ["gradients"]},
    "spectral": {"level": "messages only", "text": "", "knows": ["embeddings"]},
    "completion": {"level": "known labels", "text": "", "knows": ["embeddings"], "known_rows": 20},
}
ATTACKS = {name: {"_target_": f"vflbench.attacks.{name}.{name.title()}"} for name in THREATS}
COMPLETION = "vflbench.attacks.completion.Completion"


def one_section(folder):
    (section,) = sections(read_tree([folder]).runs, Wishes())
    return section


def table_of(folder, ending):
    """The only table of this name, as text."""
    section = one_section(folder)
    (table,) = [table for table in extra_tables(section) if table.slug == f"{section.slug}_{ending}"]
    return table


def texts(table, columns=None):
    places = [table.columns.index(name) for name in columns] if columns else range(len(table.columns))
    return [[text_of(row[place]).split(" (")[0] for place in places] for row in table.rows]


def attacked(folder, seed, *, direct, completion, **options):
    leaks = [
        leak("direct", "f1", direct - 0.1),
        leak("direct", "f2", direct),
        leak("direct", "h1", 1.0, visible=False),
        leak("spectral", "f2", 0.3, message="embedding"),
        leak("completion", "f2", completion, message="embedding"),
        leak("completion (own columns)", "features", 0.55, message="none"),
        leak("probe", "gradients", 0.8, message="none"),
        leak("probe", "embeddings", 0.9, message="none"),
    ]
    facts = {"threats": THREATS, "cut_layers": {"a": ["f2"]}}
    return write_run(folder, seed=seed, leaks=leaks, **{"config": {"attack": ATTACKS}, "facts": facts, **options})


def promise(ceiling, holds=None):
    return {"leak_auc_all_messages": ceiling, "assumption_holds": holds}


@pytest.fixture
def matrix(tmp_path):
    for seed in (0, 1):
        auc = {"test_auc": 0.74 + 0.02 * seed, "experiment": "matrix"}
        attacked(tmp_path / f"none{seed}", seed, direct=0.98, completion=0.7 + 0.1 * seed, **auc)
        label_dp = {"label_dp": {"_target_": "vflbench.defenses.label_dp.LabelDp", "eps": 0.753}}
        how = {"defense": label_dp, "guarantees": {"label_dp": promise(0.68)}, "experiment": "matrix"}
        attacked(tmp_path / f"dp{seed}", seed, direct=0.6, completion=0.66, **how)
        marvell = {"marvell": {"_target_": "vflbench.defenses.marvell.Marvell", "sumkl": 0.16}}
        how = {"defense": marvell, "guarantees": {"marvell": promise(0.6, holds=False)}, "experiment": "matrix"}
        attacked(tmp_path / f"m{seed}", seed, direct=0.95, completion=0.6, **how)
    return tmp_path


def test_the_matrix_has_each_attack_at_its_worst_visible_layer_and_the_strongest_of_each_level(matrix):
    table = table_of(matrix, "matrix")
    assert table.columns == (
        *("setting", "runs", "test AUC", "ceiling", "strongest, messages only", "which, messages only"),
        *("strongest, known labels", "which, known labels", "direct, messages only", "spectral, messages only"),
        *("completion, known labels", "probe, reference", "own columns, reference"),
    )
    rest = ["which, messages only", "which, known labels"]
    assert texts(table, ["setting", "runs", "test AUC", "ceiling", "strongest, messages only", *rest]) == [
        ["none", "2", "0.750", "-", "0.980", "direct", "completion"],
        ["marvell", "2", "0.760", "refuted", "0.950", "direct", "completion"],
        ["label_dp", "2", "0.760", "0.680", "0.700", "spectral", "completion"],
    ]
    assert texts(table, table.columns[8:]) == [
        ["0.980", "0.700", "0.750", "0.900", "0.550"],
        ["0.950", "0.700", "0.600", "0.900", "0.550"],
        ["0.600", "0.700", "0.660", "0.900", "0.550"],
    ]


def test_runs_of_different_data_are_different_lines_of_the_matrix(matrix):
    """The script before averaged whatever had one defense."""
    data = {"dataset": {"_target_": "vflbench.data.criteo.Criteo", "path": "other.txt"}}
    attacked(matrix / "other", 5, direct=0.6, completion=0.6, experiment="matrix", config={"attack": ATTACKS, **data})
    names = [row[0] for row in texts(table_of(matrix, "matrix"))]
    assert sorted(names) == sorted(
        ["none, path train.txt", "none, path other.txt", "marvell, path train.txt", "label_dp, path train.txt"]
    )


def test_the_strongest_attack_is_named_for_each_message_and_level(tmp_path):
    threats = {**THREATS, "gradient_completion": THREATS["completion"]}
    leaks = [
        leak("direct", "f1", 0.9),
        leak("norm", "f1", 0.6),
        leak("spectral", "f2", 0.3, message="embedding"),
        leak("completion", "f2", 0.8, message="embedding"),
        leak("completion", "h1", 1.0, message="embedding", visible=False),
        leak("gradient_completion", "f2", 0.95),
        leak("probe", "gradients", 0.99, message="none"),
    ]
    for seed in range(3):
        write_run(tmp_path / str(seed), seed=seed, leaks=leaks, facts={"threats": threats})
    (row,) = texts(table_of(tmp_path, "strongest"))
    assert row[4:] == [
        *("0.900", "direct", "0.700", "spectral", "0.950", "gradient_completion", "0.800", "completion"),
        *("0.990", "-", "-"),
    ]


def known(folder, seed, leaks, **options):
    attacks = {
        "few": {"_target_": COMPLETION, "known": 20},
        "many": {"_target_": COMPLETION},  # 100, the default
        "joined": {"_target_": COMPLETION, "known": 100, "message": "both"},
        "norm": {"_target_": "vflbench.attacks.norm.Norm"},
    }
    found = [leak(name, "f2", value, message="embedding") for name, value in leaks.items()]
    return write_run(folder, seed=seed, leaks=found, config={"attack": attacks}, **options)


def test_a_column_for_each_number_of_known_rows(tmp_path):
    for seed in (0, 1):
        leaks = {"few": 0.6 + 0.02 * seed, "many": 0.7, "joined": 0.9, "norm": 0.99}
        known(tmp_path / f"none{seed}", seed, leaks, test_auc=0.8)
        known(tmp_path / f"dcor{seed}", seed, {"few": 0.4, "many": 0.6}, test_auc=0.75, defense={"dcor": {"alpha_d": 0.02}})
    table = table_of(tmp_path, "known_labels")
    assert table.columns == ("setting", "message", "runs", "train AUC", "20 known", "100 known")
    assert texts(table) == [
        ["none", "embeddings", "2", "0.800", "0.610", "0.700"],
        ["none", "both", "2", "0.800", "-", "0.900"],
        ["dcor", "embeddings", "2", "0.750", "0.600", "0.600"],
    ]


def test_the_gain_is_over_the_best_guess_that_needs_no_truth(tmp_path):
    def rebuilt(attack, layer, mse, message="embedding"):
        place = {"attack": attack, "message": message, "party": "a", "layer": layer, "visible": True}
        return place | {"figures": {"mse": interval(mse)}, "batches": 1, "notes": {}}

    guesses = {"mean": 0.10, "class_mean": 0.08, "random_row": 0.16, "nearest_row": 0.01, "true": 0.0}
    for name, mse, defense in (("none", 0.02, {}), ("exact", 0.0, {"a": {}}), ("worse", 0.16, {"b": {}})):
        for seed in range(3):
            entries = [rebuilt("inversion", "f3", mse)]
            entries += [rebuilt("inversion", guess, value, "none") for guess, value in guesses.items()]
            config = {"attack": {"inversion": {"_target_": "vflbench.attacks.model_inversion.ModelInversion"}}}
            write_run(tmp_path / f"{name}{seed}", seed=seed, config=config, defense=defense, reconstructions=entries)
    rows = {row[0]: row[-1] for row in texts(table_of(tmp_path, "gains"))}
    assert rows == {"none": "0.750", "a": "1.000", "b": "-1.000"}


def priced(folder, *, seed, lr, epochs, validation, test, eps=None, **data):
    defense = {} if eps is None else {"label_dp": {"eps": eps, "mechanism": "zero_sum", "target": "auto"}}
    dataset = {"_target_": "vflbench.data.criteo.Criteo", "path": "a b.txt", "min_count": 5, **data}
    config = {"optimizer": {"lr": lr}, "epochs": epochs, "dataset": dataset}
    auc = {"test_auc": test, "validation_auc": validation, "experiment": "price_of_privacy"}
    run = write_run(
        folder, seed=seed, defense=defense, guarantees={"label_dp": promise(0.68)} if eps else {}, config=config, **auc
    )
    manifest = json.loads((run / "manifest.json").read_text())
    words = ["defense=label_dp", "defense.label_dp.mechanism=zero_sum", f"defense.label_dp.eps={eps}"] if eps else []
    manifest |= {"overrides": words, "choices": manifest["choices"] | {"defense": "label_dp" if eps else "none"}}
    (run / "manifest.json").write_text(json.dumps(manifest))


def test_validation_rows_of_the_first_seed_choose_the_rate_and_test_rows_are_shown(tmp_path):
    for lr, validation, test in ((0.1, 0.70, 0.79), (0.2, 0.75, 0.71), (0.3, 0.72, 0.78)):
        priced(tmp_path / f"z{lr}", seed=0, lr=lr, epochs=2, validation=validation, test=test, eps=0.75)
    priced(tmp_path / "other", seed=1, lr=0.2, epochs=2, validation=0.5, test=0.73, eps=0.75)
    priced(tmp_path / "best_elsewhere", seed=1, lr=0.3, epochs=2, validation=0.9, test=0.99, eps=0.75)
    priced(tmp_path / "fewer_rows", seed=1, lr=0.2, epochs=2, validation=0.9, test=0.99, eps=0.75, rows=100)
    priced(tmp_path / "none", seed=0, lr=0.1, epochs=1, validation=0.8, test=0.8)
    table = table_of(tmp_path, "price")
    assert table.columns[:5] == ("defense", "ceiling", "test AUC, 1 epoch", "rate, 1", "runs, 1")
    assert texts(table) == [
        ["none", "-", "0.800", "0.1", "1", "-", "-", "-"],
        ["label_dp zero_sum", "0.680", "-", "-", "-", "0.720", "0.2", "2"],
        ["label_dp zero_sum, rows 100", "0.680", "-", "-", "-", "0.990", "0.2", "1"],
    ]


def test_commands_make_the_runs_of_other_seeds_at_the_chosen_rate(tmp_path):
    priced(tmp_path / "a", seed=0, lr=0.1, epochs=2, validation=0.7, test=0.7, eps=0.753)
    priced(tmp_path / "b", seed=0, lr=0.1, epochs=2, validation=0.8, test=0.8)
    start = "vflbench train experiment=price_of_privacy dataset=criteo 'dataset.path=a b.txt' dataset.min_count=5 epochs=2 "
    zero_sum = "defense=label_dp defense.label_dp.mechanism=zero_sum defense.label_dp.eps="
    assert sorted(commands(one_section(tmp_path))) == [
        f"{start}optimizer.lr=0.1 seed=0,1,2 {zero_sum}1.076",
        f"{start}optimizer.lr=0.1 seed=1,2 {zero_sum}0.753",
        f"{start}optimizer.lr=0.1 seed=1,2 defense=none",
    ]
    write_run(tmp_path / "elsewhere" / "run")
    assert commands(one_section(tmp_path / "elsewhere")) == []


def guarded(folder, scores, honest, share=0.0):
    line = "epoch 0 step {0}/99 party a: split_guard score {1:.6f} at batch {0}"
    config = {"defense": {"split_guard": {"window": 2}}, "adversary": {"hijack": {"honest_share": share}}}
    facts = {"adversary": {"hijack": {"party": "label", "text": "It cheats."}}}
    write_run(folder, leaks=[], config=config, facts=facts)
    write_run(folder / "honest", leaks=[], config={"defense": config["defense"]})
    for place, values in ((folder, scores), (folder / "honest", honest)):
        log = [line.format(10 * number, score) for number, score in enumerate(values, 1)]
        (place / "train.log").write_text("\n".join(["training", *log, log[-1], ""]))  # the last batch again


def test_when_split_guard_noticed_and_whom_it_accused(tmp_path):
    guarded(tmp_path / "one", [0.9, 0.2, 0.2], [1.0, 1.0, 0.1])
    guarded(tmp_path / "three", [1.0, 1.0, 1.0], [0.9, 0.9, 0.9], share=0.5)
    rows = [row for row in texts(table_of(tmp_path, "alarms")) if row[3] == "0.500"]
    assert [row[1:3] + row[4:] for row in rows] == [
        ["fast", "2", "1 of 1", "20", "20", "20", "1 of 1"],
        ["average", "2", "1 of 1", "30", "30", "30", "0 of 1"],
        ["voting", "2", "0 of 1", "-", "-", "-", "0 of 1"],
        ["fast", "2", "0 of 1", "-", "-", "-", "0 of 1"],
        ["average", "2", "0 of 1", "-", "-", "-", "0 of 1"],
        ["voting", "2", "0 of 1", "-", "-", "-", "0 of 1"],
    ]
    (tmp_path / "one" / "train.log").write_text("party a: split_guard score 9999999 at batch x\n" * 3)
    assert [row[4] for row in texts(table_of(tmp_path, "alarms"))][:1] == ["0 of 0"]


def solved(folder, seed, rows, columns, seconds, **options):
    figures = {
        "solver_seconds": interval(seconds),
        "ended": interval(1.0),
        "unique": interval(0.75),
        "matches": interval(2.0),
    }
    entry = {"attack": "batch_reconstruction", "message": "update", "party": "a", "layer": "f1", "batches": 10}
    config = {"dataset": {"_target_": "vflbench.data.bernoulli.Bernoulli", "rows": rows, "features": columns, **options}}
    kept = {
        "reconstructions": [{**entry, "figures": figures}],
        "experiment": "quantification_table1",
        "dataset": "bernoulli",
    }
    write_run(folder, seed=seed, config=config, **kept)


def test_solvers_stand_beside_the_published_seconds(tmp_path):
    for seed in range(2):
        solved(tmp_path / f"a{seed}", seed, 3, 5, 0.01 + 0.02 * seed)
        solved(tmp_path / f"b{seed}", seed, 11, 20, 1.5)
    table = table_of(tmp_path, "solvers")
    rows = {(row[0], row[1]): row for row in table.rows}
    assert len(rows) == 20, "published sizes have a line too"
    assert rows[3, 5][3:] == [pytest.approx(0.02), 1.0, 2.0, 0.25]
    assert rows[11, 20][3] == 1.5
    assert rows[5, 5][3] is None
    assert math.isnan(rows[5, 5][-1])
    solved(tmp_path / "denser", 0, 3, 5, 100.0, density=0.9)
    section = one_section(tmp_path)
    several = [table for table in extra_tables(section) if "solvers" in table.slug]
    assert [table.title for table in several] == ["Seconds to rebuild a batch: density 0.9"] or len(several) == 2
    firsts = sorted(next(row for row in table.rows if (row[0], row[1]) == (3, 5))[3] for table in several)
    assert firsts == [pytest.approx(0.02), 100.0]


def test_ordinary_runs_have_none_of_them(tmp_path):
    write_run(tmp_path / "run")
    assert extra_tables(one_section(tmp_path)) == []


def plots_of(folder):
    return {plot.slug.partition("criteo_")[2]: plot for plot in extra_plots(one_section(folder))}


def means(series):
    return [(point.x.mean, round(point.y.mean, 3)) for point in series.points]


def test_known_labels_and_prices_are_lines_with_a_point_for_each_value(tmp_path):
    for seed in (0, 1):
        leaks = {"few": 0.6 + 0.02 * seed, "many": 0.7, "joined": 0.9}
        known(tmp_path / "known" / f"none{seed}", seed, leaks, test_auc=0.8)
    (plot,) = plots_of(tmp_path / "known").values()
    assert {one.label: means(one) for one in plot.series} == {
        "none, embeddings": [(0, 0.61), (1, 0.7)],
        "none, both": [(1, 0.9)],
    }
    assert plot.x.ticks == ((0, "20"), (1, "100"))
    for epochs, auc in ((1, 0.8), (5, 0.9)):
        priced(tmp_path / "price" / f"n{epochs}", seed=0, lr=0.1, epochs=epochs, validation=0.8, test=auc)
        priced(tmp_path / "price" / f"z{epochs}", seed=0, lr=0.1, epochs=epochs, validation=0.8, test=auc - 0.1, eps=epochs)
    (plot,) = plots_of(tmp_path / "price").values()
    assert {one.label: means(one) for one in plot.series} == {
        "none": [(0, 0.8), (1, 0.9)],
        "label_dp zero_sum, ceiling 0.680": [(0, 0.7), (1, 0.8)],
    }


def test_alarms_are_drawn_by_threshold(tmp_path):
    guarded(tmp_path / "one", [0.9, 0.2, 0.2], [1.0, 1.0, 0.1])
    plots = plots_of(tmp_path)
    noticed, accused = plots["alarms"].series
    assert [y for x, y in means(noticed)] == [float(x > 0.2) for x, _ in means(noticed)]
    assert [y for x, y in means(accused)] == [float(x > 0.55) for x, _ in means(accused)]
    assert {y for _, y in means(plots["alarm_batches"].series[0])} == {10.0, 20.0, 30.0} - {10.0}


def drawn(folder):
    return {figure.slug.partition("criteo_")[2]: figure for figure in extra_figures(one_section(folder))}


def values_of(figure):
    """(row, column) -> value of a heat map's cell."""
    return {(cell["row"], cell["column"]): cell["value"] for cell in figure.spec["datasets"]["cells"]}


def test_the_heat_map_of_the_matrix_has_the_numbers_of_its_table(matrix):
    figure = drawn(matrix)["matrix"]
    cells = values_of(figure)
    assert (cells["none", "direct"], cells["label_dp", "direct"], cells["none", "probe"]) == (0.98, 0.6, 0.9)
    assert figure.slug == "matrix_criteo_matrix"
    assert "refuted" in str(figure.spec["datasets"]["texts"])


@pytest.mark.slow
def test_gains_and_rebuilt_data_are_drawn_side_by_side_and_never_over_two_data_sets(tmp_path):
    def entry(layer, mse, message="embedding"):
        place = {"attack": "inversion", "message": message, "party": "all", "layer": layer, "visible": True}
        return place | {"figures": {"mse": interval(mse), "ssim": interval(1 - mse)}, "batches": 1, "notes": {}}

    def save(name, seed, mse, guess, levels, **dataset):
        dataset = {"dataset": {"_target_": "vflbench.data.mnist.Mnist", **dataset}}
        config = dataset | {"attack": {"inversion": {"_target_": "vflbench.attacks.model_inversion.ModelInversion"}}}
        entries = [entry("f2", mse), entry("mean", guess, "none")]
        defense = {"quantize": {"levels": levels}}
        run = write_run(tmp_path / name, seed=seed, config=config, defense=defense, reconstructions=entries)
        pictures = np.random.default_rng(seed).random((12, 6, 6))
        np.savez(
            run / "reconstructions.npz", **{"inversion/all/f2/truth": pictures, "inversion/all/f2/answer": pictures / 2}
        )

    for seed in range(2):
        save(f"a{seed}", seed, 0.02, 0.1, 2)
        save(f"b{seed}", seed, 0.1, 0.1, 16)
    made = drawn(tmp_path)
    assert {"gains", "recovery_mse", "recovery_ssim"} < set(made)
    assert sum("inversion" in slug for slug in made) == 2  # against utility, and the pictures; no bits were recorded
    assert values_of(made["gains"]) == {("quantize, levels 2", "inversion"): 0.8, ("quantize, levels 16", "inversion"): 0.0}
    alone = len(made)
    save("c0", 0, 0.02, 0.4, 2, rows=5)
    save("d0", 0, 0.02, 0.4, 16, rows=5)
    made = drawn(tmp_path)
    assert len(made) == 2 * (alone - 1) + 1, sorted(made)  # the heat map has a line for each setting
    (tmp_path / "a0" / "reconstructions.npz").write_bytes(b"no archive")
    assert "gains" in drawn(tmp_path)


def test_hostile_names_are_drawn_as_they_are(tmp_path):
    for number, text in enumerate(("<b>&", "a'b\"c", "datum.x", "\u202egnp", "a\nb")):
        entries = {f"{text}{i}": 0.5 + 0.05 * i for i in range(6)}
        leaks = [leak(name, "f2", value) for name, value in entries.items()]
        write_run(tmp_path / str(number), leaks=leaks, defense={text: {"_target_": text}}, experiment="matrix")
    (figure,) = drawn(tmp_path).values()
    assert len(figure.spec["datasets"]["cells"]) == 5 * 31


def test_what_is_not_there_is_not_drawn(tmp_path):
    write_run(tmp_path / "run")
    assert plots_of(tmp_path) == {}
    assert drawn(tmp_path) == {}
