"""Tables and figures of special experiments, from runs written by hand."""

import json
import math

import pandas as pd
import pytest
from report.drawn import by_name, lines_of, section_of
from support.outputs_tree import leak, marvell, rebuilt, write_run

from vflbench.cli.help import listing
from vflbench.files import config_folder
from vflbench.report.charts import Figure
from vflbench.report.experiments import commands, measured, published_table, special
from vflbench.report.published import Value, read_experiment, read_experiments
from vflbench.report.tables import Table

THREATS = {
    "direct": {"level": "messages only", "text": "", "knows": ["gradients"]},
    "spectral": {"level": "messages only", "text": "", "knows": ["embeddings"]},
    "completion": {"level": "known labels", "text": "", "knows": ["embeddings"], "known_rows": 20},
}
ATTACKS = {name: {"_target_": f"vflbench.attacks.{name}.{name.title()}"} for name in THREATS}


def table_of(folder, ending):
    """The only table of this name, as text."""
    (table,) = [one for one in special(section_of(folder)) if isinstance(one, Table) and one.slug.endswith(f"_{ending}")]
    return table


def drawn(folder):
    return by_name(one for one in special(section_of(folder)) if isinstance(one, Figure))


def texts(table):
    return table.texts.map(lambda text: text.split(" (")[0]).to_numpy().tolist()


def attacked(folder, seed, *, direct, completion, **options):
    leaks = [leak("direct", "f1", direct - 0.1), leak("direct", "f2", direct), leak("direct", "h1", 1.0, visible=False)]
    leaks += [leak("spectral", "f2", 0.3, message="embedding"), leak("completion", "f2", completion, message="embedding")]
    references = (("completion (own columns)", "features", 0.55), ("probe", "gradients", 0.8), ("probe", "embeddings", 0.9))
    leaks += [leak(name, place, value, message="none") for name, place, value in references]
    facts = {"threats": THREATS, "cut_layers": {"a": ["f2"]}}
    return write_run(folder, seed=seed, leaks=leaks, **{"config": {"attack": ATTACKS}, "facts": facts, **options})


def promise(ceiling, holds=None):
    return {"leak_auc_all_messages": ceiling, "assumption_holds": holds}


def test_the_matrix_has_each_attack_at_its_worst_visible_layer_and_the_strongest_of_each_level(tmp_path):
    for seed in (0, 1):
        auc = {"test_auc": 0.74 + 0.02 * seed, "experiment": "matrix"}
        attacked(tmp_path / f"none{seed}", seed, direct=0.98, completion=0.7 + 0.1 * seed, **auc)
        label_dp = {"label_dp": {"_target_": "vflbench.defenses.label_dp.LabelDp", "eps": 0.753}}
        how = {"defense": label_dp, "guarantees": {"label_dp": promise(0.68)}, "experiment": "matrix"}
        attacked(tmp_path / f"dp{seed}", seed, direct=0.6, completion=0.66, **how)
        marvell = {"marvell": {"_target_": "vflbench.defenses.marvell.Marvell", "sumkl": 0.16}}
        how = {"defense": marvell, "guarantees": {"marvell": promise(0.6, holds=False)}, "experiment": "matrix"}
        attacked(tmp_path / f"m{seed}", seed, direct=0.95, completion=0.6, **how)
    cells = pd.DataFrame(drawn(tmp_path)["matrix"].spec["datasets"]["cells"])
    columns = [
        *((" ", "test AUC"), (" ", "ceiling"), ("messages only", "direct"), ("messages only", "spectral")),
        *(("known labels", "completion"), ("reference", "probe"), ("reference", "own columns")),
        *(("strongest", "messages only"), ("strongest", "known labels")),
    ]
    assert list(dict.fromkeys(zip(cells.group, cells.column, strict=True))) == columns
    said = {row: list(of.words) for row, of in cells.groupby("row", sort=False)}
    assert list(said) == ["none", "marvell", "label_dp"]
    assert [" ".join(words).split() for words in said.values()] == [
        ["0.750", "-", "0.98", "0.70", "0.75", "0.90", "0.55", "0.98", "direct", "0.75", "completion"],
        ["0.760", "refuted", "0.95", "0.70", "0.60", "0.90", "0.55", "0.95", "direct", "0.60", "completion"],
        ["0.760", "0.680", "0.60", "0.70", "0.66", "0.90", "0.55", "0.70", "spectral", "0.66", "completion"],
    ]


def priced(folder, *, seed, lr, epochs, validation, test, eps=None, ceiling=0.68, **data):
    defense = {} if eps is None else {"label_dp": {"eps": eps, "mechanism": "zero_sum", "target": "auto"}}
    dataset = {"_target_": "vflbench.data.clicklogs.Criteo", "path": "a b.txt", "min_count": 5, **data}
    config = {"optimizer": {"lr": lr}, "epochs": epochs, "dataset": dataset}
    words = ["defense=label_dp", "defense.label_dp.mechanism=zero_sum", f"defense.label_dp.eps={eps}"]
    how = {"test_auc": test, "validation_auc": validation, "guarantees": {"label_dp": promise(ceiling)} if eps else {}}
    facts = {"overrides": words if eps else [], "choices": {"dataset": "criteo", "experiment": "price_of_privacy"}}
    write_run(folder, seed=seed, defense=defense, config=config, facts=facts, **how)


def test_validation_rows_of_the_first_seed_choose_the_rate_and_test_rows_are_shown(tmp_path):
    for lr, validation, test in ((0.1, 0.70, 0.79), (0.2, 0.75, 0.71), (0.3, 0.72, 0.78)):
        priced(tmp_path / f"z{lr}", seed=0, lr=lr, epochs=2, validation=validation, test=test, eps=0.75)
    priced(tmp_path / "other", seed=1, lr=0.2, epochs=2, validation=0.5, test=0.73, eps=0.75)
    priced(tmp_path / "best_elsewhere", seed=1, lr=0.3, epochs=2, validation=0.9, test=0.99, eps=0.75)
    priced(tmp_path / "fewer_rows", seed=1, lr=0.2, epochs=2, validation=0.9, test=0.99, eps=0.75, rows=100)
    priced(tmp_path / "none", seed=0, lr=0.1, epochs=1, validation=0.8, test=0.8)
    table = table_of(tmp_path, "price")
    assert texts(table) == [
        ["none", "-", "1", "0.800", "0.1", "1"],
        ["label_dp zero_sum", "0.680", "2", "0.720", "0.2", "2"],
        ["label_dp zero_sum, rows 100", "0.680", "2", "0.990", "0.2", "1"],
    ]
    assert table.csv().splitlines()[2].startswith("label_dp zero_sum,0.68,2,")
    points = lines_of(drawn(tmp_path)["price"])
    assert (points["none"], points["label_dp zero_sum, ceiling 0.680"]) == ([("1", 0.8)], [("2", 0.72)])


def test_commands_make_the_runs_of_other_seeds_at_the_chosen_rate(tmp_path):
    priced(tmp_path / "a", seed=0, lr=0.1, epochs=2, validation=0.7, test=0.7, eps=0.753)
    priced(tmp_path / "b", seed=0, lr=0.1, epochs=2, validation=0.8, test=0.8)
    start = "vflbench train experiment=price_of_privacy dataset=criteo 'dataset.path=a b.txt' dataset.min_count=5 epochs=2 "
    zero_sum = "defense=label_dp defense.label_dp.mechanism=zero_sum defense.label_dp.eps="
    made = sorted(line.removeprefix(f"{start}optimizer.lr=0.1 ") for line in commands(section_of(tmp_path)))
    assert made == [f"seed=0,1,2 {zero_sum}1.076", f"seed=1,2 {zero_sum}0.753", "seed=1,2 defense=none"]
    write_run(tmp_path / "elsewhere" / "run")
    assert commands(section_of(tmp_path / "elsewhere")) == []


def guarded(folder, scores, honest, share=0.0):
    line = "epoch 0 step {0}/99 party a: split_guard score {1:.6f} at batch {0}"
    defense, facts = {"split_guard": {"window": 2}}, {"adversary": {"fsha": {"party": "label", "text": "It cheats."}}}
    write_run(folder, leaks=[], defense=defense, config={"adversary": {"fsha": {"honest_share": share}}}, facts=facts)
    write_run(folder / "honest", leaks=[], defense=defense)
    for place, values in ((folder, scores), (folder / "honest", honest)):
        log = [line.format(10 * number, score) for number, score in enumerate(values, 1)]
        (place / "train.log").write_text("\n".join(["training", *log, log[-1], ""]))  # the last batch again


@pytest.mark.slow
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


def test_seconds_of_solvers_stand_beside_all_20_published_ones_of_which_two_are_marked(tmp_path):
    for seed, rows, columns, seconds in ((0, 3, 5, 0.01), (1, 3, 5, 0.03), (0, 11, 20, 1.5), (1, 11, 20, 1.5)):
        answer = rebuilt("f1", "batch_reconstruction", message="update", solver_seconds=seconds, ended=1.0)
        config = {"dataset": {"_target_": "vflbench.data.synthetic.Bernoulli", "rows": rows, "features": columns}}
        how = {"seed": seed, "experiment": "quantification_table1", "dataset": "bernoulli", "config": config}
        write_run(tmp_path / f"{rows}_{seed}", reconstructions=[answer], **how)
    experiment = read_experiment(config_folder() / "experiment" / "quantification_table1.yaml")
    rows = published_table(section_of(tmp_path), experiment).frame.set_index("what")
    assert len(rows) == 20
    assert rows.published["seconds, (11, 20)"] == 1634.821
    assert rows.here["seconds, (3, 5)"].mean == pytest.approx(0.02)
    assert rows["here - published"]["seconds, (11, 20)"] == pytest.approx(1.5 - 1634.821)
    assert rows.here["seconds, (8, 20)"] == "not measured here"
    marked = [what for what, text in rows.published.items() if str(text).startswith("*")]
    assert marked == ["seconds, (9, 5)", "seconds, (11, 5)"]


def of_marvell(folder, seed, test_auc, **dataset):
    options = {"dataset": {"_target_": "vflbench.data.clicklogs.Criteo", **dataset}}
    write_run(folder, seed=seed, test_auc=test_auc, config=options, **marvell(0.5))


def measured_in(folder, what="test AUC"):
    one = measured(Value(what, 0.7, "test_auc", {"defense.marvell.sumkl": 0.5}), section_of(folder))
    return one.runs, round(one.mean, 9)


def test_a_value_is_compared_with_the_seeds_of_one_setting_and_a_mean_over_days_with_such_a_mean_alone(tmp_path):
    for place in range(3):
        of_marvell(tmp_path / "seeds" / str(place), place, 0.7 + 0.01 * place)
        of_marvell(tmp_path / "days" / str(place), 0, 0.6 + 0.1 * place, test_day=place)
    assert measured_in(tmp_path / "seeds") == (3, 0.71)
    assert measured_in(tmp_path / "days", "test AUC, mean over days") == (3, 0.7)
    assert measured_in(tmp_path / "days")[0] == 0
    for folder, more, what in (("seeds", {}, "test AUC"), ("days", {"test_day": 2}, "test AUC, mean over days")):
        of_marvell(tmp_path / folder / "other", 0, 0.1, rows=5, **more)
        assert measured_in(tmp_path / folder, what)[0] == 0, "two settings are no one value"


@pytest.fixture(scope="module")
def experiments():
    return read_experiments()


def test_every_experiment_states_what_it_shows_its_source_and_its_cost_also_in_their_list(experiments):
    listed = " ".join(listing([config_folder()], "experiments").split())
    for name, experiment in experiments.items():
        assert experiment.does, name
        assert experiment.minutes > 0, f"{name}: # Cost: N minutes: ..."
        assert all(value.number is None or math.isfinite(value.number) for value in experiment.values), name
        assert experiment.source, name
        assert f"({experiment.source}) [{experiment.cost}]" in listed, name


def test_what_is_published_has_its_experiment_and_its_data(experiments):
    published = json.loads((config_folder() / "experiment" / "published_values.json").read_text())
    assert {name for name, e in experiments.items() if e.data} == {*published} & {*experiments}
    assert (experiments["bytedance_sumkl"].is_sweep, experiments["quantification_table1"].dataset) == (True, "bernoulli")
